package endpoints

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

//lint:file-ignore SA1019 Endpoints are kept for those who still read them.

// Options are the settings of the Endpoints controllers. The zero value is a good default.
type Options struct {
	// Workers is how many Services each of them works on at once; zero is 5.
	Workers int
}

// name and mirrorName are the controllers' in events and in the history of what they write.
const (
	name       = "endpoint-controller"
	mirrorName = "endpointslicemirroring-controller"
)

// Setup adds the controllers of Endpoints to the manager: the one that writes and the one that mirrors.
func Setup(mgr *controller.Manager, opts Options) error {
	workers := cmp.Or(opts.Workers, 5)
	err := controller.ManagedBy(mgr).Named("endpoints").
		For(&corev1.Service{}).
		Watches(&corev1.Endpoints{}, handler.EnqueueRequestsFromMapFunc(namesake), written).
		Watches(&corev1.Pod{}, handler.EnqueueRequestsFromMapFunc(backends.Selecting(mgr.GetClient()))).
		WithOptions(controller.Options{FieldOwner: name, MaxConcurrentReconciles: workers}).
		Complete(newPublisher(mgr.GetClient(), mgr.GetAPIReader(), mgr.GetEventRecorder(name)))
	if err != nil {
		return err
	}
	return controller.ManagedBy(mgr).Named("endpointslicemirroring").
		For(&corev1.Endpoints{}).
		Watches(&corev1.Service{}, handler.EnqueueRequestsFromMapFunc(namesake)).
		Watches(&discoveryv1.EndpointSlice{}, handler.EnqueueRequestsFromMapFunc(sliceEndpoints)).
		WithOptions(controller.Options{FieldOwner: mirrorName, MaxConcurrentReconciles: workers}).
		Complete(newMirrorer(mgr.GetClient()))
}

// written lets through the Endpoints that the controller has written. Those of others concern it only
// when their Service goes, or has gone while nobody looked.
var written = predicate.Funcs{
	CreateFunc:  func(e event.CreateEvent) bool { return e.IsInInitialList || isWritten(e.Object) },
	UpdateFunc:  func(e event.UpdateEvent) bool { return isWritten(e.ObjectOld) || isWritten(e.ObjectNew) },
	DeleteFunc:  func(e event.DeleteEvent) bool { return isWritten(e.Object) },
	GenericFunc: func(e event.GenericEvent) bool { return isWritten(e.Object) },
}

func isWritten(o client.Object) bool { return o.GetLabels()[managedBy] == endpointController }

// namesake returns the key of the object itself: Endpoints are called like their Service.
func namesake(_ context.Context, o client.Object) []reconcile.Request {
	return []reconcile.Request{{NamespacedName: client.ObjectKeyFromObject(o)}}
}

// sliceEndpoints returns the Endpoints that a slice mirrors.
func sliceEndpoints(_ context.Context, slice client.Object) []reconcile.Request {
	labels := slice.GetLabels()
	if labels[discoveryv1.LabelServiceName] == "" || labels[discoveryv1.LabelManagedBy] != mirrorController {
		return nil
	}
	return []reconcile.Request{{NamespacedName: types.NamespacedName{
		Namespace: slice.GetNamespace(), Name: labels[discoveryv1.LabelServiceName],
	}}}
}
