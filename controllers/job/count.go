package job

import (
	"slices"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/setpoint-dev/setpoint/controllers/podfacts"
)

// verdict is what counting the pods that have ended says.
type verdict struct {
	// release are the pods whose end is in the status.
	release []*corev1.Pod
	// failure is why the Job has failed with one of its pods; no reason if it has not.
	failure failure
	// last is the last failed pod of each index that is to be tried again; it is not released yet.
	last map[int]*corev1.Pod
}

type failure struct{ reason, message string }

// count takes down in the status which pods have ended, and counts those that were taken down before and
// have lost their finalizer since.
func count(s snapshot, status *batchv1.JobStatus) verdict {
	settle(s.Pods, status)
	v := countIndexes(s, status)
	noted := noteOf(status)
	for _, pod := range s.Pods {
		if !hasFinalizer(pod) || v.last[indexOf(pod)] == pod {
			continue
		}
		good, bad := pod.Status.Phase == corev1.PodSucceeded, failed(pod, s.Job)
		if !good && !bad || len(noted.Succeeded)+len(noted.Failed)+len(v.release) >= uncountedMax {
			continue
		}
		v.release = append(v.release, pod)
		if slices.Contains(noted.Succeeded, pod.UID) || slices.Contains(noted.Failed, pod.UID) {
			continue
		}
		switch {
		case good && !indexed(s.Job):
			noted.Succeeded = append(noted.Succeeded, pod.UID)
		case bad && !ignored(s.Job, pod):
			noted.Failed = append(noted.Failed, pod.UID)
		}
	}
	return v
}

// countIndexes takes down which indexes are done and which have failed for good, and finds out whether the
// Job has failed with one of its pods.
func countIndexes(s snapshot, status *batchv1.JobStatus) (v verdict) {
	for _, pod := range s.Pods {
		if !hasFinalizer(pod) || !failed(pod, s.Job) || v.failure.reason != "" {
			continue
		}
		if rule, why := policyRule(s.Job.Spec.PodFailurePolicy, pod); rule != nil &&
			rule.Action == batchv1.PodFailurePolicyActionFailJob {
			v.failure = failure{batchv1.JobReasonPodFailurePolicy, why}
		}
	}
	if !indexed(s.Job) {
		return v
	}
	done := indexesOf(s.Job, status.CompletedIndexes)
	for _, pod := range s.Pods {
		index := ownIndex(s.Job, pod)
		if index != noIndex && hasFinalizer(pod) && pod.Status.Phase == corev1.PodSucceeded {
			done.add(index)
		}
	}
	status.CompletedIndexes = done.String()
	status.Succeeded = int32(done.size())
	if !perIndex(s.Job) {
		return v
	}
	lost := indexesOf(s.Job, ptr.Deref(status.FailedIndexes, ""))
	failIndexes(s, &lost)
	status.FailedIndexes = ptr.To(lost.String())
	if !conditionTrue(status, batchv1.JobFailureTarget) && !conditionTrue(status, batchv1.JobSuccessCriteriaMet) {
		v.last = lastFailures(s, done, lost)
	}
	return v
}

// ignored says whether the failure of a pod is not to count.
func ignored(job *batchv1.Job, pod *corev1.Pod) bool {
	rule, _ := policyRule(job.Spec.PodFailurePolicy, pod)
	return rule != nil && rule.Action == batchv1.PodFailurePolicyActionIgnore
}

// settle counts the pods that were taken down before and have no finalizer any more, gone ones included.
func settle(pods []*corev1.Pod, status *batchv1.JobStatus) {
	held := map[types.UID]bool{}
	for _, pod := range pods {
		if hasFinalizer(pod) {
			held[pod.UID] = true
		}
	}
	noted := noteOf(status)
	move := func(uids []types.UID, total *int32) []types.UID {
		return slices.DeleteFunc(uids, func(uid types.UID) bool {
			if !held[uid] {
				*total++
			}
			return !held[uid]
		})
	}
	noted.Succeeded = move(noted.Succeeded, &status.Succeeded)
	noted.Failed = move(noted.Failed, &status.Failed)
}

func noteOf(status *batchv1.JobStatus) *batchv1.UncountedTerminatedPods {
	if status.UncountedTerminatedPods == nil {
		status.UncountedTerminatedPods = &batchv1.UncountedTerminatedPods{}
	}
	return status.UncountedTerminatedPods
}

func uncountedSucceeded(status *batchv1.JobStatus) int { return len(noteOf(status).Succeeded) }

func uncountedFailed(status *batchv1.JobStatus) int { return len(noteOf(status).Failed) }

func uncounted(status *batchv1.JobStatus) bool {
	return uncountedSucceeded(status)+uncountedFailed(status) > 0
}

// failed says whether a pod counts as failed. One that was told to go does, unless the Job waits for it
// to have ended, which one that is on no node never will.
func failed(pod *corev1.Pod, job *batchv1.Job) bool {
	switch pod.Status.Phase {
	case corev1.PodFailed:
		return true
	case corev1.PodSucceeded:
		return false
	}
	waits := ptr.Deref(job.Spec.PodReplacementPolicy, "") == batchv1.Failed && pod.Spec.NodeName != ""
	return pod.DeletionTimestamp != nil && !waits
}

func hasFinalizer(pod *corev1.Pod) bool {
	return controllerutil.ContainsFinalizer(pod, batchv1.JobTrackingFinalizer)
}

// tracked returns the pods that have a finalizer to lose.
func tracked(pods []*corev1.Pod) []*corev1.Pod { return podfacts.Filter(pods, hasFinalizer) }
