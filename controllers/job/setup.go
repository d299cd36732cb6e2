package job

import (
	"cmp"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"

	"github.com/setpoint-dev/setpoint/controller"
	"github.com/setpoint-dev/setpoint/controllers/ownership"
)

// Options are the settings of the Job controller. The zero value is a good default.
type Options struct {
	// Workers is how many Jobs are worked on at once; zero is 5.
	Workers int
}

// name is the controller's in events and in the history of what it writes.
const name = "job-controller"

// Setup adds the Job controller to the manager.
func Setup(mgr *controller.Manager, opts Options) error {
	r := newReconciler(mgr.GetClient(), mgr.GetAPIReader(), mgr.Clock(), mgr.GetEventRecorder(name))
	return controller.ManagedBy(mgr).Named("job").
		For(&batchv1.Job{}).
		Owns(&corev1.Pod{}).
		Watches(&corev1.Pod{}, handler.EnqueueRequestsFromMapFunc(adopters(mgr.GetClient()))).
		WithOptions(controller.Options{FieldOwner: name, MaxConcurrentReconciles: cmp.Or(opts.Workers, 5)}).
		Complete(r)
}

// adopters wakes the Jobs that may adopt a pod that has no controller.
func adopters(from client.Reader) handler.MapFunc {
	return ownership.Adopters(from, func() client.ObjectList { return &batchv1.JobList{} },
		func(job *batchv1.Job) *metav1.LabelSelector { return job.Spec.Selector })
}
