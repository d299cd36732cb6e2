package deployment

import (
	"fmt"
	"math"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// Reasons of the Progressing condition, as kubectl rollout status and other tools know them.
const (
	reasonCreated     = "NewReplicaSetCreated"
	reasonCreateError = "ReplicaSetCreateError"
	reasonFound       = "FoundNewReplicaSet"
	reasonUpdated     = "ReplicaSetUpdated"
	reasonAvailable   = "NewReplicaSetAvailable"
	reasonTimedOut    = "ProgressDeadlineExceeded"
	reasonPaused      = "DeploymentPaused"
	reasonResumed     = "DeploymentResumed"
)

// status counts pods and says whether enough of them are available.
func (r *rollout) status() appsv1.DeploymentStatus {
	all := r.all()
	available := sum(all, func(s *appsv1.ReplicaSet) int32 { return s.Status.AvailableReplicas })
	next := appsv1.DeploymentStatus{
		ObservedGeneration:  r.deployment.Generation,
		Replicas:            sum(all, func(s *appsv1.ReplicaSet) int32 { return s.Status.Replicas }),
		ReadyReplicas:       sum(all, func(s *appsv1.ReplicaSet) int32 { return s.Status.ReadyReplicas }),
		AvailableReplicas:   available,
		UnavailableReplicas: max(0, declared(all)-available),
		TerminatingReplicas: terminating(all),
		CollisionCount:      r.deployment.Status.CollisionCount,
	}
	if r.current != nil {
		next.UpdatedReplicas = r.current.Status.Replicas
	}
	_, unavailable := bounds(r.deployment)
	if available >= r.want()-unavailable {
		r.set(appsv1.DeploymentAvailable, corev1.ConditionTrue, "MinimumReplicasAvailable",
			"Deployment has minimum availability.")
	} else {
		r.set(appsv1.DeploymentAvailable, corev1.ConditionFalse, "MinimumReplicasUnavailable",
			"Deployment does not have minimum availability.")
	}
	next.Conditions = r.conditions
	return next
}

// terminating adds up the pods on their way out, or is nil if a set that has been counted does not
// say.
func terminating(sets []*appsv1.ReplicaSet) *int32 {
	var total int32
	for _, set := range sets {
		if set.Status.TerminatingReplicas == nil && set.Status.ObservedGeneration > 0 {
			return nil
		}
		total += ptr.Deref(set.Status.TerminatingReplicas, 0)
	}
	return &total
}

// rolloutStatus is the status of a pass that moved a rollout, or found it at its end.
func (r *rollout) rolloutStatus() appsv1.DeploymentStatus {
	next := r.status()
	r.judgeProgress(&next)
	r.passOnFailure()
	next.Conditions = r.conditions
	return next
}

// judgeProgress compares the new counts with the recorded ones: complete, moving, or standing still
// for longer than the deadline.
func (r *rollout) judgeProgress(next *appsv1.DeploymentStatus) {
	deadline, ok := progressDeadline(r.deployment)
	if !ok {
		r.unset(appsv1.DeploymentProgressing)
		return
	}
	last := r.find(appsv1.DeploymentProgressing)
	if last != nil && last.Reason == reasonAvailable && next.Replicas == next.UpdatedReplicas {
		return // not in a rollout
	}
	switch {
	case complete(r.deployment, next):
		r.set(appsv1.DeploymentProgressing, corev1.ConditionTrue, reasonAvailable,
			r.subject()+" has successfully progressed.")
	case progressed(&r.deployment.Status, next):
		moved := appsv1.DeploymentCondition{
			Type: appsv1.DeploymentProgressing, Status: corev1.ConditionTrue, Reason: reasonUpdated,
			Message:        r.subject() + " is progressing.",
			LastUpdateTime: metav1.NewTime(r.now), LastTransitionTime: metav1.NewTime(r.now),
		}
		if last != nil && last.Status == corev1.ConditionTrue {
			moved.LastTransitionTime = last.LastTransitionTime
		}
		r.unset(appsv1.DeploymentProgressing)
		r.conditions = append(r.conditions, moved)
	case last != nil && last.Reason != reasonAvailable &&
		last.LastUpdateTime.Add(deadline).Before(r.now):
		r.set(appsv1.DeploymentProgressing, corev1.ConditionFalse, reasonTimedOut,
			r.subject()+" has timed out progressing.")
	}
}

// subject names what progresses.
func (r *rollout) subject() string {
	if r.current == nil {
		return fmt.Sprintf("Deployment %q", r.deployment.Name)
	}
	return fmt.Sprintf("ReplicaSet %q", r.current.Name)
}

// complete reports whether the status says that exactly the declared pods run, all of the declared
// template and available.
func complete(d *appsv1.Deployment, s *appsv1.DeploymentStatus) bool {
	want := ptr.Deref(d.Spec.Replicas, 1)
	return s.UpdatedReplicas == want && s.Replicas == want && s.AvailableReplicas == want &&
		s.ObservedGeneration >= d.Generation
}

// progressed reports whether a rollout moved on: new pods came, old ones went, or some became ready
// or available.
func progressed(before, after *appsv1.DeploymentStatus) bool {
	return after.UpdatedReplicas > before.UpdatedReplicas ||
		after.Replicas-after.UpdatedReplicas < before.Replicas-before.UpdatedReplicas ||
		after.ReadyReplicas > before.ReadyReplicas ||
		after.AvailableReplicas > before.AvailableReplicas
}

// deadline returns how long until a rollout that stands still has to be looked at again: a second
// after the deadline, since times are recorded in whole seconds.
func (r *rollout) deadline(next *appsv1.DeploymentStatus) time.Duration {
	limit, ok := progressDeadline(r.deployment)
	last := r.find(appsv1.DeploymentProgressing)
	if !ok || last == nil || r.deployment.Spec.Paused || complete(r.deployment, next) ||
		last.Reason == reasonTimedOut || last.Reason == reasonAvailable {
		return 0
	}
	return max(0, last.LastUpdateTime.Add(limit).Sub(r.now)) + time.Second
}

func progressDeadline(d *appsv1.Deployment) (time.Duration, bool) {
	seconds := d.Spec.ProgressDeadlineSeconds
	if seconds == nil || *seconds == math.MaxInt32 {
		return 0, false
	}
	return time.Duration(*seconds) * time.Second, true
}

// notePause keeps the Progressing condition unknown while the deployment is paused, and starts the
// deadline anew when it is resumed. A deadline that was missed stays reported.
func (r *rollout) notePause() {
	if _, ok := progressDeadline(r.deployment); !ok {
		return
	}
	last := r.find(appsv1.DeploymentProgressing)
	if last != nil && last.Reason == reasonTimedOut {
		return
	}
	noted := last != nil && last.Reason == reasonPaused
	switch paused := r.deployment.Spec.Paused; {
	case paused && !noted:
		r.set(appsv1.DeploymentProgressing, corev1.ConditionUnknown, reasonPaused,
			"Deployment is paused")
	case !paused && noted:
		r.set(appsv1.DeploymentProgressing, corev1.ConditionUnknown, reasonResumed,
			"Deployment is resumed")
	}
}

func (r *rollout) noteCreated(set *appsv1.ReplicaSet) {
	if _, ok := progressDeadline(r.deployment); ok {
		r.set(appsv1.DeploymentProgressing, corev1.ConditionTrue, reasonCreated,
			fmt.Sprintf("Created new replica set %q", set.Name))
	}
}

func (r *rollout) noteFound(set *appsv1.ReplicaSet) {
	if _, ok := progressDeadline(r.deployment); ok && r.find(appsv1.DeploymentProgressing) == nil {
		r.set(appsv1.DeploymentProgressing, corev1.ConditionTrue, reasonFound,
			fmt.Sprintf("Found new replica set %q", set.Name))
	}
}

// passOnFailure shows on the deployment that a set cannot make or remove pods, the current one
// before any other.
func (r *rollout) passOnFailure() {
	sets := r.all()
	slices.Reverse(sets)
	for _, set := range sets {
		for _, c := range set.Status.Conditions {
			if c.Type != appsv1.ReplicaSetReplicaFailure {
				continue
			}
			r.put(appsv1.DeploymentCondition{
				Type: appsv1.DeploymentReplicaFailure, Status: c.Status, Reason: c.Reason, Message: c.Message,
				LastUpdateTime: c.LastTransitionTime, LastTransitionTime: c.LastTransitionTime,
			})
			return
		}
	}
	r.unset(appsv1.DeploymentReplicaFailure)
}

// withCreateError is the recorded status, with the Progressing condition saying that the current
// set could not be made.
func withCreateError(d *appsv1.Deployment, message string, now time.Time) appsv1.DeploymentStatus {
	r := &rollout{deployment: d, now: now, conditions: slices.Clone(d.Status.Conditions)}
	if _, ok := progressDeadline(d); ok {
		r.set(appsv1.DeploymentProgressing, corev1.ConditionFalse, reasonCreateError, message)
	}
	next := *d.Status.DeepCopy()
	next.Conditions = r.conditions
	return next
}

func (r *rollout) find(kind appsv1.DeploymentConditionType) *appsv1.DeploymentCondition {
	for i := range r.conditions {
		if r.conditions[i].Type == kind {
			return &r.conditions[i]
		}
	}
	return nil
}

func (r *rollout) set(kind appsv1.DeploymentConditionType, status corev1.ConditionStatus,
	reason, message string,
) {
	now := metav1.NewTime(r.now)
	r.put(appsv1.DeploymentCondition{
		Type: kind, Status: status, Reason: reason, Message: message, LastUpdateTime: now, LastTransitionTime: now,
	})
}

// put records a condition; one of the same status and reason is left as it is, times included, and
// a changed one goes to the end, where tools that read conditions in order expect the latest.
func (r *rollout) put(c appsv1.DeploymentCondition) {
	if old := r.find(c.Type); old != nil {
		if old.Status == c.Status && old.Reason == c.Reason {
			return
		}
		if old.Status == c.Status {
			c.LastTransitionTime = old.LastTransitionTime
		}
	}
	r.unset(c.Type)
	r.conditions = append(r.conditions, c)
}

func (r *rollout) unset(kind appsv1.DeploymentConditionType) {
	r.conditions = slices.DeleteFunc(slices.Clone(r.conditions),
		func(c appsv1.DeploymentCondition) bool { return c.Type == kind })
}
