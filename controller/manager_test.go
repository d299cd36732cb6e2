package controller_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/setpoint-dev/setpoint/controller"
	"github.com/setpoint-dev/setpoint/lease"
)

func ledBy(holder string) controller.ManagerOptions {
	return controller.ManagerOptions{Lease: &lease.Options{Namespace: "default", Name: "l", Holder: holder}}
}

// deaf is a runnable, or a pass, that does not hear that it should end.
func deaf(t *world) (started chan struct{}, run func()) {
	started = make(chan struct{}, 1)
	end := make(chan struct{})
	t.Cleanup(func() { close(end) })
	return started, func() { started <- struct{}{}; <-end }
}

// TestManagerEndsThoughAPassDoesNotHearThatTheLeaseIsLost takes the lease away in the middle of a pass.
func TestManagerEndsThoughAPassDoesNotHearThatTheLeaseIsLost(t *testing.T) {
	inWorld(t, ledBy("one"), func(w *world) {
		started, run := deaf(w)
		w.reconciles(controller.Options{}, func(context.Context, reconcile.Request) (reconcile.Result, error) {
			run()
			return reconcile.Result{}, nil
		})
		result := make(chan error, 1)
		go func() { result <- w.mgr.Start(w.Context()) }()
		w.pass(time.Second)
		w.must(w.live.Create(w.Context(), replicaSet("web", 1)))
		<-started
		w.must(w.live.Delete(w.Context(), &coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "l"},
		}))
		w.wantEnd(result, lease.ErrLost)
	})
}

func TestManagerEndsThoughARunnableDoesNotHearThatAnotherFailed(t *testing.T) {
	for name, opts := range map[string]controller.ManagerOptions{"alone": {}, "with a lease": ledBy("one")} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, opts, func(w *world) {
				_, run := deaf(w)
				failure := errors.New("no room")
				w.must(w.mgr.Add(controller.RunnableFunc(func(context.Context) error { return failure })))
				w.must(w.mgr.Add(controller.RunnableFunc(func(context.Context) error { run(); return nil })))
				result := make(chan error, 1)
				go func() { result <- w.mgr.Start(w.Context()) }()
				w.wantEnd(result, failure)
			})
		})
	}
}

// wantEnd waits for a manager, as long as that promises to take.
func (w *world) wantEnd(result <-chan error, want error) {
	w.Helper()
	w.pass(35 * time.Second)
	select {
	case err := <-result:
		if !errors.Is(err, want) || !strings.Contains(err.Error(), "within 30s") {
			w.Errorf("ended with %v, want %v and that not everything ended", err, want)
		}
	default:
		w.Error("it has not ended")
	}
}

// late is a source whose first keys take a while.
type late struct{ synced chan struct{} }

func (late) Start(context.Context, workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
	return nil
}

