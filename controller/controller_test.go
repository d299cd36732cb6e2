package controller_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/ptr"
	cr "sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/setpoint-dev/setpoint/cache"
	"github.com/setpoint-dev/setpoint/controller"
	"github.com/setpoint-dev/setpoint/internal/tinyapi"
	"github.com/setpoint-dev/setpoint/lease"
)

// world is a server, a live client, and a manager that is not yet started.
type world struct {
	*testing.T
	server *tinyapi.Server
	live   cr.Client
	mgr    *controller.Manager
}

func inWorld(t *testing.T, opts controller.ManagerOptions, test func(*world)) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{T: t, server: tinyapi.New()}
		var err error
		if w.live, err = cr.New(w.server.Config(), cr.Options{Mapper: w.server.Mapper()}); err != nil {
			t.Fatal(err)
		}
		w.mgr = w.manager(opts)
		test(w)
	})
}

func (w *world) manager(opts controller.ManagerOptions) *controller.Manager {
	w.Helper()
	opts.Mapper = w.server.Mapper()
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.NewTextHandler(io.Discard, nil))
	}
	mgr, err := controller.NewManager(w.server.Config(), opts)
	if err != nil {
		w.Fatal(err)
	}
	return mgr
}

// start runs a manager until the test, or the returned function, ends it.
func (w *world) start(mgr *controller.Manager) (stop func() error) {
	ctx, cancel := context.WithCancel(w.Context())
	result := make(chan error, 1)
	go func() { result <- mgr.Start(ctx) }()
	stop = sync.OnceValue(func() error { cancel(); return <-result })
	w.Cleanup(func() { _ = stop() })
	synctest.Wait()
	return stop
}

// pass lets time pass, and everything that happens in it end.
func (w *world) pass(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

func (w *world) must(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
	synctest.Wait()
}

func replicaSet(name string, replicas int32) *appsv1.ReplicaSet {
	return &appsv1.ReplicaSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
		Spec:       appsv1.ReplicaSetSpec{Replicas: ptr.To(replicas)},
	}
}

func keyOf(name string) reconcile.Request {
	return reconcile.Request{NamespacedName: types.NamespacedName{Namespace: "default", Name: name}}
}

// replicator keeps as many pods as a ReplicaSet asks for, in the plainest way: with random names,
// and no memory of its own.
func replicator(c cr.Client) reconcile.Func {
	return func(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
		var rs appsv1.ReplicaSet
		if err := c.Get(ctx, req.NamespacedName, &rs); err != nil {
			return reconcile.Result{}, cr.IgnoreNotFound(err)
		}
		var pods corev1.PodList
		if err := c.List(ctx, &pods, cr.MatchingFields{cache.OwnerField: string(rs.UID)}); err != nil {
			return reconcile.Result{}, err
		}
		for n := len(pods.Items); n < int(*rs.Spec.Replicas); n++ {
			p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
				Namespace: rs.Namespace, GenerateName: rs.Name + "-",
				OwnerReferences: []metav1.OwnerReference{
					*metav1.NewControllerRef(&rs, appsv1.SchemeGroupVersion.WithKind("ReplicaSet")),
				},
			}}
			if err := c.Create(ctx, p); err != nil {
				return reconcile.Result{}, err
			}
		}
		for n := int(*rs.Spec.Replicas); n < len(pods.Items); n++ {
			if err := c.Delete(ctx, &pods.Items[n]); err != nil {
				return reconcile.Result{}, err
			}
		}
		return reconcile.Result{}, nil
	}
}

func (w *world) addReplicator() {
	w.Helper()
	w.must(controller.ManagedBy(w.mgr).
		For(&appsv1.ReplicaSet{}).
		Owns(&corev1.Pod{}).
		Complete(replicator(w.mgr.GetClient())))
}

func (w *world) wantPods(n int) {
	w.Helper()
	if got := w.server.Names("pods"); len(got) != n {
		w.Errorf("%d pods, want %d: %v", len(got), n, got)
	}
}

