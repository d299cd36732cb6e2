package replicaset

import (
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/utils/ptr"

	"github.com/setpoint-dev/setpoint/controllers/podfacts"
)

// status returns what the set's status should say of the pods it owns, after a pass that planned
// act and ended with failure, which may be nil.
func status(s snapshot, act actions, failure error) appsv1.ReplicaSetStatus {
	next := appsv1.ReplicaSetStatus{
		ObservedGeneration:  s.Set.Generation,
		TerminatingReplicas: ptr.To(int32(0)),
		Conditions:          failureCondition(s.Set.Status.Conditions, act, failure, s.Now),
	}
	template := labels.SelectorFromSet(s.Set.Spec.Template.Labels)
	for _, pod := range s.Pods {
		if podfacts.Terminating(pod) {
			*next.TerminatingReplicas++
		}
		if !podfacts.Active(pod) {
			continue
		}
		next.Replicas++
		if template.Matches(labels.Set(pod.Labels)) {
			next.FullyLabeledReplicas++
		}
		if podfacts.Ready(pod) {
			next.ReadyReplicas++
		}
		if podfacts.Available(pod, s.Set.Spec.MinReadySeconds, s.Now) {
			next.AvailableReplicas++
		}
	}
	return next
}

// failureCondition adds ReplicaFailure when a pass failed to create or delete, and takes it away
// when one succeeded. A condition that stands is left as it is, so that a failure that repeats
// writes nothing.
func failureCondition(old []appsv1.ReplicaSetCondition, act actions, failure error,
	now time.Time,
) []appsv1.ReplicaSetCondition {
	is := func(c appsv1.ReplicaSetCondition) bool { return c.Type == appsv1.ReplicaSetReplicaFailure }
	if failure == nil {
		return slices.DeleteFunc(slices.Clone(old), is)
	}
	if slices.ContainsFunc(old, is) {
		return old
	}
	reason := "FailedCreate"
	if len(act.Remove) > 0 {
		reason = "FailedDelete"
	}
	return append(slices.Clone(old), appsv1.ReplicaSetCondition{
		Type:               appsv1.ReplicaSetReplicaFailure,
		Status:             corev1.ConditionTrue,
		LastTransitionTime: metav1.NewTime(now),
		Reason:             reason,
		Message:            failure.Error(),
	})
}
