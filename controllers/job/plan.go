// Package job runs the pods of each Job to completion.
//
// A pass decides on the pods that the Job owns. Each pod that ends is counted exactly once, whoever
// deletes it and whenever the controller is restarted: a pod carries a finalizer until its end is in the
// status. First the status takes down the uid of a pod that has ended, then the pod loses its finalizer,
// and only when it has lost it is it counted and its uid forgotten. That is Kubernetes' protocol, with its
// names, so that other controllers and tools understand it.
package job

import (
	"cmp"
	"slices"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/setpoint-dev/setpoint/controllers/podfacts"
)

const (
	// burstMax bounds how many pods one pass creates, and how many ended ones it takes down, so that a
	// huge Job does not keep a worker and the server from everything else. They are Kubernetes' values.
	burstMax     = 500
	uncountedMax = 500

	// A Job whose pods fail replaces them after a pause that doubles with each failure in a row.
	pauseFirst = 10 * time.Second
	pauseMost  = 10 * time.Minute
)

// snapshot is what a pass decides on.
type snapshot struct {
	Job  *batchv1.Job
	Pods []*corev1.Pod // owned by the Job, whatever their state
	Now  time.Time
}

// actions is what a pass does, in this order: pods first, then the status, then finalizers.
type actions struct {
	Create []int // the indexes of the new pods; noIndex for a Job without
	// Tries is how often the indexes to create have failed, if there is a limit for each.
	Tries map[int]tries
	// Discard are pods that are too many: they are deleted and not counted.
	Discard []*corev1.Pod
	// Kill are the pods of a Job that has failed: they are deleted and count as failed.
	Kill []*corev1.Pod
	// Status is what the status becomes, before what Create and the rest did is in it.
	Status batchv1.JobStatus
	// Release are pods whose end the status has taken down: they lose their finalizer.
	Release []*corev1.Pod
	// Wait is how long until the pass should be made again, though nothing may have changed; zero means
	// never.
	Wait time.Duration
}

// noIndex is the index of a pod of a Job whose pods are all alike.
const noIndex = -1

// plan returns the difference between what is declared and what is.
func plan(s snapshot) actions {
	status := *s.Job.Status.DeepCopy()
	if finished(&status) || s.Job.DeletionTimestamp != nil {
		return actions{Status: status, Release: tracked(s.Pods)} // nothing is left to be counted
	}
	if !suspended(s.Job) && status.StartTime == nil {
		status.StartTime = timeOf(s.Now)
	}
	verdict := count(s, &status)
	active := activePods(s.Pods)
	terminating := podfacts.Filter(s.Pods, podfacts.Terminating)
	act := actions{Release: verdict.release}
	deadline, wait := pastDeadline(s.Job, &status, s.Now)
	act.Wait = wait

	lost, rule := indexesFailed(s.Job, &status), successRule(s.Job, &status)
	switch failure := verdict.failure; {
	case conditionTrue(&status, batchv1.JobSuccessCriteriaMet):
		act.Discard = active
	case conditionTrue(&status, batchv1.JobFailureTarget):
		act.Kill = active
	case failure.reason != "":
		fail(&status, failure.reason, failure.message, s.Now)
		act.Kill = active
	case deadline:
		fail(&status, batchv1.JobReasonDeadlineExceeded, "Job was active longer than specified deadline", s.Now)
		act.Kill = active
	case pastBackoff(s.Job, &status, s.Pods):
		fail(&status, batchv1.JobReasonBackoffLimitExceeded, "Job has reached the specified backoff limit", s.Now)
		act.Kill = active
	case lost.reason != "":
		fail(&status, lost.reason, lost.message, s.Now)
		act.Kill = active
	case rule != "":
		set(&status, batchv1.JobSuccessCriteriaMet, corev1.ConditionTrue, batchv1.JobReasonSuccessPolicy, rule, s.Now)
		act.Kill = active
	case succeeded(s.Job, &status, len(active)):
		set(&status, batchv1.JobSuccessCriteriaMet, corev1.ConditionTrue,
			batchv1.JobReasonCompletionsReached, "Reached expected number of succeeded pods", s.Now)
		act.Discard = active
	case suspended(s.Job):
		suspend(&status, s.Now)
		act.Discard = active
	default:
		resume(&status, s.Now)
		act.scale(s, &status, active, terminating, verdict.last)
	}

	left := len(active) - len(act.Kill) - len(act.Discard)
	status.Active = int32(left + len(act.Create))
	status.Ready = ptr.To(int32(len(podfacts.Filter(without(active, act.Kill, act.Discard), podfacts.Ready))))
	gone := len(terminating) + len(act.Kill) + len(act.Discard)
	status.Terminating = ptr.To(int32(gone))
	if gone == 0 && left == 0 && !uncounted(&status) && len(verdict.last) == 0 {
		finish(&status, s.Now)
	}
	act.Status = status
	return act
}