func TestConvergesAndThenAsksForNothing(t *testing.T) {
	inWorld(t, controller.ManagerOptions{}, func(w *world) {
		w.addReplicator()
		w.start(w.mgr)
		rs := replicaSet("web", 3)
		w.must(w.live.Create(w.Context(), rs))
		w.wantPods(3)
		rs.Spec.Replicas = ptr.To[int32](1)
		w.must(w.live.Update(w.Context(), rs))
		w.wantPods(1)
		w.server.Requests()
		rs.Labels = map[string]string{"touched": "yes"}
		w.must(w.live.Update(w.Context(), rs))
		if got := w.server.Requests(); len(got) != 1 {
			w.Errorf("a converged key caused requests: %q", got[1:])
		}
	})
}

// The watch of pods is ten minutes late, and the key is woken every second: what was created is
// never created again.
func TestOwnWritesAreSeenThoughTheWatchIsTenMinutesLate(t *testing.T) {
	inWorld(t, controller.ManagerOptions{}, func(w *world) {
		w.addReplicator()
		w.start(w.mgr)
		w.server.Hold("pods")
		rs := replicaSet("web", 3)
		w.must(w.live.Create(w.Context(), rs))
		for n := range 600 {
			rs.Labels = map[string]string{"touched": fmt.Sprint(n)}
			w.must(w.live.Update(w.Context(), rs))
			w.pass(time.Second)
		}
		w.wantPods(3)
		view := w.mgr.Queues()[0]
		if diff := cmp.Diff([]types.NamespacedName{keyOf("web").NamespacedName}, view.Parked); diff != "" {
			w.Errorf("parked keys (-want +got):\n%s", diff)
		}
		// What came in meanwhile is not lost.
		rs.Spec.Replicas = ptr.To[int32](5)
		w.must(w.live.Update(w.Context(), rs))
		w.wantPods(3)
		w.server.Release("pods")
		w.pass(time.Minute)
		w.wantPods(5)
		if parked := w.mgr.Queues()[0].Parked; len(parked) != 0 {
			w.Errorf("still parked: %v", parked)
		}
	})
}

func TestOwnDeletionsAreSeenThoughTheWatchIsLate(t *testing.T) {
	inWorld(t, controller.ManagerOptions{}, func(w *world) {
		w.addReplicator()
		w.start(w.mgr)
		rs := replicaSet("web", 3)
		w.must(w.live.Create(w.Context(), rs))
		w.wantPods(3)
		w.server.Hold("pods")
		rs.Spec.Replicas = ptr.To[int32](2)
		w.must(w.live.Update(w.Context(), rs))
		w.wantPods(2)
		w.server.Requests()
		rs.Labels = map[string]string{"touched": "yes"}
		w.must(w.live.Update(w.Context(), rs))
		w.pass(time.Minute)
		for _, r := range w.server.Requests() {
			if strings.HasPrefix(r, "DELETE") {
				w.Errorf("asked to delete again: %s", r)
			}
		}
		w.wantPods(2)
	})
}

// The answer to a create is lost, and the watch is late: the retry waits until the cache is as new
// as the server was after the create.
func TestB123_CreateWithALostAnswerIsNotRepeated(t *testing.T) {
	inWorld(t, controller.ManagerOptions{}, func(w *world) {
		w.addReplicator()
		w.start(w.mgr)
		w.server.Hold("pods")
		lost := false
		w.server.Fail(tinyapi.Faults{After: func(r *http.Request, resp *http.Response) (*http.Response, error) {
			if r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, "/pods") && !lost {
				lost = true
				return nil, errors.New("connection reset by peer")
			}
			return resp, nil
		}})
		w.must(w.live.Create(w.Context(), replicaSet("web", 1)))
		w.pass(10 * time.Minute)
		w.wantPods(1)
		w.server.Release("pods")
		w.pass(time.Minute)
		w.wantPods(1)
	})
}

// The pass that creates waits in vain for the cache to show that, and fails: the passes that follow know all
// the same, however long it takes.
func TestB123_CreateBeforeAFailedWaitIsNotRepeated(t *testing.T) {
	inWorld(t, controller.ManagerOptions{}, func(w *world) {
		c, failed := w.mgr.GetClient(), 0
		w.reconciles(controller.Options{}, func(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
			if _, err := replicator(c)(ctx, req); err != nil {
				return reconcile.Result{}, err
			}
			err := c.List(ctx, &corev1.PodList{})
			if err != nil {
				failed++
			}
			return reconcile.Result{}, err
		})
		w.must(w.live.Create(w.Context(), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "other"}}))
		w.start(w.mgr)
		w.server.Hold("pods")
		rs := replicaSet("web", 1)
		w.must(w.live.Create(w.Context(), rs))
		for n := range 600 {
			rs.Labels = map[string]string{"touched": fmt.Sprint(n)}
			w.must(w.live.Update(w.Context(), rs))
			w.pass(time.Second)
		}
		w.wantPods(2)
		w.server.Release("pods")
		w.pass(20 * time.Minute)
		w.wantPods(2)
		if failed == 0 {
			w.Error("no pass waited in vain")
		}
	})
}

