package serviceaccount

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/setpoint-dev/setpoint/controller"
)

// Options are the settings of the service account controller.
type Options struct {
	// CA is the API server's certificate authority, in PEM; empty: no ConfigMap is kept.
	CA []byte
}

// name is the controller's in the history of what it writes.
const name = "serviceaccount-controller"

// Setup adds the service account controller to the manager.
func Setup(mgr *controller.Manager, opts Options) error {
	return controller.ManagedBy(mgr).Named("serviceaccount").
		For(&corev1.Namespace{}).
		Watches(&corev1.ServiceAccount{}, handler.EnqueueRequestsFromMapFunc(namespaceOf),
			named(accountName)).
		Watches(&corev1.ConfigMap{}, handler.EnqueueRequestsFromMapFunc(namespaceOf),
			named(RootCAName)).
		WithOptions(controller.Options{FieldOwner: name}).
		Complete(newReconciler(mgr.GetClient(), opts.CA))
}

func namespaceOf(_ context.Context, object client.Object) []reconcile.Request {
	return []reconcile.Request{{NamespacedName: types.NamespacedName{Name: object.GetNamespace()}}}
}

// named lets only objects of the name through: a namespace is provided with nothing else.
func named(name string) predicate.Predicate {
	return predicate.NewPredicateFuncs(func(object client.Object) bool { return object.GetName() == name })
}
