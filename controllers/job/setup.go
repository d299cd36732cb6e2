package job

import (
	"context"
	"fmt"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/setpoint-dev/setpoint/controller"
	"github.com/setpoint-dev/setpoint/controllers/ownership"
)

// Options are the settings of the Job controller. The zero value is a good default.
type Options struct {
	// Workers is how many Jobs are worked on at once; zero is 5.
	Workers int
}

// Setup adds the Job controller to the manager.
func Setup(mgr *controller.Manager, opts Options) error {
	r := newReconciler(mgr.GetClient(), mgr.GetAPIReader(), mgr.Clock(), mgr.GetEventRecorder("job-controller"))
	if err := mgr.GetFieldIndexer().IndexField(context.Background(), &corev1.Pod{}, podsByController,
		ownership.ControllerUID); err != nil {
		return fmt.Errorf("index pods by controller: %w", err)
	}
	workers := opts.Workers
	if workers == 0 {
		workers = 5
	}
	return controller.ManagedBy(mgr).Named("job").
		For(&batchv1.Job{}).
		Owns(&corev1.Pod{}).
		Watches(&corev1.Pod{}, handler.EnqueueRequestsFromMapFunc(r.adopters)).
		WithOptions(controller.Options{MaxConcurrentReconciles: workers}).
		Complete(r)
}

// adopters returns the Jobs that may adopt a pod that has no controller.
func (r *Reconciler) adopters(ctx context.Context, pod client.Object) []reconcile.Request {
	if metav1.GetControllerOfNoCopy(pod) != nil || pod.GetDeletionTimestamp() != nil {
		return nil
	}
	var list batchv1.JobList
	if err := r.client.List(ctx, &list, client.InNamespace(pod.GetNamespace()), client.UnsafeDisableDeepCopy); err != nil {
		return nil
	}
	var requests []reconcile.Request
	for i := range list.Items {
		job := &list.Items[i]
		selector, err := metav1.LabelSelectorAsSelector(job.Spec.Selector)
		if err == nil && !selector.Empty() && selector.Matches(labels.Set(pod.GetLabels())) {
			requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(job)})
		}
	}
	return requests
}
