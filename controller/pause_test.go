package controller_test

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/setpoint-dev/setpoint/controller"
)

// counting is a controller of ReplicaSets that counts its passes.
func (w *world) counting(name string, options controller.Options) *int {
	w.Helper()
	runs := new(int)
	w.must(controller.ManagedBy(w.mgr).Named(name).
		For(&appsv1.ReplicaSet{}, predicate.GenerationChangedPredicate{}).
		WithOptions(options).
		Complete(reconcile.Func(func(context.Context, reconcile.Request) (reconcile.Result, error) {
			*runs++
			return reconcile.Result{}, nil
		})))
	return runs
}

// TestPausedObjectIsLeftAlone has the annotation come and go. The predicate lets changes of annotations
// through for nobody, and yet the object is worked on when it is resumed.
func TestPausedObjectIsLeftAlone(t *testing.T) {
	inWorld(t, controller.ManagerOptions{}, func(w *world) {
		obeys := w.counting("obeys", controller.Options{})
		ignores := w.counting("ignores", controller.Options{IgnorePause: true})
		w.start(w.mgr)
		expect := func(when string, want ...int) {
			w.Helper()
			w.pass(time.Second)
			if diff := cmp.Diff(want, []int{*obeys, *ignores}); diff != "" {
				w.Errorf("passes when %s (-want +got):\n%s", when, diff)
			}
		}
		rs := replicaSet("web", 1)
		rs.Annotations = map[string]string{controller.PausedAnnotation: "true"}
		w.must(w.live.Create(w.Context(), rs))
		expect("created paused", 0, 1)
		paused := w.mgr.Queues()[0].Paused
		if diff := cmp.Diff([]types.NamespacedName{keyOf("web").NamespacedName}, paused); diff != "" {
			w.Errorf("paused (-want +got):\n%s", diff)
		}
		rs.Generation = 2
		w.must(w.live.Update(w.Context(), rs))
		expect("changed while paused", 0, 2)
		rs.Annotations[controller.PausedAnnotation] = "false"
		w.must(w.live.Update(w.Context(), rs))
		expect("resumed", 1, 3)
		rs.Annotations[controller.PausedAnnotation] = ""
		rs.Generation = 3
		w.must(w.live.Update(w.Context(), rs))
		expect("paused again", 1, 4)
		w.must(w.live.Delete(w.Context(), rs))
		expect("deleted", 2, 5)
		if left := w.mgr.Queues()[0].Paused; len(left) != 0 {
			w.Errorf("still paused: %v", left)
		}
		want := []string{"Paused", "Paused", "Resumed"}
		if diff := cmp.Diff(want, w.reasons()); diff != "" {
			w.Errorf("events (-want +got):\n%s", diff)
		}
	})
}

// reasons are those of all events, in alphabetical order.
func (w *world) reasons() (reasons []string) {
	w.Helper()
	synctest.Wait()
	var events corev1.EventList
	w.must(w.live.List(w.Context(), &events))
	for _, e := range events.Items {
		for range e.Count {
			reasons = append(reasons, e.Reason)
		}
	}
	slices.Sort(reasons)
	return reasons
}

// TestPausedObjectIsDeletedAllTheSame asks what a paused object that is being deleted counts as.
func TestPausedObjectIsDeletedAllTheSame(t *testing.T) {
	rs := replicaSet("web", 1)
	rs.Annotations = map[string]string{controller.PausedAnnotation: "true"}
	if !controller.Paused(rs) {
		t.Error("it has the annotation and is not paused")
	}
	now := rs.CreationTimestamp
	rs.DeletionTimestamp = &now
	if controller.Paused(rs) {
		t.Error("it is being deleted, and paused")
	}
}
