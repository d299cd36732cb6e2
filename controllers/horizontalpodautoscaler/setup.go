package horizontalpodautoscaler

import (
	"cmp"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"github.com/setpoint-dev/setpoint/controller"
)

// Options are the settings of the autoscaler. The zero value is a good default.
type Options struct {
	// Workers is how many autoscalers are worked on at once; zero is 5.
	Workers int
}

// name is the controller's in events and in the history of what it writes.
const name = "horizontal-pod-autoscaler"

// Setup adds the autoscaler to the manager. What it writes itself does not wake it.
func Setup(mgr *controller.Manager, opts Options) error {
	r := newReconciler(mgr.GetClient(), mgr.GetAPIReader(), mgr.Clock(), mgr.GetEventRecorder(name))
	return controller.ManagedBy(mgr).Named("horizontalpodautoscaler").
		For(&autoscalingv2.HorizontalPodAutoscaler{}, predicate.GenerationChangedPredicate{}).
		WithOptions(controller.Options{FieldOwner: name, MaxConcurrentReconciles: cmp.Or(opts.Workers, 5)}).
		Complete(r)
}
