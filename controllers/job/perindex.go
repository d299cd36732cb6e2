package job

import (
	"fmt"
	"strconv"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/setpoint-dev/setpoint/controllers/podfacts"
)

// A Job may say how often each of its indexes may fail. How often one has is written on its pods: each
// that replaces another carries the failures before it. So that this is not lost, the last failed pod of
// an index that is to be tried again keeps its finalizer, and is not counted, until the next has been made.

// tries is how often an index has failed: the failures that count towards its limit, and others, which
// only make the pause longer.
type tries struct{ counted, ignored int }

func perIndex(job *batchv1.Job) bool { return indexed(job) && job.Spec.BackoffLimitPerIndex != nil }

// triesBefore reads how often the index had failed when a pod was made.
func triesBefore(pod *corev1.Pod) tries {
	read := func(key string) int {
		n, err := strconv.Atoi(pod.Annotations[key])
		if err != nil {
			return 0
		}
		return max(n, 0)
	}
	return tries{read(batchv1.JobIndexFailureCountAnnotation), read(batchv1.JobIndexIgnoredFailureCountAnnotation)}
}

// write has a new pod say how often its index has failed.
func (n tries) write(pod *corev1.Pod) {
	metav1.SetMetaDataAnnotation(&pod.ObjectMeta, batchv1.JobIndexFailureCountAnnotation, strconv.Itoa(n.counted))
	if n.ignored > 0 {
		metav1.SetMetaDataAnnotation(&pod.ObjectMeta, batchv1.JobIndexIgnoredFailureCountAnnotation, strconv.Itoa(n.ignored))
	}
}

// triesAfter says how often the index has failed when a pod has.
func triesAfter(job *batchv1.Job, pod *corev1.Pod) tries {
	n := triesBefore(pod)
	if ignored(job, pod) {
		n.ignored++
	} else {
		n.counted++
	}
	return n
}

// ownIndex is the index of a pod; noIndex if the Job has no such index, or none any more.
func ownIndex(job *batchv1.Job, pod *corev1.Pod) int {
	if index := indexOf(pod); index < int(ptr.Deref(job.Spec.Completions, 0)) {
		return index
	}
	return noIndex
}

// failIndexes adds to the failed indexes those whose pods have failed once too often, or in a way that
// gives up the index.
func failIndexes(s snapshot, failedIndexes *spans) {
	for _, pod := range s.Pods {
		index := ownIndex(s.Job, pod)
		if index == noIndex || !hasFinalizer(pod) || !failed(pod, s.Job) {
			continue
		}
		rule, _ := policyRule(s.Job.Spec.PodFailurePolicy, pod)
		givesUp := rule != nil && rule.Action == batchv1.PodFailurePolicyActionFailIndex
		if givesUp || !ignored(s.Job, pod) && triesAfter(s.Job, pod).counted > int(*s.Job.Spec.BackoffLimitPerIndex) {
			failedIndexes.add(index)
		}
	}
}

// lastFailures returns the last failed pod of each index that is to be tried again.
func lastFailures(s snapshot, done, failedIndexes spans) map[int]*corev1.Pod {
	active := map[int]bool{}
	for _, pod := range s.Pods {
		active[indexOf(pod)] = active[indexOf(pod)] || podfacts.Active(pod)
	}
	last := map[int]*corev1.Pod{}
	for _, pod := range s.Pods {
		index := ownIndex(s.Job, pod)
		if index == noIndex || active[index] || done.has(index) || failedIndexes.has(index) || !failed(pod, s.Job) {
			continue
		}
		if old := last[index]; old == nil || later(s.Job, pod, old) {
			last[index] = pod
		}
	}
	return last
}

// later says whether a failed pod of an index came after another.
func later(job *batchv1.Job, pod, other *corev1.Pod) bool {
	a, b := triesAfter(job, pod), triesAfter(job, other)
	if a, b := a.counted+a.ignored, b.counted+b.ignored; a != b {
		return a > b
	}
	return endOf(pod).After(endOf(other))
}

// indexPause is how long to wait before an index is tried again: longer with each failure.
func indexPause(job *batchv1.Job, last *corev1.Pod, now time.Time) time.Duration {
	n := triesAfter(job, last)
	pause := pauseMost
	if shift := n.counted + n.ignored - 1; shift < 6 { // 10 s << 6 is more than the most
		pause = pauseFirst << shift
	}
	return max(endOf(last).Add(pause).Sub(now), 0)
}

// indexesFailed says why a Job has failed with its indexes; no reason if it has not.
func indexesFailed(job *batchv1.Job, status *batchv1.JobStatus) failure {
	if !perIndex(job) {
		return failure{}
	}
	n := indexesOf(job, ptr.Deref(status.FailedIndexes, "")).size()
	switch most := job.Spec.MaxFailedIndexes; {
	case most != nil && n > int(*most):
		return failure{batchv1.JobReasonMaxFailedIndexesExceeded, "Job has exceeded the specified maximal number of failed indexes"}
	case n > 0 && n+int(status.Succeeded) >= int(*job.Spec.Completions):
		return failure{batchv1.JobReasonFailedIndexes, "Job has failed indexes"}
	}
	return failure{}
}

// successRule says which rule of a Job's success policy is met, as the message of a condition; "" if none is.
func successRule(job *batchv1.Job, status *batchv1.JobStatus) string {
	if job.Spec.SuccessPolicy == nil || !indexed(job) {
		return ""
	}
	done := indexesOf(job, status.CompletedIndexes)
	for i, rule := range job.Spec.SuccessPolicy.Rules {
		have, need := done.size(), -1
		if rule.SucceededIndexes != nil {
			want := indexesOf(job, *rule.SucceededIndexes)
			have, need = done.common(want), want.size()
		}
		if rule.SucceededCount != nil {
			need = int(*rule.SucceededCount)
		}
		if need > 0 && have >= need {
			return fmt.Sprintf("Matched rules at index %d", i)
		}
	}
	return ""
}
