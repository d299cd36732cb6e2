// Package statefulset keeps the pods of each StatefulSet: they are numbered, each has a name, a host name
// and volumes that stay when it is replaced, and unless the set says otherwise they come one after the
// other, go in reverse, and are replaced from the last to the first.
package statefulset

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"github.com/setpoint-dev/setpoint/controllers/podfacts"
)

// snapshot is what a pass decides on.
type snapshot struct {
	Set  *appsv1.StatefulSet
	Pods []*corev1.Pod // owned by the set, whatever their state
	// Current and Update name the revisions that pods are of before and after a roll-out.
	Current, Update string
	Now             time.Time
}

// newPod is a pod to create: its number, and whether it is of the new revision.
type newPod struct {
	Ordinal int
	Updated bool
}

// actions is what a pass does before it writes the status.
type actions struct {
	Create []newPod
	Delete []*corev1.Pod
	// Wait is how long until the pass should be made again, though nothing may have changed; zero means
	// never.
	Wait time.Duration
}

// plan returns the next steps towards what is declared.
func plan(s snapshot) actions {
	act := actions{Wait: podfacts.NextAvailable(s.Pods, s.Set.Spec.MinReadySeconds, s.Now)}
	if s.Set.DeletionTimestamp != nil {
		return act
	}
	slots, condemned := s.place()
	if s.fill(&act, slots) && s.shrink(&act, slots, condemned) {
		s.rollOut(&act, slots)
	}
	return act
}

// place returns the pod of each number that the set should have, nil where there is none, and the pods
// that are too many, the last first.
func (s snapshot) place() (slots, condemned []*corev1.Pod) {
	slots = make([]*corev1.Pod, ptr.Deref(s.Set.Spec.Replicas, 1))
	for _, pod := range s.Pods {
		if i := ordinal(pod) - s.first(); i >= 0 && i < len(slots) {
			slots[i] = pod
		} else {
			condemned = append(condemned, pod)
		}
	}
	slices.SortFunc(condemned, func(a, b *corev1.Pod) int {
		return cmp.Or(cmp.Compare(ordinal(b), ordinal(a)), cmp.Compare(a.Name, b.Name))
	})
	return slots, condemned
}

// first is the number of the first pod.
func (s snapshot) first() int {
	if s.Set.Spec.Ordinals == nil {
		return 0
	}
	return int(s.Set.Spec.Ordinals.Start)
}

// ordered says whether a pod waits for the one before it.
func (s snapshot) ordered() bool {
	return s.Set.Spec.PodManagementPolicy != appsv1.ParallelPodManagement
}

func (s snapshot) available(pod *corev1.Pod) bool {
	return pod.DeletionTimestamp == nil && podfacts.Available(pod, s.Set.Spec.MinReadySeconds, s.Now)
}

// fill creates the pods that are missing and replaces those that have ended. It says whether the pass may
// go on: in an ordered set only if all are as they should be.
func (s snapshot) fill(act *actions, slots []*corev1.Pod) bool {
	for i, pod := range slots {
		switch {
		case pod == nil:
			act.Create = append(act.Create, newPod{Ordinal: s.first() + i, Updated: s.updated(i)})
		case podfacts.Terminal(pod) && pod.DeletionTimestamp == nil:
			act.Delete = append(act.Delete, pod)
		case s.available(pod):
			continue
		}
		if s.ordered() {
			return false
		}
	}
	return true
}

// updated says whether a new pod in a slot is of the new revision: all are but those that a partition
// holds back, and those that a roll-out has not come to.
func (s snapshot) updated(slot int) bool {
	if s.Current == s.Update {
		return true
	}
	if s.Set.Spec.UpdateStrategy.Type != appsv1.RollingUpdateStatefulSetStrategyType {
		return true
	}
	rolling := s.Set.Spec.UpdateStrategy.RollingUpdate
	if rolling == nil {
		return slot >= int(s.Set.Status.CurrentReplicas)
	}
	return slot >= int(ptr.Deref(rolling.Partition, 0))
}

