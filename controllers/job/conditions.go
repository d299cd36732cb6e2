package job

import (
	"fmt"
	"slices"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

func timeOf(t time.Time) *metav1.Time { return ptr.To(metav1.NewTime(t)) }

func suspended(job *batchv1.Job) bool { return ptr.Deref(job.Spec.Suspend, false) }

func condition(status *batchv1.JobStatus, kind batchv1.JobConditionType) *batchv1.JobCondition {
	i := slices.IndexFunc(status.Conditions, func(c batchv1.JobCondition) bool { return c.Type == kind })
	if i < 0 {
		return nil
	}
	return &status.Conditions[i]
}

func conditionTrue(status *batchv1.JobStatus, kind batchv1.JobConditionType) bool {
	c := condition(status, kind)
	return c != nil && c.Status == corev1.ConditionTrue
}

// finished says whether the Job is done: nothing about it changes any more.
func finished(status *batchv1.JobStatus) bool {
	return conditionTrue(status, batchv1.JobComplete) || conditionTrue(status, batchv1.JobFailed)
}

// set makes a condition what it should be. One that is so already keeps its times.
func set(status *batchv1.JobStatus, kind batchv1.JobConditionType, value corev1.ConditionStatus, reason, message string, now time.Time) {
	next := batchv1.JobCondition{
		Type: kind, Status: value, Reason: reason, Message: message,
		LastProbeTime: metav1.NewTime(now), LastTransitionTime: metav1.NewTime(now),
	}
	if c := condition(status, kind); c == nil {
		status.Conditions = append(status.Conditions, next)
	} else if c.Status != value {
		*c = next
	}
}

// fail decides that the Job has failed; it is done once its pods have ended.
func fail(status *batchv1.JobStatus, reason, message string, now time.Time) {
	set(status, batchv1.JobFailureTarget, corev1.ConditionTrue, reason, message, now)
}

func suspend(status *batchv1.JobStatus, now time.Time) {
	set(status, batchv1.JobSuspended, corev1.ConditionTrue, "JobSuspended", "Job suspended", now)
}

// resume takes back that the Job is suspended, if it was. Its time starts again.
func resume(status *batchv1.JobStatus, now time.Time) {
	if conditionTrue(status, batchv1.JobSuspended) {
		set(status, batchv1.JobSuspended, corev1.ConditionFalse, "JobResumed", "Job resumed", now)
		status.StartTime = timeOf(now)
	}
}

// finish concludes a Job whose end is decided and whose pods have all ended.
func finish(status *batchv1.JobStatus, now time.Time) {
	if c := condition(status, batchv1.JobFailureTarget); c != nil && c.Status == corev1.ConditionTrue {
		set(status, batchv1.JobFailed, corev1.ConditionTrue, c.Reason, c.Message, now)
	} else if c := condition(status, batchv1.JobSuccessCriteriaMet); c != nil && c.Status == corev1.ConditionTrue {
		set(status, batchv1.JobComplete, corev1.ConditionTrue, c.Reason, c.Message, now)
		status.CompletionTime = timeOf(now)
	}
}

// policyRule returns the first rule that a failed pod matches, and how; nil if there is none.
func policyRule(policy *batchv1.PodFailurePolicy, pod *corev1.Pod) (*batchv1.PodFailurePolicyRule, string) {
	if policy == nil {
		return nil, ""
	}
	for i := range policy.Rules {
		rule := &policy.Rules[i]
		if rule.OnExitCodes != nil {
			if c := exited(rule.OnExitCodes, pod); c != nil {
				return rule, fmt.Sprintf("Container %s for pod %s/%s failed with exit code %v matching %v rule at index %d",
					c.Name, pod.Namespace, pod.Name, c.State.Terminated.ExitCode, rule.Action, i)
			}
		}
		for _, pattern := range rule.OnPodConditions {
			for _, c := range pod.Status.Conditions {
				if c.Type == pattern.Type && c.Status == pattern.Status {
					return rule, fmt.Sprintf("Pod %s/%s has condition %v matching %v rule at index %d",
						pod.Namespace, pod.Name, c.Type, rule.Action, i)
				}
			}
		}
	}
	return nil, ""
}

// exited returns the container that ended as a rule says, or nil. Only a failure can match.
func exited(rule *batchv1.PodFailurePolicyOnExitCodesRequirement, pod *corev1.Pod) *corev1.ContainerStatus {
	all := slices.Concat(pod.Status.ContainerStatuses, pod.Status.InitContainerStatuses)
	for i := range all {
		c := &all[i]
		end := c.State.Terminated
		if end == nil || end.ExitCode == 0 || rule.ContainerName != nil && *rule.ContainerName != c.Name {
			continue
		}
		if slices.Contains(rule.Values, end.ExitCode) == (rule.Operator == batchv1.PodFailurePolicyOnExitCodesOpIn) {
			return c
		}
	}
	return nil
}
