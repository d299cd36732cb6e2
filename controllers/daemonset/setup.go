package daemonset

import (
	"cmp"
	"context"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/setpoint-dev/setpoint/controller"
	"github.com/setpoint-dev/setpoint/controllers/ownership"
)

// Options are the settings of the DaemonSet controller. The zero value is a good default.
type Options struct {
	// Workers is how many DaemonSets are worked on at once; zero is 2.
	Workers int
}

// name is the controller's in events and in the history of what it writes.
const name = "daemonset-controller"

// Setup adds the DaemonSet controller to the manager.
func Setup(mgr *controller.Manager, opts Options) error {
	r := newReconciler(mgr.GetClient(), mgr.GetAPIReader(), mgr.Clock(), mgr.GetEventRecorder(name))
	return controller.ManagedBy(mgr).Named("daemonset").
		For(&appsv1.DaemonSet{}).
		Owns(&corev1.Pod{}).
		Watches(&corev1.Pod{}, handler.EnqueueRequestsFromMapFunc(adopters(mgr.GetClient()))).
		Watches(&corev1.Node{}, handler.EnqueueRequestsFromMapFunc(r.everySet), placementChanges).
		WithOptions(controller.Options{FieldOwner: name, MaxConcurrentReconciles: cmp.Or(opts.Workers, 2)}).
		Complete(r)
}

// placementChanges lets through what may change which sets a node is for.
var placementChanges = predicate.Funcs{
	UpdateFunc: func(e event.UpdateEvent) bool {
		was, wasNode := e.ObjectOld.(*corev1.Node)
		is, isNode := e.ObjectNew.(*corev1.Node)
		return !wasNode || !isNode || !equality.Semantic.DeepEqual(was.Labels, is.Labels) ||
			!equality.Semantic.DeepEqual(was.Spec.Taints, is.Spec.Taints)
	},
}

// everySet returns all DaemonSets: a node may be one for each of them.
func (r *Reconciler) everySet(ctx context.Context, _ client.Object) []reconcile.Request {
	var list appsv1.DaemonSetList
	if err := r.client.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		return nil
	}
	requests := make([]reconcile.Request, len(list.Items))
	for i := range list.Items {
		requests[i].NamespacedName = client.ObjectKeyFromObject(&list.Items[i])
	}
	return requests
}

// adopters wakes the sets that may adopt a pod that has no controller.
func adopters(from client.Reader) handler.MapFunc {
	return ownership.Adopters(from, func() client.ObjectList { return &appsv1.DaemonSetList{} },
		func(set *appsv1.DaemonSet) *metav1.LabelSelector { return set.Spec.Selector })
}
