package cronjob

import (
	"cmp"

	batchv1 "k8s.io/api/batch/v1"

	"github.com/setpoint-dev/setpoint/controller"
)

// Options are the settings of the CronJob controller. The zero value is a good default.
type Options struct {
	// Workers is how many CronJobs are worked on at once; zero is 5.
	Workers int
}

// name is the controller's in events and in the history of what it writes.
const name = "cronjob-controller"

// Setup adds the CronJob controller to the manager.
func Setup(mgr *controller.Manager, opts Options) error {
	r := newReconciler(mgr.GetClient(), mgr.GetAPIReader(), mgr.Clock(), mgr.GetEventRecorder(name))
	return controller.ManagedBy(mgr).Named("cronjob").
		For(&batchv1.CronJob{}).
		Owns(&batchv1.Job{}).
		WithOptions(controller.Options{FieldOwner: name, MaxConcurrentReconciles: cmp.Or(opts.Workers, 5)}).
		Complete(r)
}
