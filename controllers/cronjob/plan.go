// Package cronjob starts the Jobs of each CronJob when its schedule says so.
//
// A pass looks for the last time that a run was due and has not been started, and starts it, late
// rather than never, unless it is later than the CronJob allows or the policy for runs at the same time
// forbids it; of several missed runs only the last is made up for. The name of a Job is made of the time
// at which it was due, so that a run which was started already, by a pass that could not take note of
// it, is not started again. Between passes the controller sleeps until the next run is due, to the
// moment, and a pass at another time changes nothing.
//
// Jobs that somebody made by hand from the CronJob's template are counted in the history, and not as
// runs.
package cronjob

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
)

// snapshot is what a pass decides on.
type snapshot struct {
	CronJob *batchv1.CronJob
	Jobs    []*batchv1.Job // that the CronJob controls, those that its status names among them
	Now     time.Time
}

// actions is what a pass does, in this order.
type actions struct {
	Expire  []*batchv1.Job // that have ended and are too many to be kept
	Replace []*batchv1.Job // that still run and have to make room
	Start   *batchv1.Job   // nil if no run is due
	// Status is what the status becomes; the Job to start is added to it when it has been started.
	Status batchv1.CronJobStatus
	// Notes are what somebody should hear, once the status is written.
	Notes []note
	// Wait is how long until the next run is due; zero means never.
	Wait time.Duration
}

// note is an event about the CronJob.
type note struct{ level, reason, message string }

func (a *actions) note(level, reason, format string, args ...any) {
	a.Notes = append(a.Notes, note{level, reason, fmt.Sprintf(format, args...)})
}

// plan decides one pass.
func plan(s snapshot) actions {
	act := actions{Status: *s.CronJob.Status.DeepCopy()}
	act.takeStock(s.Jobs)
	act.Expire = expired(s.CronJob, s.Jobs)
	if s.CronJob.DeletionTimestamp != nil || ptr.Deref(s.CronJob.Spec.Suspend, false) {
		return act
	}
	times, bad := scheduleOf(s.CronJob, s.Now.Location())
	if bad != nil {
		act.note(corev1.EventTypeWarning, bad.reason, "%s", bad.message)
		return act
	}
	if next := times.next(s.Now); !next.IsZero() {
		act.Wait = next.Sub(s.Now)
	}
	due, missed := times.due(notBefore(s), s.Now)
	if due.IsZero() {
		return act
	}
	if missed > missedMax {
		act.note(corev1.EventTypeWarning, "TooManyMissedTimes",
			"too many missed start times. Set or decrease .spec.startingDeadlineSeconds or check clock skew")
	}
	act.run(s, due)
	return act
}

// notBefore is the time that the first run to look for was due after: the last that was started, or
// when the CronJob came to be, but no more than the deadline ago.
func notBefore(s snapshot) time.Time {
	from := s.CronJob.CreationTimestamp.Time
	if last := s.CronJob.Status.LastScheduleTime; last != nil {
		from = last.Time
	}
	if seconds := s.CronJob.Spec.StartingDeadlineSeconds; seconds != nil {
		// A number of seconds that no duration holds is as good as no deadline.
		if age := int64(s.Now.Sub(from).Seconds()); *seconds < age {
			from = s.Now.Add(-time.Duration(*seconds) * time.Second)
		}
	}
	return from
}

// run starts the run that was due at a time, if it may.
func (a *actions) run(s snapshot, due time.Time) {
	name := runName(s.CronJob, due)
	if slices.ContainsFunc(s.Jobs, func(j *batchv1.Job) bool { return j.Name == name }) {
		a.Status.LastScheduleTime = ptr.To(metav1.NewTime(due)) // started, and not taken note of
		return
	}
	if len(a.Status.Active) > 0 {
		switch s.CronJob.Spec.ConcurrencyPolicy {
		case batchv1.ForbidConcurrent:
			a.note(corev1.EventTypeNormal, "JobAlreadyActive", "Not starting job because prior execution is "+
				"running and concurrency policy is Forbid")
			return
		case batchv1.ReplaceConcurrent:
			a.replace(s.Jobs)
		}
	}
	a.Start = newJob(s.CronJob, name, due)
}

// replace takes all Jobs that run out of the status, to be deleted.
func (a *actions) replace(jobs []*batchv1.Job) {
	for _, job := range jobs {
		if job.DeletionTimestamp == nil && named(a.Status.Active, job.UID) {
			a.Replace = append(a.Replace, job)
		}
	}
	a.Status.Active = nil
}

