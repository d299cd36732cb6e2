package daemonset

import (
	"context"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/setpoint-dev/setpoint/controller"
	"github.com/setpoint-dev/setpoint/controllers/ownership"
)

// Options are the settings of the DaemonSet controller. The zero value is a good default.
type Options struct {
	// Workers is how many DaemonSets are worked on at once; zero is 2.
	Workers int
}

// Setup adds the DaemonSet controller to the manager.
func Setup(mgr *controller.Manager, opts Options) error {
	r := newReconciler(mgr.GetClient(), mgr.GetAPIReader(), mgr.Clock(), mgr.GetEventRecorder("daemonset-controller"))
	if err := mgr.GetFieldIndexer().IndexField(context.Background(), &corev1.Pod{}, podsByController,
		ownership.ControllerUID); err != nil {
		return fmt.Errorf("index pods by controller: %w", err)
	}
	workers := opts.Workers
	if workers == 0 {
		workers = 2
	}
	return controller.ManagedBy(mgr).Named("daemonset").
		For(&appsv1.DaemonSet{}).
		Owns(&corev1.Pod{}).
		Watches(&corev1.Pod{}, handler.EnqueueRequestsFromMapFunc(r.adopters)).
		Watches(&corev1.Node{}, handler.EnqueueRequestsFromMapFunc(r.everySet), placementChanges).
		WithOptions(controller.Options{MaxConcurrentReconciles: workers}).
		Complete(r)
}

// placementChanges lets through what may change which sets a node is for.
var placementChanges = predicate.Funcs{
	UpdateFunc: func(e event.UpdateEvent) bool {
		was, wasNode := e.ObjectOld.(*corev1.Node)
		is, isNode := e.ObjectNew.(*corev1.Node)
		return !wasNode || !isNode || !equality.Semantic.DeepEqual(was.Labels, is.Labels) ||
			!equality.Semantic.DeepEqual(was.Spec.Taints, is.Spec.Taints)
	},
}

// everySet returns all DaemonSets: a node may be one for each of them.
func (r *Reconciler) everySet(ctx context.Context, _ client.Object) []reconcile.Request {
	return r.requests(ctx, func(*appsv1.DaemonSet) bool { return true })
}

// adopters returns the sets that may adopt a pod that has no controller.
func (r *Reconciler) adopters(ctx context.Context, pod client.Object) []reconcile.Request {
	if metav1.GetControllerOfNoCopy(pod) != nil || pod.GetDeletionTimestamp() != nil {
		return nil
	}
	return r.requests(ctx, func(set *appsv1.DaemonSet) bool {
		selector, err := metav1.LabelSelectorAsSelector(set.Spec.Selector)
		return err == nil && !selector.Empty() && selector.Matches(labels.Set(pod.GetLabels()))
	}, client.InNamespace(pod.GetNamespace()))
}

func (r *Reconciler) requests(ctx context.Context, choose func(*appsv1.DaemonSet) bool, opts ...client.ListOption) []reconcile.Request {
	var list appsv1.DaemonSetList
	if err := r.client.List(ctx, &list, append(opts, client.UnsafeDisableDeepCopy)...); err != nil {
		return nil
	}
	var requests []reconcile.Request
	for i := range list.Items {
		if set := &list.Items[i]; choose(set) {
			requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(set)})
		}
	}
	return requests
}
