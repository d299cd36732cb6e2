package endpointslice

import (
	"cmp"
	"context"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/setpoint-dev/setpoint/controller"
	"github.com/setpoint-dev/setpoint/controllers/backends"
)

// Options are the settings of the EndpointSlice controller. The zero value is a good default.
type Options struct {
	// Workers is how many Services are worked on at once; zero is 5.
	Workers int
}

// name is the controller's in the history of what it writes.
const name = "endpointslice-controller"

// Setup adds the EndpointSlice controller to the manager.
func Setup(mgr *controller.Manager, opts Options) error {
	r := newReconciler(mgr.GetClient())
	return controller.ManagedBy(mgr).Named("endpointslice").
		For(&corev1.Service{}).
		Watches(&discoveryv1.EndpointSlice{}, handler.EnqueueRequestsFromMapFunc(sliceService)).
		Watches(&corev1.Pod{}, handler.EnqueueRequestsFromMapFunc(backends.Selecting(mgr.GetClient()))).
		Watches(&corev1.Node{}, handler.EnqueueRequestsFromMapFunc(backends.WithSelector(mgr.GetClient())), zoneChanges).
		WithOptions(controller.Options{FieldOwner: name, MaxConcurrentReconciles: cmp.Or(opts.Workers, 5)}).
		Complete(r)
}

// zoneChanges lets a node through only if its zone is not what it was: nothing else of a node is
// published.
var zoneChanges = predicate.Funcs{
	CreateFunc: func(e event.CreateEvent) bool { return zone(e.Object) != "" },
	UpdateFunc: func(e event.UpdateEvent) bool { return zone(e.ObjectOld) != zone(e.ObjectNew) },
	DeleteFunc: func(e event.DeleteEvent) bool { return zone(e.Object) != "" },
}

func zone(node client.Object) string { return node.GetLabels()[corev1.LabelTopologyZone] }

// sliceService returns the Service that a slice of this manager is published for.
func sliceService(_ context.Context, slice client.Object) []reconcile.Request {
	name := slice.GetLabels()[discoveryv1.LabelServiceName]
	if name == "" || slice.GetLabels()[discoveryv1.LabelManagedBy] != managedBy {
		return nil
	}
	return []reconcile.Request{{NamespacedName: types.NamespacedName{Namespace: slice.GetNamespace(), Name: name}}}
}