// takeStock brings the status to what has become of the Jobs: which of them run, and when the last
// succeeded.
func (a *actions) takeStock(jobs []*batchv1.Job) {
	byUID := map[types.UID]*batchv1.Job{}
	for _, job := range jobs {
		byUID[job.UID] = job
		kind, ended := outcome(job)
		if !ended && isRun(job) && job.DeletionTimestamp == nil && !named(a.Status.Active, job.UID) {
			a.Status.Active = append(a.Status.Active, reference(job))
		}
		at := job.Status.CompletionTime
		if kind == batchv1.JobComplete && at != nil &&
			(a.Status.LastSuccessfulTime == nil || a.Status.LastSuccessfulTime.Before(at)) {
			a.Status.LastSuccessfulTime = at
		}
	}
	a.Status.Active = slices.DeleteFunc(a.Status.Active, func(ref corev1.ObjectReference) bool {
		job := byUID[ref.UID]
		if job == nil {
			a.note(corev1.EventTypeNormal, "MissingJob", "Active job went missing: %v", ref.Name)
			return true
		}
		kind, ended := outcome(job)
		if ended {
			a.note(corev1.EventTypeNormal, "SawCompletedJob", "Saw completed job: %s, condition: %v", job.Name, kind)
		}
		return ended
	})
}

// expired returns the Jobs that have ended and are too many, the oldest first: so many of those that
// succeeded are kept, and so many of those that failed.
func expired(cron *batchv1.CronJob, jobs []*batchv1.Job) (out []*batchv1.Job) {
	for kind, keep := range map[batchv1.JobConditionType]*int32{
		batchv1.JobComplete: cron.Spec.SuccessfulJobsHistoryLimit,
		batchv1.JobFailed:   cron.Spec.FailedJobsHistoryLimit,
	} {
		if keep == nil {
			continue
		}
		var ended []*batchv1.Job
		for _, job := range jobs {
			if k, ok := outcome(job); ok && k == kind && job.DeletionTimestamp == nil {
				ended = append(ended, job)
			}
		}
		slices.SortFunc(ended, older)
		out = append(out, ended[:max(0, len(ended)-int(*keep))]...)
	}
	slices.SortFunc(out, older)
	return out
}

// older orders Jobs by when they started, or else came to be.
func older(a, b *batchv1.Job) int {
	return cmp.Or(began(a).Compare(began(b)), cmp.Compare(a.Name, b.Name))
}

func began(job *batchv1.Job) time.Time {
	if job.Status.StartTime != nil {
		return job.Status.StartTime.Time
	}
	return job.CreationTimestamp.Time
}

// outcome says how a Job has ended, if it has.
func outcome(job *batchv1.Job) (batchv1.JobConditionType, bool) {
	for _, c := range job.Status.Conditions {
		if (c.Type == batchv1.JobComplete || c.Type == batchv1.JobFailed) && c.Status == corev1.ConditionTrue {
			return c.Type, true
		}
	}
	return "", false
}

// isRun says whether a Job was started by schedule.
func isRun(job *batchv1.Job) bool {
	return job.Annotations[batchv1.CronJobScheduledTimestampAnnotation] != ""
}

func named(refs []corev1.ObjectReference, uid types.UID) bool {
	return slices.ContainsFunc(refs, func(r corev1.ObjectReference) bool { return r.UID == uid })
}

func reference(job *batchv1.Job) corev1.ObjectReference {
	return corev1.ObjectReference{
		APIVersion: batchv1.SchemeGroupVersion.String(), Kind: "Job",
		Namespace: job.Namespace, Name: job.Name, UID: job.UID, ResourceVersion: job.ResourceVersion,
	}
}

// runName is the name of the Job of the run that was due at a time: the CronJob's and the minute.
func runName(cron *batchv1.CronJob, due time.Time) string {
	return cron.Name + "-" + strconv.FormatInt(due.Unix()/60, 10)
}

func newJob(cron *batchv1.CronJob, name string, due time.Time) *batchv1.Job {
	template := cron.Spec.JobTemplate.DeepCopy()
	job := &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: cron.Namespace, Name: name, Labels: template.Labels, Annotations: template.Annotations,
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(cron, kind)},
		},
		Spec: template.Spec,
	}
	metav1.SetMetaDataAnnotation(&job.ObjectMeta, batchv1.CronJobScheduledTimestampAnnotation, due.Format(time.RFC3339))
	return job
}
