package controller_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	cr "sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/setpoint-dev/setpoint/controller"
)

// What follows is promised by controller-runtime's loop as well, in its tests' words.

// reconciles adds a controller of ReplicaSets.
func (w *world) reconciles(opts controller.Options, pass reconcile.Func, predicates ...predicate.Predicate) {
	w.Helper()
	w.must(controller.ManagedBy(w.mgr).For(&appsv1.ReplicaSet{}, predicates...).WithOptions(opts).Complete(pass))
}

// TestB120_PriorityIsKeptWhenAKeyComesBack has an object be there before the controller starts, so that its
// key is of low priority.
func TestB120_PriorityIsKeptWhenAKeyComesBack(t *testing.T) {
	failure := errors.New("not now")
	for name, test := range map[string]struct {
		result reconcile.Result
		err    error
		want   int
	}{
		"error":        {err: failure, want: -100},
		"after":        {result: reconcile.Result{RequeueAfter: time.Hour}, want: -100},
		"error, given": {reconcile.Result{Priority: ptr.To(7)}, failure, 7},
		"after, given": {result: reconcile.Result{RequeueAfter: time.Hour, Priority: ptr.To(7)}, want: 7},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, controller.ManagerOptions{}, func(w *world) {
				w.must(w.live.Create(w.Context(), replicaSet("web", 1)))
				runs := 0
				w.reconciles(controller.Options{}, func(context.Context, reconcile.Request) (reconcile.Result, error) {
					runs++
					return test.result, test.err
				})
				w.start(w.mgr)
				w.pass(time.Second)
				keys := w.mgr.Queues()[0].Keys
				if runs == 0 || len(keys) != 1 || keys[0].Priority != test.want {
					w.Errorf("after %d passes the queue has %+v, want one of priority %d", runs, keys, test.want)
				}
			})
		})
	}
}

// TestDelaysBeginAnewAfterASuccess has every fourth pass end well.
func TestDelaysBeginAnewAfterASuccess(t *testing.T) {
	inWorld(t, controller.ManagerOptions{}, func(w *world) {
		var passes []time.Duration
		began := time.Now()
		w.reconciles(controller.Options{}, func(context.Context, reconcile.Request) (reconcile.Result, error) {
			passes = append(passes, time.Since(began))
			began = time.Now()
			switch len(passes) {
			case 4: // RequeueAfter is a success, too
				return reconcile.Result{RequeueAfter: time.Minute}, nil
			case 7:
				return reconcile.Result{}, nil
			}
			return reconcile.Result{RequeueAfter: time.Hour}, errors.New("an error is what counts")
		})
		w.start(w.mgr)
		began = time.Now()
		w.must(w.live.Create(w.Context(), replicaSet("web", 1)))
		w.pass(time.Hour)
		const ms = time.Millisecond
		want := []time.Duration{0, 5 * ms, 10 * ms, 20 * ms, time.Minute, 5 * ms, 10 * ms}
		if diff := cmp.Diff(want, passes); diff != "" {
			w.Errorf("times between passes (-want +got):\n%s", diff)
		}
	})
}

func TestPassEndsAtItsTimeout(t *testing.T) {
	inWorld(t, controller.ManagerOptions{}, func(w *world) {
		ends := make(chan error, 2)
		opts := controller.Options{ReconcileTimeout: 30 * time.Second}
		w.reconciles(opts, func(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
			if len(ends) == 1 {
				return reconcile.Result{}, nil
			}
			<-ctx.Done()
			ends <- ctx.Err()
			return reconcile.Result{}, ctx.Err()
		})
		w.start(w.mgr)
		w.must(w.live.Create(w.Context(), replicaSet("web", 1)))
		w.pass(30*time.Second - 1)
		if len(ends) != 0 {
			w.Error("the pass ended early")
		}
		w.pass(time.Minute)
		if n := len(ends); n != 1 {
			w.Fatalf("%d passes were ended, want 1", n)
		}
		if err := <-ends; !errors.Is(err, context.DeadlineExceeded) {
			w.Errorf("the pass ended with %v", err)
		}
		if n := len(w.mgr.Queues()[0].Keys); n != 0 {
			w.Errorf("%d keys are left after the pass that followed", n)
		}
	})
}

