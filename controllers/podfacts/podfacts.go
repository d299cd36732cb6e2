// Package podfacts answers the questions that every workload controller asks about a pod: is it
// ready, has it been ready for long enough, is it on its way out, has it ended.
//
// The functions are pure: they read the pod and the time they are given, and keep nothing.
package podfacts

import (
	"time"

	corev1 "k8s.io/api/core/v1"
)

// Condition returns the pod's condition of the type, or nil. The result points into the pod.
func Condition(pod *corev1.Pod, kind corev1.PodConditionType) *corev1.PodCondition {
	for i := range pod.Status.Conditions {
		if pod.Status.Conditions[i].Type == kind {
			return &pod.Status.Conditions[i]
		}
	}
	return nil
}

// SetCondition replaces the pod's condition of the same type, or adds it, and says whether that
// changed anything. The transition time of a condition whose status stays is kept.
func SetCondition(pod *corev1.Pod, c corev1.PodCondition) bool {
	old := Condition(pod, c.Type)
	if old == nil {
		pod.Status.Conditions = append(pod.Status.Conditions, c)
		return true
	}
	if old.Status == c.Status {
		c.LastTransitionTime = old.LastTransitionTime
	}
	c.LastProbeTime = old.LastProbeTime
	changed := *old != c
	*old = c
	return changed
}

// Ready reports whether the pod's Ready condition is true.
func Ready(pod *corev1.Pod) bool {
	c := Condition(pod, corev1.PodReady)
	return c != nil && c.Status == corev1.ConditionTrue
}

// ReadySince returns since when a ready pod has been ready; the zero time for any other pod, and
// for one that does not say.
func ReadySince(pod *corev1.Pod) time.Time {
	if !Ready(pod) {
		return time.Time{}
	}
	return Condition(pod, corev1.PodReady).LastTransitionTime.Time
}

// Available reports whether the pod has been ready for minReadySeconds. A ready pod that does not
// say since when is available only if nothing has to be waited for.
func Available(pod *corev1.Pod, minReadySeconds int32, now time.Time) bool {
	if !Ready(pod) {
		return false
	}
	if minReadySeconds == 0 {
		return true
	}
	since := ReadySince(pod)
	return !since.IsZero() && !now.Before(since.Add(seconds(minReadySeconds)))
}

// NextAvailable returns how long it takes until the first of the ready pods that is not available
// yet becomes so; zero if there is none.
func NextAvailable(pods []*corev1.Pod, minReadySeconds int32, now time.Time) time.Duration {
	var next time.Duration
	for _, pod := range pods {
		since := ReadySince(pod)
		if since.IsZero() || Available(pod, minReadySeconds, now) {
			continue
		}
		if wait := since.Add(seconds(minReadySeconds)).Sub(now); next == 0 || wait < next {
			next = wait
		}
	}
	return next
}

// Terminal reports whether all of the pod's containers have ended for good.
func Terminal(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}

// Terminating reports whether the pod has been told to go but may still run.
func Terminating(pod *corev1.Pod) bool {
	return pod.DeletionTimestamp != nil && !Terminal(pod)
}

// Active reports whether the pod counts as a replica: it has neither ended nor been told to go.
func Active(pod *corev1.Pod) bool {
	return pod.DeletionTimestamp == nil && !Terminal(pod)
}

func seconds(n int32) time.Duration { return time.Duration(n) * time.Second }

// Filter returns the pods to keep, in their order.
func Filter(pods []*corev1.Pod, keep func(*corev1.Pod) bool) []*corev1.Pod {
	var kept []*corev1.Pod
	for _, pod := range pods {
		if keep(pod) {
			kept = append(kept, pod)
		}
	}
	return kept
}

// Sooner returns the shorter of two waits, where zero is no wait at all.
func Sooner(a, b time.Duration) time.Duration {
	if a == 0 || b > 0 && b < a {
		return b
	}
	return a
}
