package nodelifecycle

import (
	"cmp"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	"github.com/setpoint-dev/setpoint/controllers/podfacts"
)

// podActions is what a pass does about a pod.
type podActions struct {
	// Evict deletes the pod gracefully.
	Evict bool
	// End takes the pod away at once, for no agent will ever say that it has ended.
	End bool
	// Wait is how long until the pod's toleration runs out; zero means never.
	Wait time.Duration
}

// planPod decides one pass over a pod. node is where it was placed, nil if nowhere or if the node is
// not known.
func planPod(pod *corev1.Pod, node *corev1.Node, now time.Time) podActions {
	if pod.DeletionTimestamp != nil {
		outOfService := node != nil && !nodeReady(node) && hasTaint(node, corev1.TaintNodeOutOfService)
		return podActions{End: pod.Spec.NodeName == "" || outOfService}
	}
	if node == nil {
		return podActions{}
	}
	deadline, ok := evictAt(pod, node.Spec.Taints)
	switch {
	case !ok:
		return podActions{}
	case deadline.After(now):
		return podActions{Wait: deadline.Sub(now)}
	}
	return podActions{Evict: true}
}

// evictAt returns when the pod has to go because of a NoExecute taint; ok is false if it may stay.
// A taint that is not tolerated evicts at once. One that is tolerated for some time does so that
// long after it was added, or after the pod was made if that was later; the shortest of the
// tolerations counts. A taint whose time is not recorded yet is waited for.
func evictAt(pod *corev1.Pod, taints []corev1.Taint) (at time.Time, ok bool) {
	for i := range taints {
		taint := &taints[i]
		if taint.Effect != corev1.TaintEffectNoExecute {
			continue
		}
		seconds, tolerated := tolerance(pod.Spec.Tolerations, taint)
		if !tolerated {
			return time.Time{}, true
		}
		if seconds == nil || taint.TimeAdded == nil {
			continue
		}
		since := taint.TimeAdded.Time
		if pod.CreationTimestamp.After(since) {
			since = pod.CreationTimestamp.Time
		}
		end := since.Add(time.Duration(max(0, *seconds)) * time.Second)
		if !ok || end.Before(at) {
			at, ok = end, true
		}
	}
	return at, ok
}

// tolerance returns for how long the taint is tolerated, nil for ever, and whether it is at all.
func tolerance(tolerations []corev1.Toleration, taint *corev1.Taint) (seconds *int64, tolerated bool) {
	for i := range tolerations {
		if !tolerations[i].ToleratesTaint(klog.Logger{}, taint, true) {
			continue
		}
		tolerated = true
		if s := tolerations[i].TolerationSeconds; s != nil && (seconds == nil || *s < *seconds) {
			seconds = s
		}
	}
	return seconds, tolerated
}

func hasTaint(node *corev1.Node, key string) bool {
	return slices.ContainsFunc(node.Spec.Taints, func(t corev1.Taint) bool { return t.Key == key })
}

// planEnded returns the ended pods to be removed so that at most keep are left: evicted ones first,
// then the oldest.
func planEnded(pods []*corev1.Pod, keep int) []*corev1.Pod {
	var ended []*corev1.Pod
	for _, pod := range pods {
		if podfacts.Terminal(pod) && pod.DeletionTimestamp == nil {
			ended = append(ended, pod)
		}
	}
	if len(ended) <= keep {
		return nil
	}
	evicted := func(p *corev1.Pod) int {
		if p.Status.Phase == corev1.PodFailed && p.Status.Reason == "Evicted" {
			return 0
		}
		return 1
	}
	slices.SortFunc(ended, func(a, b *corev1.Pod) int {
		return cmp.Or(
			cmp.Compare(evicted(a), evicted(b)),
			a.CreationTimestamp.Time.Compare(b.CreationTimestamp.Time),
			strings.Compare(a.Namespace+"/"+a.Name, b.Namespace+"/"+b.Name),
		)
	})
	return ended[:len(ended)-keep]
}