// shrink deletes the pods that are too many, and says whether the pass may go on. In an ordered set one goes
// after the other; one that is not well goes only if it is the first that is not, so that what is broken
// can be repaired by going on.
func (s snapshot) shrink(act *actions, slots, condemned []*corev1.Pod) bool {
	unwell := slices.IndexFunc(condemned, func(pod *corev1.Pod) bool { return !s.available(pod) })
	for i, pod := range condemned {
		switch {
		case pod.DeletionTimestamp != nil:
		case s.ordered() && unwell >= 0 && unwell < i:
			return false
		default:
			act.Delete = append(act.Delete, pod)
		}
		if s.ordered() {
			return false
		}
	}
	return true
}

// rollOut deletes pods of another revision, the last first, as long as no more are away than may be.
func (s snapshot) rollOut(act *actions, slots []*corev1.Pod) {
	strategy := s.Set.Spec.UpdateStrategy
	if strategy.Type == appsv1.OnDeleteStatefulSetStrategyType {
		return
	}
	most, partition := 1, 0
	if r := strategy.RollingUpdate; r != nil {
		partition = int(ptr.Deref(r.Partition, 0))
		n, err := intstr.GetScaledValueFromIntOrPercent(ptr.To(ptr.Deref(r.MaxUnavailable, intstr.FromInt32(1))), len(slots), false)
		if err == nil {
			most = max(n, 1)
		}
	}
	away := 0
	for _, pod := range slots {
		if pod == nil || !s.available(pod) {
			away++
		}
	}
	for i := len(slots) - 1; i >= partition; i-- {
		pod := slots[i]
		if pod == nil || pod.DeletionTimestamp != nil || revisionOf(pod) == s.Update {
			continue
		}
		if s.available(pod) {
			if away >= most {
				return
			}
			away++
		}
		act.Delete = append(act.Delete, pod)
		if away >= most {
			return
		}
	}
}

// ordinal is the number at the end of a pod's name, or -1.
func ordinal(pod *corev1.Pod) int {
	i := strings.LastIndexByte(pod.Name, '-')
	n, err := strconv.Atoi(pod.Name[i+1:])
	if err != nil || i < 0 {
		return -1
	}
	return n
}

func revisionOf(pod *corev1.Pod) string { return pod.Labels[appsv1.ControllerRevisionHashLabelKey] }

// status returns what the status becomes, of what there is and what the pass does. A roll-out that has
// come to its end makes the new revision the current one.
func status(s snapshot, act actions) appsv1.StatefulSetStatus {
	next := *s.Set.Status.DeepCopy()
	next.ObservedGeneration = s.Set.Generation
	next.Replicas, next.ReadyReplicas, next.AvailableReplicas = 0, 0, 0
	next.CurrentReplicas, next.UpdatedReplicas = 0, 0
	count := func(revision string, by int32) {
		if revision == s.Current {
			next.CurrentReplicas += by
		}
		if revision == s.Update {
			next.UpdatedReplicas += by
		}
	}
	for _, pod := range s.Pods {
		next.Replicas++
		if podfacts.Ready(pod) && pod.DeletionTimestamp == nil {
			next.ReadyReplicas++
		}
		if s.available(pod) {
			next.AvailableReplicas++
		}
		if pod.DeletionTimestamp == nil && !slices.Contains(act.Delete, pod) {
			count(revisionOf(pod), 1)
		}
	}
	for _, n := range act.Create {
		next.Replicas++
		if n.Updated {
			count(s.Update, 1)
		} else {
			count(s.Current, 1)
		}
	}
	next.CurrentRevision, next.UpdateRevision = s.Current, s.Update
	want := ptr.Deref(s.Set.Spec.Replicas, 1)
	done := next.UpdatedReplicas == want && next.AvailableReplicas == want && next.Replicas == want
	if done && s.Set.Spec.UpdateStrategy.Type == appsv1.RollingUpdateStatefulSetStrategyType {
		next.CurrentRevision = s.Update
		next.CurrentReplicas = next.UpdatedReplicas
	}
	return next
}