func TestWorkBeginsOnlyWhenCachesHaveSynced(t *testing.T) {
	inWorld(t, controller.ManagerOptions{}, func(w *world) {
		var pods corev1.Pod
		pods.Namespace, pods.Name = "default", "p"
		pods.OwnerReferences = []metav1.OwnerReference{{
			APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "web", UID: "u", Controller: ptr.To(true),
		}}
		w.must(w.live.Create(w.Context(), &pods))
		w.must(w.live.Create(w.Context(), replicaSet("web", 1)))
		w.server.Fail(tinyapi.Faults{Before: func(r *http.Request) (*http.Response, error) {
			if strings.Contains(r.URL.Path, "/pods") {
				return tinyapi.Failure(503, "ServiceUnavailable"), nil
			}
			return nil, nil
		}})
		runs := 0
		w.must(controller.ManagedBy(w.mgr).For(&appsv1.ReplicaSet{}).Owns(&corev1.Pod{}).
			Complete(reconcile.Func(func(context.Context, reconcile.Request) (reconcile.Result, error) {
				runs++
				return reconcile.Result{}, nil
			})))
		w.start(w.mgr)
		w.pass(time.Minute)
		if runs != 0 {
			w.Fatalf("%d runs before the pods were listed", runs)
		}
		w.server.Fail(tinyapi.Faults{})
		w.pass(time.Minute)
		if runs != 1 {
			w.Errorf("%d runs, want 1: equal keys collapse", runs)
		}
	})
}

// TestWorkBeginsOnlyWhenHandlersHaveBeenTold holds a handler up while the caches are complete.
func TestWorkBeginsOnlyWhenHandlersHaveBeenTold(t *testing.T) {
	inWorld(t, controller.ManagerOptions{}, func(w *world) {
		var pod corev1.Pod
		pod.Namespace, pod.Name = "default", "p"
		w.must(w.live.Create(w.Context(), &pod))
		w.must(w.live.Create(w.Context(), replicaSet("web", 1)))
		release, runs := make(chan struct{}), 0
		slow := handler.Funcs{CreateFunc: func(context.Context, event.CreateEvent, workqueue.TypedRateLimitingInterface[reconcile.Request]) {
			<-release
		}}
		w.must(controller.ManagedBy(w.mgr).For(&appsv1.ReplicaSet{}).Watches(&corev1.Pod{}, slow).
			Complete(reconcile.Func(func(context.Context, reconcile.Request) (reconcile.Result, error) {
				runs++
				return reconcile.Result{}, nil
			})))
		w.start(w.mgr)
		w.pass(time.Minute)
		if runs != 0 {
			w.Errorf("%d runs before the handler had been told of the pod", runs)
		}
		close(release)
		w.pass(time.Minute)
		if runs != 1 {
			w.Errorf("%d runs, want 1", runs)
		}
	})
}

func TestChildThatMovesWakesBothOwners(t *testing.T) {
	inWorld(t, controller.ManagerOptions{}, func(w *world) {
		woken := map[string]int{}
		w.must(controller.ManagedBy(w.mgr).For(&appsv1.ReplicaSet{}).Owns(&corev1.Pod{}).
			Complete(reconcile.Func(func(_ context.Context, req reconcile.Request) (reconcile.Result, error) {
				woken[req.Name]++
				return reconcile.Result{}, nil
			})))
		w.start(w.mgr)
		a, b := replicaSet("a", 1), replicaSet("b", 1)
		w.must(w.live.Create(w.Context(), a))
		w.must(w.live.Create(w.Context(), b))
		gvk := appsv1.SchemeGroupVersion.WithKind("ReplicaSet")
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "p"}}
		p.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(a, gvk)}
		w.must(w.live.Create(w.Context(), p))
		clear(woken)
		p.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(b, gvk)}
		w.must(w.live.Update(w.Context(), p))
		if diff := cmp.Diff(map[string]int{"a": 1, "b": 1}, woken); diff != "" {
			w.Errorf("woken (-want +got):\n%s", diff)
		}
	})
}

