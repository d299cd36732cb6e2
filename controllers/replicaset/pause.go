package replicaset

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/setpoint-dev/setpoint/controllers/podfacts"
)

const (
	// shortLife separates a pod that never worked from one that worked and failed: what lived
	// longer shows that pods of this template can run.
	shortLife = time.Minute
	// pauseFirst and pauseMax bound the pause before failed pods are replaced: at once for a
	// person, yet at most a dozen rounds an hour for a set that can never run.
	pauseFirst = time.Second
	pauseMax   = 5 * time.Minute
	// runGap is how far apart two failures may be and still belong to one run: more than the
	// longest pause, or pausing would end the run.
	runGap = 2 * pauseMax
)

// failurePause returns for how long no pod should be created, because the last ones failed
// immediately. It is computed from the pods alone, so a restart of the controller changes nothing:
// the run of short-lived failures that no working pod has ended since is divided into rounds of as
// many pods as are missing, and each round doubles the pause, counted from the last failure.
//
// Kubernetes replaces such pods at once, without end (kubernetes/kubernetes#72593).
func failurePause(pods []*corev1.Pod, missing int, now time.Time) time.Duration {
	newest := slices.Clone(pods)
	slices.SortFunc(newest, func(a, b *corev1.Pod) int {
		return b.CreationTimestamp.Time.Compare(a.CreationTimestamp.Time)
	})
	var failures int
	var last time.Time
	for later := now; len(newest) > 0 && !worked(newest[0], now); newest = newest[1:] {
		ended := failedAt(newest[0])
		if ended.IsZero() {
			continue // not known yet
		}
		if later.Sub(ended) > runGap {
			break
		}
		later = ended
		failures++
		if ended.After(last) {
			last = ended
		}
	}
	if failures == 0 {
		return 0
	}
	rounds := (failures + missing - 1) / missing
	pause := pauseMax
	if shift := rounds - 1; shift < 9 { // 1 s << 9 is beyond the maximum
		pause = min(pauseFirst<<shift, pauseMax)
	}
	return max(0, last.Add(pause).Sub(now))
}

// worked reports whether the pod shows that pods of this set can run: it is ready, or lived long.
func worked(pod *corev1.Pod, now time.Time) bool {
	if podfacts.Ready(pod) || pod.Status.Phase == corev1.PodSucceeded {
		return true
	}
	end := now
	if pod.Status.Phase == corev1.PodFailed {
		end = failedAt(pod)
	}
	return pod.Status.Phase != corev1.PodPending && end.Sub(pod.CreationTimestamp.Time) > shortLife
}

// failedAt returns when a failed pod failed: the last thing that is recorded of it. It is the zero
// time for a pod that has not failed.
func failedAt(pod *corev1.Pod) time.Time {
	if pod.Status.Phase != corev1.PodFailed {
		return time.Time{}
	}
	at := pod.CreationTimestamp.Time
	for _, c := range pod.Status.ContainerStatuses {
		if t := c.State.Terminated; t != nil && t.FinishedAt.After(at) {
			at = t.FinishedAt.Time
		}
	}
	for _, c := range pod.Status.Conditions {
		if c.LastTransitionTime.After(at) {
			at = c.LastTransitionTime.Time
		}
	}
	return at
}
