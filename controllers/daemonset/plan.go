// Package daemonset keeps one pod of each DaemonSet on every node that the set is for.
//
// The pod is bound to its node by an affinity that names it, and the scheduler does the rest. Whether a set
// is for a node is decided as the scheduler would: by node selector, affinity and taints. A roll-out replaces
// the pod of a node either after the old one is gone, or, with a surge, before.
package daemonset

import (
	"cmp"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"github.com/setpoint-dev/setpoint/controllers/podfacts"
)

// burstMax bounds how many pods one pass creates or deletes. It is Kubernetes' value.
const burstMax = 250

// snapshot is what a pass decides on.
type snapshot struct {
	Set   *appsv1.DaemonSet
	Nodes []*corev1.Node
	Pods  []*corev1.Pod // owned by the set, whatever their state
	Hash  string        // of the revision that new pods are of
	Now   time.Time
	// Failures is how many failed pods of that revision were replaced on a node, one after the other; nil
	// is none anywhere.
	Failures func(node string) int
}

// actions is what a pass does before it writes the status.
type actions struct {
	Create []string // names of nodes
	Delete []*corev1.Pod
	// Wait is how long until the pass should be made again, though nothing may have changed; zero means
	// never.
	Wait time.Duration
}

// station is a node and the set's pods on it, the oldest first.
type station struct {
	node string
	runs bool // the set is for the node
	stay bool // a pod that is there already may stay
	pods []*corev1.Pod
}

// stations returns one for each node, and for each name of a node that is gone and has pods.
func (s snapshot) stations() []*station {
	byName := map[string]*station{}
	var all []*station
	at := func(name string) *station {
		if byName[name] == nil {
			byName[name] = &station{node: name}
			all = append(all, byName[name])
		}
		return byName[name]
	}
	for _, node := range s.Nodes {
		st := at(node.Name)
		st.runs, st.stay = fits(s.Set, node)
	}
	for _, pod := range s.Pods {
		st := at(nodeOf(pod))
		st.pods = append(st.pods, pod)
	}
	slices.SortFunc(all, func(a, b *station) int { return cmp.Compare(a.node, b.node) })
	for _, st := range all {
		slices.SortFunc(st.pods, func(a, b *corev1.Pod) int {
			return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
		})
	}
	return all
}

// plan returns the difference between what is declared and what is.
func plan(s snapshot) actions {
	act := actions{Wait: podfacts.NextAvailable(s.Pods, s.Set.Spec.MinReadySeconds, s.Now)}
	if s.Set.DeletionTimestamp != nil {
		return act
	}
	stations := s.stations()
	for _, st := range stations {
		s.keepOne(&act, st)
	}
	if s.Set.Spec.UpdateStrategy.Type == appsv1.RollingUpdateDaemonSetStrategyType {
		s.rollOut(&act, stations)
	}
	act.Create = act.Create[:min(len(act.Create), burstMax)]
	act.Delete = act.Delete[:min(len(act.Delete), burstMax)]
	return act
}

// keepOne sees to it that a node that the set is for has a pod, and that another has none. Of several pods of
// one revision the oldest stays.
func (s snapshot) keepOne(act *actions, st *station) {
	if !st.runs && !st.stay {
		act.Delete = append(act.Delete, podfacts.Filter(st.pods, func(p *corev1.Pod) bool { return p.DeletionTimestamp == nil })...)
		return
	}
	seen := map[bool]bool{}
	for _, pod := range st.pods {
		switch {
		case pod.DeletionTimestamp != nil:
			seen[s.updated(pod)] = true // its place is free when it is gone
		case podfacts.Terminal(pod):
			seen[s.updated(pod)] = true
			if left := pod.CreationTimestamp.Add(s.pause(st, pod)).Sub(s.Now); left > 0 {
				act.Wait = podfacts.Sooner(act.Wait, left)
			} else {
				act.Delete = append(act.Delete, pod)
			}
		case seen[s.updated(pod)]:
			act.Delete = append(act.Delete, pod)
		default:
			seen[s.updated(pod)] = true
		}
	}
	if st.runs && len(seen) == 0 {
		act.Create = append(act.Create, st.node)
	}
}

