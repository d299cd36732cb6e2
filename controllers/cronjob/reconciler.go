package cronjob

import (
	"context"
	"errors"
	"fmt"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/setpoint-dev/setpoint/cache"
	"github.com/setpoint-dev/setpoint/controllers/podcontrol"
)

var kind = batchv1.SchemeGroupVersion.WithKind("CronJob")

// Reconciler keeps one CronJob's schedule. It may be called concurrently for different keys.
type Reconciler struct {
	client client.Client
	live   client.Reader // reads from the server what the cache does not have
	clock  clock.PassiveClock
	events events.EventRecorder
}

func newReconciler(c client.Client, live client.Reader, clk clock.PassiveClock, rec events.EventRecorder) *Reconciler {
	return &Reconciler{client: c, live: live, clock: clk, events: rec}
}

// Reconcile makes one pass over the CronJob that the request names.
func (r *Reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	cron := &batchv1.CronJob{}
	if err := r.client.Get(ctx, req.NamespacedName, cron); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	jobs, err := r.jobs(ctx, cron)
	if err != nil {
		return reconcile.Result{}, err
	}
	act := plan(snapshot{CronJob: cron, Jobs: jobs, Now: r.clock.Now()})
	failure := errors.Join(r.deleteAll(ctx, cron, act.Expire), r.deleteAll(ctx, cron, act.Replace))
	if act.Start != nil {
		failure = errors.Join(failure, r.start(ctx, cron, &act))
	}
	if err := r.writeStatus(ctx, cron, act.Status); err != nil {
		return reconcile.Result{}, errors.Join(failure, err)
	}
	for _, n := range act.Notes {
		r.events.Eventf(cron, nil, n.level, n.reason, "Reconcile", "%s", n.message)
	}
	return reconcile.Result{RequeueAfter: act.Wait}, failure
}

// jobs returns the Jobs that the CronJob controls. Those that its status names and the cache does not
// have are asked for at the server: a cache may not have heard of them yet.
func (r *Reconciler) jobs(ctx context.Context, cron *batchv1.CronJob) ([]*batchv1.Job, error) {
	var list batchv1.JobList
	err := r.client.List(ctx, &list, client.InNamespace(cron.Namespace),
		client.MatchingFields{cache.ControllerField: string(cron.UID)}, client.UnsafeDisableDeepCopy)
	if err != nil {
		return nil, err
	}
	jobs := make([]*batchv1.Job, len(list.Items))
	known := map[string]bool{}
	for i := range list.Items {
		jobs[i] = &list.Items[i]
		known[string(jobs[i].UID)] = true
	}
	for _, ref := range cron.Status.Active {
		if known[string(ref.UID)] {
			continue
		}
		job := &batchv1.Job{}
		err := r.live.Get(ctx, client.ObjectKey{Namespace: cron.Namespace, Name: ref.Name}, job)
		if client.IgnoreNotFound(err) != nil {
			return nil, fmt.Errorf("job %s: %w", ref.Name, err)
		}
		if err == nil && job.UID == ref.UID {
			jobs = append(jobs, job)
		}
	}
	return jobs, nil
}

// deleteAll deletes Jobs with their pods, and no namesakes that came after them.
func (r *Reconciler) deleteAll(ctx context.Context, cron *batchv1.CronJob, jobs []*batchv1.Job) error {
	var errs []error
	for _, job := range jobs {
		err := r.client.Delete(ctx, job.DeepCopy(), client.PropagationPolicy(metav1.DeletePropagationBackground),
			client.Preconditions{UID: &job.UID})
		switch {
		case err == nil:
			r.events.Eventf(cron, job, corev1.EventTypeNormal, "SuccessfulDelete", "Delete", "Deleted job %v", job.Name)
		case !apierrors.IsNotFound(err) && !apierrors.IsConflict(err):
			r.events.Eventf(cron, job, corev1.EventTypeWarning, "FailedDelete", "Delete", "Deleted job: %v", err)
			errs = append(errs, fmt.Errorf("delete job %s: %w", job.Name, err))
		}
	}
	return errors.Join(errs...)
}

// start starts the run of a plan and notes it in the plan's status. A run that has been started already
// is noted likewise.
func (r *Reconciler) start(ctx context.Context, cron *batchv1.CronJob, act *actions) error {
	job := act.Start
	due, _ := time.Parse(time.RFC3339, job.Annotations[batchv1.CronJobScheduledTimestampAnnotation])
	err := r.client.Create(ctx, job)
	switch {
	case podcontrol.NamespaceEnds(err):
		return nil
	case apierrors.IsAlreadyExists(err):
		found := &batchv1.Job{}
		if err := r.live.Get(ctx, client.ObjectKeyFromObject(job), found); err != nil {
			return err
		}
		if !metav1.IsControlledBy(found, cron) {
			act.note(corev1.EventTypeWarning, "FailedCreate", "Error creating job: job %s exists and belongs to "+
				"somebody else", job.Name)
			return nil // until the next run is due
		}
		job = found
	case err != nil:
		act.note(corev1.EventTypeWarning, "FailedCreate", "Error creating job: %v", err)
		return fmt.Errorf("create job %s: %w", job.Name, err)
	default:
		act.note(corev1.EventTypeNormal, "SuccessfulCreate", "Created job %v", job.Name)
	}
	if _, ended := outcome(job); !ended && !named(act.Status.Active, job.UID) {
		act.Status.Active = append(act.Status.Active, reference(job))
	}
	act.Status.LastScheduleTime = ptr.To(metav1.NewTime(due))
	return nil
}

func (r *Reconciler) writeStatus(ctx context.Context, cron *batchv1.CronJob, next batchv1.CronJobStatus) error {
	if equality.Semantic.DeepEqual(cron.Status, next) {
		return nil
	}
	cron.Status = next
	return client.IgnoreNotFound(r.client.Status().Update(ctx, cron))
}
