package scheduler

import (
	"context"
	"maps"
	"reflect"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/setpoint-dev/setpoint/controller"
)

// Options are the settings of the scheduler. The zero value is a good default.
type Options struct {
	// Name is which pods are the scheduler's: those whose spec.schedulerName it is. Empty is
	// "default-scheduler".
	Name string
}

// bindingsMax is how many bindings are written at once. They share the store's syncs, so that many
// take about as long as one.
const bindingsMax = 64

// Setup adds the scheduler to the manager.
func Setup(mgr *controller.Manager, opts Options) error {
	name := opts.Name
	if name == "" {
		name = corev1.DefaultSchedulerName
	}
	r := newReconciler(mgr.GetClient(), mgr.GetAPIReader(), mgr.Clock(), mgr.GetEventRecorder(name), name)
	return controller.ManagedBy(mgr).Named("scheduler").
		Watches(&corev1.Pod{}, r.podEvents()).
		Watches(&corev1.Node{}, r.nodeEvents()).
		WithOptions(controller.Options{FieldOwner: name, MaxConcurrentReconciles: bindingsMax}).
		Complete(r)
}

type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]

// podEvents feeds the ledger, enqueues pods that need a place, and wakes those that wait when a
// place becomes free.
func (r *Reconciler) podEvents() handler.EventHandler {
	note := func(pod *corev1.Pod, q queue) {
		r.ledger.setPod(pod)
		if r.needsPlace(pod) {
			q.Add(reconcile.Request{NamespacedName: client.ObjectKeyFromObject(pod)})
		}
	}
	return handler.Funcs{
		CreateFunc: func(_ context.Context, e event.CreateEvent, q queue) {
			pod := e.Object.(*corev1.Pod)
			note(pod, q)
			if pod.Spec.NodeName != "" && hasLabels(pod) {
				r.wake(q) // somebody may have waited to be beside it
			}
		},
		UpdateFunc: func(_ context.Context, e event.UpdateEvent, q queue) {
			old, pod := e.ObjectOld.(*corev1.Pod), e.ObjectNew.(*corev1.Pod)
			if old.UID != pod.UID {
				r.ledger.dropPod(old.UID)
			}
			note(pod, q)
			placed := old.Spec.NodeName == "" && pod.Spec.NodeName != ""
			ended := !terminal(old) && terminal(pod)
			relabelled := pod.Spec.NodeName != "" && !maps.Equal(old.Labels, pod.Labels)
			if placed || ended || relabelled {
				r.wake(q)
			}
		},
		DeleteFunc: func(_ context.Context, e event.DeleteEvent, q queue) {
			pod := e.Object.(*corev1.Pod)
			r.ledger.dropPod(pod.UID)
			r.waiting.leave(client.ObjectKeyFromObject(pod))
			if pod.Spec.NodeName != "" {
				r.wake(q)
			}
		},
	}
}

func hasLabels(pod *corev1.Pod) bool { return len(pod.Labels) > 0 }

// nodeEvents feeds the ledger and wakes pods that wait when a node changes in what decides.
func (r *Reconciler) nodeEvents() handler.EventHandler {
	return handler.Funcs{
		CreateFunc: func(_ context.Context, e event.CreateEvent, q queue) {
			r.ledger.setNode(e.Object.(*corev1.Node))
			r.wake(q)
		},
		UpdateFunc: func(_ context.Context, e event.UpdateEvent, q queue) {
			old, node := e.ObjectOld.(*corev1.Node), e.ObjectNew.(*corev1.Node)
			r.ledger.setNode(node)
			if !maps.Equal(old.Labels, node.Labels) || !reflect.DeepEqual(old.Spec, node.Spec) ||
				!equality.Semantic.DeepEqual(old.Status.Allocatable, node.Status.Allocatable) {
				r.wake(q)
			}
		},
		DeleteFunc: func(_ context.Context, e event.DeleteEvent, q queue) {
			r.ledger.dropNode(e.Object.GetName())
		},
	}
}

// wake has every pod that waits looked at again, when its back-off allows it.
func (r *Reconciler) wake(q queue) {
	for _, req := range r.waiting.all() {
		q.Add(req)
	}
}
