package replicaset

import (
	"cmp"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"

	"github.com/setpoint-dev/setpoint/controller"
	"github.com/setpoint-dev/setpoint/controllers/ownership"
)

// Options are the settings of the ReplicaSet controller. The zero value is a good default.
type Options struct {
	// Workers is how many ReplicaSets are worked on at once; zero is 5.
	Workers int
}

// name is the controller's in events and in the history of what it writes.
const name = "replicaset-controller"

// Setup adds the ReplicaSet controller to the manager.
func Setup(mgr *controller.Manager, opts Options) error {
	r := newReconciler(mgr.GetClient(), mgr.GetAPIReader(), mgr.Clock(),
		mgr.GetEventRecorder(name))
	return controller.ManagedBy(mgr).Named("replicaset").
		For(&appsv1.ReplicaSet{}).
		Owns(&corev1.Pod{}).
		Watches(&corev1.Pod{}, handler.EnqueueRequestsFromMapFunc(adopters(mgr.GetClient()))).
		WithOptions(controller.Options{FieldOwner: name, MaxConcurrentReconciles: cmp.Or(opts.Workers, 5)}).
		Complete(r)
}

// adopters wakes the sets that may adopt a pod that has no controller.
func adopters(from client.Reader) handler.MapFunc {
	return ownership.Adopters(from, func() client.ObjectList { return &appsv1.ReplicaSetList{} },
		func(set *appsv1.ReplicaSet) *metav1.LabelSelector { return set.Spec.Selector })
}
