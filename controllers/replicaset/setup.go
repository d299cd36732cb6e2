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
	// Workers is how many objects each controller works on at once; zero is 5.
	Workers int
}

// name and oldName are the controllers' in events and in the history of what they write.
const (
	name    = "replicaset-controller"
	oldName = "replication-controller"
)

// Setup adds the ReplicaSet controller to the manager.
func Setup(mgr *controller.Manager, opts Options) error {
	adopters := ownership.Adopters(mgr.GetClient(), func() client.ObjectList { return &appsv1.ReplicaSetList{} },
		func(set *appsv1.ReplicaSet) *metav1.LabelSelector { return set.Spec.Selector })
	return setup(mgr, opts, "replicaset", name, emptySet, adopters)
}

// SetupReplicationController adds the controller of ReplicationControllers to the manager. It is the
// same as that of ReplicaSets, for another kind.
func SetupReplicationController(mgr *controller.Manager, opts Options) error {
	adopters := ownership.Adopters(mgr.GetClient(), func() client.ObjectList { return &corev1.ReplicationControllerList{} },
		controllerSelector)
	return setup(mgr, opts, "replicationcontroller", oldName, emptyController, adopters)
}

func setup(mgr *controller.Manager, opts Options, loop, owner string, empty func() subject,
	adopters handler.MapFunc,
) error {
	r := newReconciler(mgr.GetClient(), mgr.GetAPIReader(), mgr.Clock(), mgr.GetEventRecorder(owner), empty)
	return controller.ManagedBy(mgr).Named(loop).
		For(empty().object()).
		Owns(&corev1.Pod{}).
		Watches(&corev1.Pod{}, handler.EnqueueRequestsFromMapFunc(adopters)).
		WithOptions(controller.Options{FieldOwner: owner, MaxConcurrentReconciles: cmp.Or(opts.Workers, 5)}).
		Complete(r)
}