// TestKeysAreWorkedOnSideBySide has ten keys and three workers, and each key change while it is in work.
func TestKeysAreWorkedOnSideBySide(t *testing.T) {
	inWorld(t, controller.ManagerOptions{}, func(w *world) {
		begin, end := make(chan string), make(chan string)
		opts := controller.Options{MaxConcurrentReconciles: 3}
		w.reconciles(opts, func(_ context.Context, req reconcile.Request) (reconcile.Result, error) {
			begin <- req.Name
			<-time.After(time.Minute)
			end <- req.Name
			return reconcile.Result{}, nil
		})
		most, runs, working := 0, map[string]int{}, map[string]bool{}
		quit := make(chan struct{})
		counted := make(chan struct{})
		go func() {
			defer close(counted)
			for {
				select {
				case name := <-begin:
					if working[name] {
						w.Errorf("%s is worked on twice at once", name)
					}
					working[name] = true
					runs[name]++
					most = max(most, len(working))
				case name := <-end:
					delete(working, name)
				case <-quit:
					return
				}
			}
		}()
		stop := w.start(w.mgr)
		for i := range 10 {
			rs := replicaSet(fmt.Sprint("web-", i), 1)
			w.must(w.live.Create(w.Context(), rs))
			w.pass(time.Second)
			rs.Labels = map[string]string{"changed": "true"}
			w.must(w.live.Update(w.Context(), rs))
		}
		w.pass(time.Hour)
		w.must(stop())
		close(quit)
		<-counted
		if most != 3 || len(runs) != 10 {
			w.Errorf("%d keys at once, of %d, want 3 of 10", most, len(runs))
		}
		if runs["web-0"] != 2 {
			w.Errorf("the key that changed in work was worked on %d times, want 2", runs["web-0"])
		}
	})
}

// TestPredicatesDropEvents has one for the kind and one for all that is watched.
func TestPredicatesDropEvents(t *testing.T) {
	inWorld(t, controller.ManagerOptions{}, func(w *world) {
		runs := map[string]int{}
		named := func(name string) predicate.Predicate {
			return predicate.NewPredicateFuncs(func(o cr.Object) bool { return o.GetName() != name })
		}
		w.must(controller.ManagedBy(w.mgr).
			For(&appsv1.ReplicaSet{}, predicate.GenerationChangedPredicate{}, named("of-the-kind")).
			WithEventFilter(named("of-all")).
			Complete(reconcile.Func(func(_ context.Context, req reconcile.Request) (reconcile.Result, error) {
				runs[req.Name]++
				return reconcile.Result{}, nil
			})))
		w.start(w.mgr)
		for _, name := range []string{"web", "of-the-kind", "of-all"} {
			rs := replicaSet(name, 1)
			rs.Generation = 1
			w.must(w.live.Create(w.Context(), rs))
			rs.Labels = map[string]string{"changed": "true"}
			w.must(w.live.Update(w.Context(), rs))
			w.pass(time.Second)
		}
		if diff := cmp.Diff(map[string]int{"web": 1}, runs); diff != "" {
			w.Errorf("passes (-want +got):\n%s", diff)
		}
	})
}

func TestRunnableThatFailsEndsTheManager(t *testing.T) {
	inWorld(t, controller.ManagerOptions{}, func(w *world) {
		failure := errors.New("no room")
		ended := false
		w.must(w.mgr.Add(controller.RunnableFunc(func(context.Context) error {
			<-time.After(time.Minute)
			return failure
		})))
		w.must(w.mgr.Add(controller.RunnableFunc(func(ctx context.Context) error {
			<-ctx.Done()
			<-time.After(time.Second) // it takes its time to end
			ended = true
			return ctx.Err()
		})))
		if err := w.mgr.Start(w.Context()); !errors.Is(err, failure) || errors.Is(err, context.Canceled) || !ended {
			w.Errorf("the manager ended with %v, the other one has ended: %v", err, ended)
		}
	})
}

func TestConditionIsCurrentIfItIsTrueOfThisGeneration(t *testing.T) {
	rs := replicaSet("web", 1)
	rs.Generation = 2
	of := func(status metav1.ConditionStatus, generation int64) []metav1.Condition {
		return []metav1.Condition{{Type: "Ready", Status: status, ObservedGeneration: generation}}
	}
	for _, test := range []struct {
		conditions []metav1.Condition
		want       bool
	}{
		{of(metav1.ConditionTrue, 2), true},
		{of(metav1.ConditionTrue, 1), false},
		{of(metav1.ConditionFalse, 2), false},
		{of(metav1.ConditionUnknown, 2), false},
		{nil, false},
	} {
		if got := controller.IsCurrent(test.conditions, rs, "Ready"); got != test.want {
			t.Errorf("IsCurrent(%+v) = %v", test.conditions, got)
		}
	}
}
