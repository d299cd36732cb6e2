package replicaset

import (
	"cmp"
	"math/bits"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/setpoint-dev/setpoint/controllers/podfacts"
)

// chooseVictims returns the count pods whose loss costs least, in that order. The order is
// Kubernetes': not placed before placed, pending before unknown before running, not ready before
// ready, cheap before dear (pod-deletion-cost), crowded nodes before empty ones, newly ready before
// long ready, often restarted before steady, young before old. Ages are compared by powers of two,
// so that among pods of about one age the choice is spread, not always the newest.
func chooseVictims(active, related []*corev1.Pod, count int, now time.Time) []*corev1.Pod {
	if count >= len(active) {
		return active
	}
	crowd := map[string]int{}
	for _, pod := range related {
		if podfacts.Active(pod) {
			crowd[pod.Spec.NodeName]++
		}
	}
	victims := slices.Clone(active)
	slices.SortStableFunc(victims, func(a, b *corev1.Pod) int { return compareLoss(a, b, crowd, now) })
	return victims[:count]
}

// compareLoss is negative if losing a is better than losing b.
func compareLoss(a, b *corev1.Pod, crowd map[string]int, now time.Time) int {
	readyA, readyB := podfacts.Ready(a), podfacts.Ready(b)
	order := cmp.Or(
		compareBool(a.Spec.NodeName != "", b.Spec.NodeName != ""),
		cmp.Compare(phaseRank(a), phaseRank(b)),
		compareBool(readyA, readyB),
		cmp.Compare(deletionCost(a), deletionCost(b)),
		cmp.Compare(crowd[b.Spec.NodeName], crowd[a.Spec.NodeName]),
	)
	if order == 0 && readyA && readyB {
		order = compareAge(a, b, podfacts.ReadySince(a), podfacts.ReadySince(b), now)
	}
	if order != 0 {
		return order
	}
	regularA, sidecarA := restarts(a)
	regularB, sidecarB := restarts(b)
	return cmp.Or(
		cmp.Compare(regularB, regularA),
		cmp.Compare(sidecarB, sidecarA),
		compareAge(a, b, a.CreationTimestamp.Time, b.CreationTimestamp.Time, now),
	)
}

// compareAge puts the shorter span first; spans of one power of two are ordered by uid, which is as
// good as chance and yet repeatable. A time that is not known is the youngest.
func compareAge(a, b *corev1.Pod, sinceA, sinceB, now time.Time) int {
	if sinceA.Equal(sinceB) {
		return 0
	}
	if sinceA.IsZero() || sinceB.IsZero() {
		return compareBool(!sinceA.IsZero(), !sinceB.IsZero())
	}
	return cmp.Or(
		cmp.Compare(magnitude(now.Sub(sinceA)), magnitude(now.Sub(sinceB))),
		strings.Compare(string(a.UID), string(b.UID)),
	)
}

func magnitude(d time.Duration) int { return bits.Len64(uint64(max(0, d))) }

func phaseRank(pod *corev1.Pod) int {
	switch pod.Status.Phase {
	case corev1.PodRunning:
		return 2
	case corev1.PodUnknown:
		return 1
	}
	return 0
}

// deletionCost reads the pod-deletion-cost annotation; a missing or malformed one is zero.
func deletionCost(pod *corev1.Pod) int32 {
	cost, err := strconv.ParseInt(pod.Annotations[corev1.PodDeletionCost], 10, 32)
	if err != nil {
		return 0
	}
	return int32(cost)
}

// restarts returns the most restarts of any container, and of any sidecar.
func restarts(pod *corev1.Pod) (regular, sidecar int32) {
	for _, c := range pod.Status.ContainerStatuses {
		regular = max(regular, c.RestartCount)
	}
	sidecars := map[string]bool{}
	for _, c := range pod.Spec.InitContainers {
		sidecars[c.Name] = c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways
	}
	for _, c := range pod.Status.InitContainerStatuses {
		if sidecars[c.Name] {
			sidecar = max(sidecar, c.RestartCount)
		}
	}
	return regular, sidecar
}

// compareBool puts false before true.
func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	}
	return 1
}
