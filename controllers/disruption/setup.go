package disruption

import (
	"cmp"
	"context"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/setpoint-dev/setpoint/controller"
	"github.com/setpoint-dev/setpoint/kinds/budget"
)

// Options are the settings of the disruption controller. The zero value is a good default.
type Options struct {
	// Workers is how many budgets are worked on at once; zero is 5.
	Workers int
}

// name is the controller's in events and in the history of what it writes.
const name = "disruption-controller"

// Setup adds the disruption controller to the manager.
func Setup(mgr *controller.Manager, opts Options) error {
	from := mgr.GetClient()
	b := controller.ManagedBy(mgr).Named("disruption").
		For(&policyv1.PodDisruptionBudget{}).
		Watches(&corev1.Pod{}, handler.EnqueueRequestsFromMapFunc(covering(from))).
		WithOptions(controller.Options{FieldOwner: name, MaxConcurrentReconciles: cmp.Or(opts.Workers, 5)})
	for _, owner := range []client.Object{
		&appsv1.Deployment{}, &appsv1.ReplicaSet{}, &appsv1.StatefulSet{}, &corev1.ReplicationController{},
	} {
		b = b.Watches(owner, handler.EnqueueRequestsFromMapFunc(inNamespace(from)), scaled)
	}
	if err := b.Complete(newReconciler(from, mgr.Clock(), mgr.GetEventRecorder(name))); err != nil {
		return err
	}
	return controller.ManagedBy(mgr).Named("disruptionmarks").
		For(&corev1.Pod{}, marks).
		WithOptions(controller.Options{FieldOwner: name}).
		Complete(newMarkReconciler(from, mgr.Clock()))
}

// scaled lets an owner of pods through if what it wants may have changed.
var scaled predicate.Predicate = predicate.GenerationChangedPredicate{}

// covering returns what wakes the budgets that cover a pod.
func covering(from client.Reader) handler.MapFunc {
	return func(ctx context.Context, pod client.Object) []reconcile.Request {
		return budgets(ctx, from, pod.GetNamespace(), func(b *policyv1.PodDisruptionBudget) bool {
			return budget.Covers(b, labels.Set(pod.GetLabels()))
		})
	}
}

// inNamespace returns what wakes the budgets that are reckoned from what controllers want.
func inNamespace(from client.Reader) handler.MapFunc {
	return func(ctx context.Context, owner client.Object) []reconcile.Request {
		return budgets(ctx, from, owner.GetNamespace(), needsScale)
	}
}

func budgets(ctx context.Context, from client.Reader, namespace string,
	keep func(*policyv1.PodDisruptionBudget) bool,
) []reconcile.Request {
	var list policyv1.PodDisruptionBudgetList
	if from.List(ctx, &list, client.InNamespace(namespace), client.UnsafeDisableDeepCopy) != nil {
		return nil // each budget is looked at again at the next resync
	}
	var requests []reconcile.Request
	for i := range list.Items {
		if b := &list.Items[i]; keep(b) {
			requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(b)})
		}
	}
	return requests
}
