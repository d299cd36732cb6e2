package deployment

import (
	"cmp"
	"context"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/setpoint-dev/setpoint/controller"
	"github.com/setpoint-dev/setpoint/controllers/ownership"
)

// Options are the settings of the Deployment controller. The zero value is a good default.
type Options struct {
	// Workers is how many Deployments are worked on at once; zero is 5.
	Workers int
}

// name is the controller's in events and in the history of what it writes.
const name = "deployment-controller"

// Setup adds the Deployment controller to the manager.
func Setup(mgr *controller.Manager, opts Options) error {
	r := newReconciler(mgr.GetClient(), mgr.GetAPIReader(), mgr.Clock(),
		mgr.GetEventRecorder(name))
	return controller.ManagedBy(mgr).Named("deployment").
		For(&appsv1.Deployment{}).
		Owns(&appsv1.ReplicaSet{}).
		Watches(&appsv1.ReplicaSet{}, handler.EnqueueRequestsFromMapFunc(adopters(mgr.GetClient()))).
		Watches(&corev1.Pod{}, handler.EnqueueRequestsFromMapFunc(r.recreates), deletions).
		WithOptions(controller.Options{FieldOwner: name, MaxConcurrentReconciles: cmp.Or(opts.Workers, 5)}).
		Complete(r)
}

// deletions lets only the end of a pod through: it is what a Recreate rollout waits for. All else
// about pods reaches a deployment through its sets.
var deletions = predicate.Funcs{
	CreateFunc:  func(event.CreateEvent) bool { return false },
	UpdateFunc:  func(event.UpdateEvent) bool { return false },
	GenericFunc: func(event.GenericEvent) bool { return false },
}

// adopters wakes the deployments that may adopt a set that has no controller.
func adopters(from client.Reader) handler.MapFunc {
	return ownership.Adopters(from, func() client.ObjectList { return &appsv1.DeploymentList{} },
		func(d *appsv1.Deployment) *metav1.LabelSelector { return d.Spec.Selector })
}

// recreates returns the deployment whose set owns the pod, if it waits for old pods to end.
func (r *Reconciler) recreates(ctx context.Context, pod client.Object) []reconcile.Request {
	ref := metav1.GetControllerOfNoCopy(pod)
	if ref == nil || ref.Kind != "ReplicaSet" {
		return nil
	}
	set := &appsv1.ReplicaSet{}
	if err := r.client.Get(ctx, types.NamespacedName{Namespace: pod.GetNamespace(), Name: ref.Name},
		set); err != nil || set.UID != ref.UID {
		return nil
	}
	owner := metav1.GetControllerOfNoCopy(set)
	if owner == nil || owner.Kind != kind.Kind {
		return nil
	}
	key := types.NamespacedName{Namespace: pod.GetNamespace(), Name: owner.Name}
	d := &appsv1.Deployment{}
	if err := r.client.Get(ctx, key, d); err != nil || d.Spec.Strategy.Type != appsv1.RecreateDeploymentStrategyType {
		return nil
	}
	return []reconcile.Request{{NamespacedName: key}}
}
