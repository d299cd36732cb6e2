package controller_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	cr "sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/setpoint-dev/setpoint/controller"
)

// TestControllerThatWakesItselfIsNamed writes the number of the pass into the object, again and again.
func TestControllerThatWakesItselfIsNamed(t *testing.T) {
	registry := prometheus.NewPedanticRegistry()
	inWorld(t, controller.ManagerOptions{Metrics: registry}, func(w *world) {
		passes := 0
		c := w.mgr.GetClient()
		w.must(controller.ManagedBy(w.mgr).For(&appsv1.ReplicaSet{}).
			Complete(reconcile.Func(func(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
				var rs appsv1.ReplicaSet
				if err := c.Get(ctx, req.NamespacedName, &rs); err != nil || passes == 30 {
					return reconcile.Result{}, cr.IgnoreNotFound(err)
				}
				passes++
				rs.Annotations = map[string]string{"passes": fmt.Sprint(passes)}
				return reconcile.Result{}, c.Update(ctx, &rs)
			})))
		w.start(w.mgr)
		w.must(w.live.Create(w.Context(), replicaSet("web", 1)))
		w.pass(time.Minute)
		if !slices.Contains(w.reasons(), "HotLoop") {
			w.Errorf("%d passes woke themselves, and nobody was told; events: %v", passes, w.reasons())
		}
		if text := expose(w, registry); !strings.Contains(text, `setpoint_controller_hot_loops_total{controller="replicaset"} 1`+"\n") {
			w.Errorf("metrics don't count it:\n%s", text)
		}
	})
}

// TestRollOutIsNoHotLoop has a controller make a hundred pods one by one, each pass writing.
func TestRollOutIsNoHotLoop(t *testing.T) {
	inWorld(t, controller.ManagerOptions{}, func(w *world) {
		c := w.mgr.GetClient()
		w.must(controller.ManagedBy(w.mgr).For(&appsv1.ReplicaSet{}).Owns(&corev1.Pod{}).
			Complete(reconcile.Func(func(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
				var rs appsv1.ReplicaSet
				if err := c.Get(ctx, req.NamespacedName, &rs); err != nil || rs.Status.Replicas == 100 {
					return reconcile.Result{}, cr.IgnoreNotFound(err)
				}
				pod := &corev1.Pod{}
				pod.Namespace, pod.Name = rs.Namespace, fmt.Sprint("p", rs.Status.Replicas)
				pod.OwnerReferences = ownedBy(&rs)
				if err := c.Create(ctx, pod); err != nil {
					return reconcile.Result{}, err
				}
				rs.Status.Replicas++
				return reconcile.Result{}, c.Status().Update(ctx, &rs)
			})))
		w.start(w.mgr)
		w.must(w.live.Create(w.Context(), replicaSet("web", 1)))
		w.pass(time.Minute)
		w.wantPods(100)
		if reasons := w.reasons(); len(reasons) != 0 {
			w.Errorf("events: %v", reasons)
		}
	})
}

func TestFieldsThatAreWatchedAreBounded(t *testing.T) {
	var f controller.Fights
	at := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	for n := range 10_000 {
		f.Step(at.Add(time.Duration(n)*time.Second), types.UID(fmt.Sprint(n)), controller.Takeover{Path: ".spec", From: "a", To: "b"})
	}
	if n := f.Len(); n > 1024 {
		t.Errorf("%d fields are remembered, want 1024 at most", n)
	}
}

// TestFightIsAFieldThatGoesBackAndForth counts turns.
func TestFightIsAFieldThatGoesBackAndForth(t *testing.T) {
	at := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	type move struct {
		after    time.Duration
		from, to string
		want     int
	}
	for name, moves := range map[string][]move{
		"back and forth":    {{0, "a", "b", 1}, {0, "b", "a", 2}, {29 * time.Second, "a", "b", 3}},
		"handed on":         {{0, "a", "b", 1}, {0, "b", "c", 1}, {0, "c", "a", 1}},
		"from a third":      {{0, "a", "b", 1}, {0, "b", "a", 2}, {0, "c", "b", 1}},
		"after a long time": {{0, "a", "b", 1}, {31 * time.Second, "b", "a", 1}, {0, "a", "b", 2}},
	} {
		var f controller.Fights
		now := at
		for i, m := range moves {
			now = now.Add(m.after)
			if n := f.Step(now, "u", controller.Takeover{Path: ".x", From: m.from, To: m.to}); n != m.want {
				t.Errorf("%s: move %d is turn %d, want %d", name, i, n, m.want)
			}
		}
	}
}
