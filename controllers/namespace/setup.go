package namespace

import (
	"cmp"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"github.com/setpoint-dev/setpoint/controller"
)

// Options are the settings of the namespace controller. The zero value is a good default.
type Options struct {
	// Workers is how many namespaces are emptied at once; zero is 10.
	Workers int
}

// name is the controller's in the history of what it writes.
const name = "namespace-controller"

// Setup adds the namespace controller to the manager.
func Setup(mgr *controller.Manager, opts Options) error {
	cfg := rest.CopyConfig(mgr.GetConfig())
	cfg.QPS = -1 // the workers bound what is asked at once
	disco, err := discovery.NewDiscoveryClientForConfig(cfg)
	if err != nil {
		return fmt.Errorf("discovery client: %w", err)
	}
	meta, err := metadata.NewForConfig(cfg)
	if err != nil {
		return fmt.Errorf("metadata client: %w", err)
	}
	return controller.ManagedBy(mgr).Named("namespace").
		For(&corev1.Namespace{}, deleting).
		WithOptions(controller.Options{FieldOwner: name, MaxConcurrentReconciles: cmp.Or(opts.Workers, 10)}).
		Complete(newReconciler(mgr.GetClient(), meta, disco, mgr.Clock()))
}

// deleting lets only namespaces through that are being deleted: there is nothing to do for others.
var deleting = predicate.NewPredicateFuncs(func(ns client.Object) bool { return ns.GetDeletionTimestamp() != nil })