func TestResultKinds(t *testing.T) {
	type outcome struct {
		result reconcile.Result
		err    error
		panics bool
	}
	for name, test := range map[string]struct {
		outcome outcome
		within  time.Duration
		runs    int
	}{
		"done":     {outcome{}, time.Hour, 1},
		"after":    {outcome{result: reconcile.Result{RequeueAfter: 30 * time.Second}}, 91 * time.Second, 4},
		"error":    {outcome{err: errors.New("not now")}, 100 * time.Millisecond, 5}, // at 0, 5, 15, 35, 75 ms
		"terminal": {outcome{err: reconcile.TerminalError(errors.New("never"))}, time.Hour, 1},
		"panic":    {outcome{panics: true}, 100 * time.Millisecond, 5},
	} {
		t.Run(name, func(t *testing.T) {
			registry := prometheus.NewPedanticRegistry()
			inWorld(t, controller.ManagerOptions{Metrics: registry}, func(w *world) {
				runs := 0
				w.must(controller.ManagedBy(w.mgr).For(&appsv1.ReplicaSet{}).
					Complete(reconcile.Func(func(context.Context, reconcile.Request) (reconcile.Result, error) {
						runs++
						if test.outcome.panics {
							panic("oh")
						}
						return test.outcome.result, test.outcome.err
					})))
				w.start(w.mgr)
				w.must(w.live.Create(w.Context(), replicaSet("web", 1)))
				w.pass(test.within)
				synctest.Wait()
				if runs != test.runs {
					w.Errorf("%d runs within %v, want %d", runs, test.within, test.runs)
				}
				families, err := registry.Gather()
				w.must(err)
				for _, f := range families {
					if f.GetName() == "controller_runtime_reconcile_time_seconds" {
						if n := f.GetMetric()[0].GetHistogram().GetSampleCount(); n != uint64(runs) {
							w.Errorf("%d passes measured, want %d", n, runs)
						}
					}
				}
			})
		})
	}
}

func TestQueueViewTellsWhyAndWhatFailed(t *testing.T) {
	inWorld(t, controller.ManagerOptions{}, func(w *world) {
		failure := errors.New("no such image")
		w.must(controller.ManagedBy(w.mgr).For(&appsv1.ReplicaSet{}).
			Complete(reconcile.Func(func(context.Context, reconcile.Request) (reconcile.Result, error) {
				return reconcile.Result{}, failure
			})))
		w.start(w.mgr)
		w.must(w.live.Create(w.Context(), replicaSet("web", 1)))
		w.pass(time.Minute)
		view := w.mgr.Queues()[0]
		if view.Controller != "replicaset" || len(view.Keys) != 1 {
			w.Fatalf("view is %+v", view)
		}
		k := view.Keys[0]
		if k.Key != keyOf("web") || k.Failures < 10 || !errors.Is(k.LastError, failure) || !k.Next.After(time.Now()) {
			w.Errorf("key is %+v", k)
		}
	})
}

func TestPassHasAnIDInContextAndLog(t *testing.T) {
	var log strings.Builder
	opts := controller.ManagerOptions{Logger: slog.New(slog.NewTextHandler(&log, nil))}
	inWorld(t, opts, func(w *world) {
		var id string
		w.must(controller.ManagedBy(w.mgr).For(&appsv1.ReplicaSet{}).
			Complete(reconcile.Func(func(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
				id = controller.PassFrom(ctx)
				controller.LoggerFrom(ctx).Info("looking")
				return reconcile.Result{}, nil
			})))
		stop := w.start(w.mgr)
		w.must(w.live.Create(w.Context(), replicaSet("web", 1)))
		w.must(stop())
		want := "msg=looking controller=replicaset namespace=default name=web reconcileID=" + id
		if id == "" || !strings.Contains(log.String(), want) {
			w.Errorf("log has no %q:\n%s", want, log.String())
		}
	})
}

