package replicaset

import (
	"context"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/setpoint-dev/setpoint/controller"
	"github.com/setpoint-dev/setpoint/controllers/ownership"
)

// Options are the settings of the ReplicaSet controller. The zero value is a good default.
type Options struct {
	// Workers is how many ReplicaSets are worked on at once; zero is 5.
	Workers int
}

// Setup adds the ReplicaSet controller to the manager.
func Setup(mgr *controller.Manager, opts Options) error {
	r := newReconciler(mgr.GetClient(), mgr.GetAPIReader(), mgr.Clock(),
		mgr.GetEventRecorder("replicaset-controller"))
	indexer := mgr.GetFieldIndexer()
	if err := indexer.IndexField(context.Background(), &corev1.Pod{}, podsByController,
		ownership.ControllerUID); err != nil {
		return fmt.Errorf("index pods by controller: %w", err)
	}
	if err := indexer.IndexField(context.Background(), &appsv1.ReplicaSet{}, setsByController,
		ownership.ControllerUID); err != nil {
		return fmt.Errorf("index replicasets by controller: %w", err)
	}
	workers := opts.Workers
	if workers == 0 {
		workers = 5
	}
	return controller.ManagedBy(mgr).Named("replicaset").
		For(&appsv1.ReplicaSet{}).
		Owns(&corev1.Pod{}).
		Watches(&corev1.Pod{}, handler.EnqueueRequestsFromMapFunc(r.adopters)).
		WithOptions(controller.Options{MaxConcurrentReconciles: workers}).
		Complete(r)
}

// adopters returns the sets that may adopt a pod that has no controller.
func (r *Reconciler) adopters(ctx context.Context, pod client.Object) []reconcile.Request {
	if metav1.GetControllerOfNoCopy(pod) != nil || pod.GetDeletionTimestamp() != nil {
		return nil
	}
	var list appsv1.ReplicaSetList
	if err := r.client.List(ctx, &list, client.InNamespace(pod.GetNamespace()),
		client.UnsafeDisableDeepCopy); err != nil {
		return nil
	}
	var requests []reconcile.Request
	for i := range list.Items {
		set := &list.Items[i]
		selector, err := metav1.LabelSelectorAsSelector(set.Spec.Selector)
		if err == nil && !selector.Empty() && selector.Matches(labels.Set(pod.GetLabels())) {
			requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(set)})
		}
	}
	return requests
}