// scale creates what is missing and discards what is too much. last are the failed pods of indexes that
// are to be tried again.
func (a *actions) scale(s snapshot, status *batchv1.JobStatus, active, terminating []*corev1.Pod,
	last map[int]*corev1.Pod,
) {
	want := wanted(s.Job, status, len(active))
	have := len(active)
	if ptr.Deref(s.Job.Spec.PodReplacementPolicy, "") == batchv1.Failed {
		have += len(terminating)
	}
	if surplus := len(active) - want; surplus > 0 {
		a.Discard = leastUseful(active)[:surplus]
		return
	}
	missing := min(want-have, burstMax)
	if missing <= 0 {
		return
	}
	if pause := failurePause(s.Pods, s.Now); pause > 0 && !perIndex(s.Job) {
		a.Wait = podfacts.Sooner(a.Wait, pause)
		return
	}
	var wait time.Duration
	a.Create, wait = s.newIndexes(status, missing, last)
	a.Wait = podfacts.Sooner(a.Wait, wait)
	if !perIndex(s.Job) {
		return
	}
	a.Tries = map[int]tries{}
	for _, index := range a.Create {
		a.Tries[index] = tries{}
		if pod := last[index]; pod != nil {
			a.Tries[index] = triesAfter(s.Job, pod)
		}
	}
}

// wanted is how many pods should be active.
func wanted(job *batchv1.Job, status *batchv1.JobStatus, active int) int {
	parallel := int(ptr.Deref(job.Spec.Parallelism, 1))
	done := int(status.Succeeded) + uncountedSucceeded(status)
	switch {
	case job.Spec.Completions != nil:
		lost := indexesOf(job, ptr.Deref(status.FailedIndexes, "")).size()
		return min(parallel, int(*job.Spec.Completions)-done-lost)
	case done > 0:
		return min(parallel, active) // the work is done: those that still run may end
	}
	return parallel
}

// succeeded says whether enough pods have ended well. A Job that does not say how many are enough has
// succeeded with its first pod, once no other runs.
func succeeded(job *batchv1.Job, status *batchv1.JobStatus, active int) bool {
	done := int(status.Succeeded) + uncountedSucceeded(status)
	if job.Spec.Completions == nil {
		return done > 0 && active == 0
	}
	return done >= int(*job.Spec.Completions)
}

// pastDeadline says whether the Job has run for longer than it may, and if not, for how long it may.
func pastDeadline(job *batchv1.Job, status *batchv1.JobStatus, now time.Time) (bool, time.Duration) {
	if job.Spec.ActiveDeadlineSeconds == nil || status.StartTime == nil || suspended(job) {
		return false, 0
	}
	left := status.StartTime.Add(time.Duration(*job.Spec.ActiveDeadlineSeconds) * time.Second).Sub(now)
	return left <= 0, max(left, 0)
}

// pastBackoff says whether more pods have failed, or containers been restarted, than may.
func pastBackoff(job *batchv1.Job, status *batchv1.JobStatus, pods []*corev1.Pod) bool {
	most := int(ptr.Deref(job.Spec.BackoffLimit, 6))
	if int(status.Failed)+uncountedFailed(status) > most {
		return true
	}
	if job.Spec.Template.Spec.RestartPolicy != corev1.RestartPolicyOnFailure {
		return false
	}
	restarts := 0
	for _, pod := range pods {
		if pod.Status.Phase != corev1.PodRunning && pod.Status.Phase != corev1.PodPending {
			continue
		}
		for _, c := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
			restarts += int(c.RestartCount)
		}
	}
	if most == 0 {
		return restarts > 0
	}
	return restarts >= most
}

// failurePause returns how long to wait before failed pods are replaced: longer with each that has failed
// since the last that succeeded.
func failurePause(pods []*corev1.Pod, now time.Time) time.Duration {
	var good time.Time
	for _, pod := range pods {
		if end := endOf(pod); pod.Status.Phase == corev1.PodSucceeded && end.After(good) {
			good = end
		}
	}
	var last time.Time
	pause := pauseFirst / 2
	for _, pod := range pods {
		if end := endOf(pod); pod.Status.Phase == corev1.PodFailed && end.After(good) {
			pause = min(2*pause, pauseMost)
			if end.After(last) {
				last = end
			}
		}
	}
	if last.IsZero() {
		return 0
	}
	return max(last.Add(pause).Sub(now), 0)
}

// endOf is when a pod ended: when its last container did, or else when it came to be.
func endOf(pod *corev1.Pod) time.Time {
	var end time.Time
	for _, c := range pod.Status.ContainerStatuses {
		if t := c.State.Terminated; t != nil && t.FinishedAt.After(end) {
			end = t.FinishedAt.Time
		}
	}
	if end.IsZero() {
		return pod.CreationTimestamp.Time
	}
	return end
}

// leastUseful orders pods so that those come first that have got least far: not on a node, not running,
// not ready, young.
func leastUseful(pods []*corev1.Pod) []*corev1.Pod {
	rank := func(pod *corev1.Pod) int {
		switch {
		case pod.Spec.NodeName == "":
			return 0
		case pod.Status.Phase != corev1.PodRunning:
			return 1
		case !podfacts.Ready(pod):
			return 2
		}
		return 3
	}
	return slices.SortedFunc(slices.Values(pods), func(a, b *corev1.Pod) int {
		return cmp.Or(cmp.Compare(rank(a), rank(b)),
			b.CreationTimestamp.Compare(a.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
	})
}

func activePods(pods []*corev1.Pod) []*corev1.Pod { return podfacts.Filter(pods, podfacts.Active) }

// without returns the pods that are in none of some lists.
func without(pods []*corev1.Pod, lists ...[]*corev1.Pod) []*corev1.Pod {
	return podfacts.Filter(pods, func(pod *corev1.Pod) bool {
		for _, list := range lists {
			if slices.Contains(list, pod) {
				return false
			}
		}
		return true
	})
}