func TestStopWaitsForTheKeyInWork(t *testing.T) {
	inWorld(t, controller.ManagerOptions{}, func(w *world) {
		var finished bool
		w.must(controller.ManagedBy(w.mgr).For(&appsv1.ReplicaSet{}).
			Complete(reconcile.Func(func(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
				<-ctx.Done()
				<-time.After(time.Second) // cleaning up
				finished = true
				return reconcile.Result{}, ctx.Err()
			})))
		stop := w.start(w.mgr)
		w.must(w.live.Create(w.Context(), replicaSet("web", 1)))
		if err := stop(); err != nil || !finished {
			w.Errorf("stopped with %v before the pass had ended", err)
		}
	})
}

func TestOneOfTwoReplicasWorks(t *testing.T) {
	options := func(holder string) controller.ManagerOptions {
		return controller.ManagerOptions{Lease: &lease.Options{Namespace: "default", Name: "l", Holder: holder}}
	}
	inWorld(t, options("one"), func(w *world) {
		runs := map[string]int{}
		managers := map[string]*controller.Manager{"one": w.mgr, "two": w.manager(options("two"))}
		stops := map[string]func() error{}
		for _, name := range []string{"one", "two"} {
			w.must(controller.ManagedBy(managers[name]).For(&appsv1.ReplicaSet{}).
				Complete(reconcile.Func(func(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
					if term, ok := lease.TermFrom(ctx); !ok || term.Holder != name {
						w.Errorf("%s works in term %v", name, term)
					}
					runs[name]++
					return reconcile.Result{}, nil
				})))
			stops[name] = w.start(managers[name])
			w.pass(time.Second)
		}
		w.must(w.live.Create(w.Context(), replicaSet("a", 1)))
		if diff := cmp.Diff(map[string]int{"one": 1}, runs); diff != "" {
			w.Errorf("runs (-want +got):\n%s", diff)
		}
		w.must(stops["one"]())
		w.pass(5 * time.Second)
		w.must(w.live.Create(w.Context(), replicaSet("b", 1)))
		if runs["one"] != 1 || runs["two"] != 2 {
			w.Errorf("runs after one has stopped: %v", runs)
		}
	})
}

func TestEventsAreCountedUp(t *testing.T) {
	inWorld(t, controller.ManagerOptions{}, func(w *world) {
		w.start(w.mgr)
		rs := replicaSet("web", 1)
		w.must(w.live.Create(w.Context(), rs))
		r := w.mgr.GetEventRecorder("replicaset")
		for range 3 {
			r.Eventf(rs, nil, corev1.EventTypeNormal, "Created", "Create", "made %d pods", 2)
		}
		for n := range 100 {
			r.Eventf(rs, nil, corev1.EventTypeWarning, "Failed", "Create", "failure %d", n)
		}
		synctest.Wait()
		var events corev1.EventList
		w.must(w.live.List(w.Context(), &events))
		if len(events.Items) != 25 {
			w.Errorf("%d events about one object, want 25", len(events.Items))
		}
		for _, e := range events.Items {
			if e.Reason == "Created" && (e.Count != 3 || e.Message != "made 2 pods" || e.InvolvedObject.UID != rs.UID) {
				w.Errorf("event is %+v", e)
			}
		}
	})
}

func TestMistakesAreReported(t *testing.T) {
	inWorld(t, controller.ManagerOptions{Metrics: prometheus.NewPedanticRegistry()}, func(w *world) {
		nop := reconcile.Func(func(context.Context, reconcile.Request) (reconcile.Result, error) {
			return reconcile.Result{}, nil
		})
		rs, pod := &appsv1.ReplicaSet{}, &corev1.Pod{}
		w.must(controller.ManagedBy(w.mgr).For(rs).Complete(nop))
		for want, b := range map[string]*controller.Builder{
			"another of the name": controller.ManagedBy(w.mgr).For(rs),
			"watches nothing":     controller.ManagedBy(w.mgr).Named("x"),
			"needs a name":        controller.ManagedBy(w.mgr).Watches(pod, &handler.EnqueueRequestForObject{}),
			"without For":         controller.ManagedBy(w.mgr).Named("x").Owns(pod),
			"called 2 times":      controller.ManagedBy(w.mgr).For(rs).For(pod),
		} {
			if err := b.Complete(nop); err == nil || !strings.Contains(err.Error(), want) {
				w.Errorf("error is %v, want %q", err, want)
			}
		}
	})
}
