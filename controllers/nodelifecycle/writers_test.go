package nodelifecycle_test

import (
	"context"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/setpoint-dev/setpoint/controllers/nodelifecycle"
	"github.com/setpoint-dev/setpoint/controllers/podfacts"
)

// meanwhile has somebody else write to the status of an object just before the reconciler does.
func (f *fixture) meanwhile(obj client.Object, change func()) {
	f.c.Before = func(verb string, _ client.Object) (err error) {
		if verb != "status" {
			return nil
		}
		f.c.Before = nil
		if err := f.c.Get(context.Background(), client.ObjectKeyFromObject(obj), obj); err != nil {
			return err
		}
		change()
		return f.c.Status().Update(context.Background(), obj)
	}
}

func (f *fixture) read(obj client.Object) {
	f.t.Helper()
	if err := f.c.Get(context.Background(), client.ObjectKeyFromObject(obj), obj); err != nil {
		f.t.Fatal(err)
	}
}

// What an agent says of a pod meets the mark of its eviction: neither is lost, and neither has to wait.
func TestEvictionDoesNotMeetTheAgent(t *testing.T) {
	node, p := newNode(corev1.ConditionUnknown), pod("p", "n1")
	node.Spec.Taints = []corev1.Taint{taint(corev1.TaintNodeUnreachable, corev1.TaintEffectNoExecute, time.Minute)}
	p.Finalizers = []string{"test/keep"}
	f := newFixture(t, node, p)
	said := p.DeepCopy()
	f.meanwhile(said, func() { said.Status.Conditions[0].Status = corev1.ConditionFalse })
	r := nodelifecycle.NewPodReconciler(f.c, f.clock, events.NewFakeRecorder(10))
	request := reconcile.Request{NamespacedName: client.ObjectKeyFromObject(p)}
	if _, err := r.Reconcile(t.Context(), request); err != nil {
		t.Fatal(err)
	}
	f.read(p)
	if podfacts.Ready(p) || podfacts.Condition(p, corev1.DisruptionTarget) == nil || p.DeletionTimestamp == nil {
		t.Errorf("conditions are %v, deleted at %v; want what the agent said and the mark", p.Status.Conditions, p.DeletionTimestamp)
	}
}

// An agent that comes back in the very moment in which it is taken for lost is not overruled.
func TestLostNodeThatComesBackIsNotOverruled(t *testing.T) {
	f := newFixture(t, newNode(corev1.ConditionTrue), lease(start))
	f.pass()
	f.clock.Step(time.Minute)
	node := newNode("")
	f.meanwhile(node, func() { node.Status.Conditions[0].Reason = "back" })
	if _, err := f.r.Reconcile(t.Context(), nodeRequest); !apierrors.IsConflict(err) {
		t.Errorf("the pass returned %v, want a conflict", err)
	}
	f.read(node)
	if ready := node.Status.Conditions[0]; ready.Status != corev1.ConditionTrue || ready.Reason != "back" {
		t.Errorf("the node says %+v, want what its agent said", ready)
	}
}