func (l late) WaitForSync(ctx context.Context) error {
	select {
	case <-l.synced:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func TestWorkBeginsOnlyWhenSourcesHaveSynced(t *testing.T) {
	inWorld(t, controller.ManagerOptions{}, func(w *world) {
		src, runs := late{make(chan struct{})}, 0
		w.must(controller.ManagedBy(w.mgr).For(&appsv1.ReplicaSet{}).WatchesRawSource(src).
			Complete(reconcile.Func(func(context.Context, reconcile.Request) (reconcile.Result, error) {
				runs++
				return reconcile.Result{}, nil
			})))
		w.start(w.mgr)
		w.must(w.live.Create(w.Context(), replicaSet("web", 1)))
		w.pass(time.Minute)
		if runs != 0 {
			w.Errorf("%d runs before the source had synced", runs)
		}
		close(src.synced)
		w.pass(time.Minute)
		if runs != 1 {
			w.Errorf("%d runs, want 1", runs)
		}
	})
}

// everywhere is what a server of webhooks is: needed of every replica.
type everywhere struct{ controller.RunnableFunc }

func (everywhere) NeedLeaderElection() bool { return false }

func TestRunnableThatNeedsNoElectionRunsOnEveryReplica(t *testing.T) {
	inWorld(t, ledBy("one"), func(w *world) {
		w.start(w.mgr)
		w.pass(time.Second)
		standby, runs := w.manager(ledBy("two")), map[string]int{}
		run := func(name string) controller.RunnableFunc {
			return func(ctx context.Context) error { runs[name]++; <-ctx.Done(); return ctx.Err() }
		}
		w.must(standby.Add(everywhere{run("webhooks")}))
		w.must(standby.Add(run("led")))
		stop := w.start(standby)
		w.must(standby.Add(everywhere{run("webhooks, later")}))
		w.pass(time.Minute)
		if runs["webhooks"] != 1 || runs["webhooks, later"] != 1 || runs["led"] != 0 {
			w.Errorf("runs of a standby: %v", runs)
		}
		w.must(stop())
	})
}

func TestStoppedManagerTakesNoRunnable(t *testing.T) {
	inWorld(t, controller.ManagerOptions{}, func(w *world) {
		nop := controller.RunnableFunc(func(context.Context) error { return nil })
		w.must(w.mgr.Add(nop))
		stop := w.start(w.mgr)
		w.must(w.mgr.Add(nop))
		w.must(stop())
		if err := w.mgr.Add(nop); err == nil || !strings.Contains(err.Error(), "told to stop") {
			w.Errorf("a runnable that will never run was taken: %v", err)
		}
	})
}

// TestStandbyLeavesNothingBehind stops one that never led, with a key that waits for its time. What it
// left running would be found at the end of the test.
func TestStandbyLeavesNothingBehind(t *testing.T) {
	inWorld(t, ledBy("one"), func(w *world) {
		w.start(w.mgr)
		w.pass(time.Second)
		standby := w.manager(ledBy("two"))
		later := handler.Funcs{CreateFunc: func(_ context.Context, _ event.CreateEvent, q workqueue.TypedRateLimitingInterface[reconcile.Request]) {
			q.AddAfter(keyOf("web"), time.Hour)
		}}
		w.must(controller.ManagedBy(standby).Named("x").Watches(&appsv1.ReplicaSet{}, later).
			Complete(reconcile.Func(func(context.Context, reconcile.Request) (reconcile.Result, error) {
				return reconcile.Result{}, nil
			})))
		stop := w.start(standby)
		w.must(w.live.Create(w.Context(), replicaSet("web", 1)))
		w.must(stop())
	})
}

func TestEventsAreOfObjectsOfAnyName(t *testing.T) {
	inWorld(t, controller.ManagerOptions{}, func(w *world) {
		w.start(w.mgr)
		r := w.mgr.GetEventRecorder("x")
		for _, name := range []string{"web", "system:node", strings.Repeat("a", 250)} {
			rs := replicaSet(name, 1)
			rs.UID = types.UID(name)
			r.Eventf(rs, nil, corev1.EventTypeNormal, "Made", "Make", "made it")
		}
		synctest.Wait()
		var events corev1.EventList
		w.must(w.live.List(w.Context(), &events))
		if len(events.Items) != 3 {
			w.Errorf("%d events, want 3", len(events.Items))
		}
		for _, e := range events.Items {
			if strings.Contains(e.Name, ":") || len(e.Name) > 253 {
				w.Errorf("event of %s has the name %q, which no server takes", e.InvolvedObject.Name, e.Name)
			}
		}
	})
}

// definitions has a mapper learn of a kind when its definition is installed.
type definitions struct {
	meta.RESTMapper
	installed atomic.Bool
}

func (d *definitions) RESTMapping(gk schema.GroupKind, versions ...string) (*meta.RESTMapping, error) {
	if gk.Kind == "ReplicaSet" && !d.installed.Load() {
		return nil, fmt.Errorf("discovery: %w", &meta.NoKindMatchError{GroupKind: gk, SearchedVersions: versions})
	}
	return d.RESTMapper.RESTMapping(gk, versions...)
}

func TestKindsAreWaitedFor(t *testing.T) {
	for name, installed := range map[string]bool{"installed later": true, "never installed": false} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, controller.ManagerOptions{}, func(w *world) {
				kinds, runs := &definitions{RESTMapper: w.server.Mapper()}, atomic.Int64{}
				mgr, err := controller.NewManager(w.server.Config(), controller.ManagerOptions{
					Mapper: kinds, Logger: slog.New(slog.DiscardHandler),
				})
				w.must(err)
				w.must(controller.ManagedBy(mgr).Named("x").For(&corev1.Pod{}).Owns(&appsv1.ReplicaSet{}).
					Complete(reconcile.Func(func(context.Context, reconcile.Request) (reconcile.Result, error) {
						runs.Add(1)
						return reconcile.Result{}, nil
					})))
				w.must(w.live.Create(w.Context(), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "p"}}))
				stop := w.start(mgr)
				w.pass(time.Hour)
				if runs.Load() != 0 {
					w.Error("it worked without one of its kinds")
				}
				kinds.installed.Store(installed)
				w.pass(time.Minute)
				err = stop()
				if installed && (runs.Load() != 1 || err != nil) {
					w.Errorf("%d runs with all kinds there, ended with %v", runs.Load(), err)
				}
				if want := `controller "x": the server does not know ReplicaSet of apps/v1`; !installed &&
					(err == nil || !strings.Contains(err.Error(), want)) {
					w.Errorf("ended with %v, want %q", err, want)
				}
			})
		})
	}
}