// pause is how long a failed pod is left, from its creation on: one of an older revision not at all.
func (s snapshot) pause(st *station, pod *corev1.Pod) time.Duration {
	switch {
	case !s.updated(pod):
		return 0
	case s.Failures == nil:
		return pauseFirst
	default:
		return pauseAfter(s.Failures(st.node))
	}
}

// rollOut replaces pods of other revisions.
func (s snapshot) rollOut(act *actions, stations []*station) {
	desired := 0
	for _, st := range stations {
		if st.runs {
			desired++
		}
	}
	surge, unavailable := s.bounds(desired)
	for _, st := range stations { // what is under way already counts
		if !st.runs {
			continue
		}
		old, next := s.split(st)
		if old != nil && next != nil {
			surge--
		}
		if !s.available(old) && !s.available(next) {
			unavailable--
		}
	}
	for _, st := range stations {
		old, next := s.split(st)
		if !st.runs || old == nil || old.DeletionTimestamp != nil || slices.Contains(act.Delete, old) {
			continue
		}
		switch {
		case next != nil: // a surge, which ends when the new pod will do, or the old one does not
			if s.available(next) || !s.available(old) {
				act.Delete = append(act.Delete, old)
			}
		case !s.available(old):
			act.Delete = append(act.Delete, old)
		case surge > 0:
			surge--
			act.Create = append(act.Create, st.node)
		case unavailable > 0:
			unavailable--
			act.Delete = append(act.Delete, old)
		}
	}
}

// split returns the pod of an older revision on a node, and that of the new one; nil if there is none.
func (s snapshot) split(st *station) (old, next *corev1.Pod) {
	for _, pod := range st.pods {
		if podfacts.Terminal(pod) {
			continue
		}
		if s.updated(pod) {
			next = pod
		} else if old == nil || pod.DeletionTimestamp == nil {
			old = pod
		}
	}
	return old, next
}

// bounds returns on how many nodes there may be a second pod, and on how many none.
func (s snapshot) bounds(desired int) (surge, unavailable int) {
	rolling := s.Set.Spec.UpdateStrategy.RollingUpdate
	if rolling == nil {
		return 0, 1
	}
	value := func(v *intstr.IntOrString, otherwise int32) int {
		n, err := intstr.GetScaledValueFromIntOrPercent(ptr.To(ptr.Deref(v, intstr.FromInt32(otherwise))), desired, true)
		if err != nil {
			return 0
		}
		return n
	}
	surge, unavailable = value(rolling.MaxSurge, 0), value(rolling.MaxUnavailable, 1)
	if surge == 0 && unavailable == 0 {
		unavailable = 1 // or nothing would ever change
	}
	return surge, unavailable
}

func (s snapshot) updated(pod *corev1.Pod) bool {
	return pod.Labels[appsv1.ControllerRevisionHashLabelKey] == s.Hash
}

func (s snapshot) available(pod *corev1.Pod) bool {
	return pod != nil && pod.DeletionTimestamp == nil &&
		podfacts.Available(pod, s.Set.Spec.MinReadySeconds, s.Now)
}

// status returns what the status becomes, of what there is.
func status(s snapshot) appsv1.DaemonSetStatus {
	next := appsv1.DaemonSetStatus{
		ObservedGeneration: s.Set.Generation,
		CollisionCount:     s.Set.Status.CollisionCount,
		Conditions:         s.Set.Status.Conditions,
	}
	for _, st := range s.stations() {
		live := podfacts.Filter(st.pods, podfacts.Active)
		if !st.runs {
			if len(live) > 0 && st.node != "" {
				next.NumberMisscheduled++
			}
			continue
		}
		next.DesiredNumberScheduled++
		if len(live) == 0 {
			continue
		}
		next.CurrentNumberScheduled++
		if slices.ContainsFunc(live, podfacts.Ready) {
			next.NumberReady++
		}
		if slices.ContainsFunc(live, s.available) {
			next.NumberAvailable++
		}
		if slices.ContainsFunc(live, s.updated) {
			next.UpdatedNumberScheduled++
		}
	}
	next.NumberUnavailable = next.DesiredNumberScheduled - next.NumberAvailable
	return next
}
