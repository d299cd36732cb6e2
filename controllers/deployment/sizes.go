package deployment

import (
	"cmp"
	"math"
	"slices"
	"strconv"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
)

// want is the declared number of pods.
func (r *rollout) want() int32 { return ptr.Deref(r.deployment.Spec.Replicas, 1) }

// bounds returns how many pods a rolling update may have above and below the declared number.
// Percentages of surge round up and those of unavailability down; if both come to nothing, one pod
// may be unavailable, or the rollout could never move. Other strategies have no room either way.
func bounds(d *appsv1.Deployment) (surge, unavailable int32) {
	rolling := d.Spec.Strategy.RollingUpdate
	want := ptr.Deref(d.Spec.Replicas, 1)
	if d.Spec.Strategy.Type == appsv1.RecreateDeploymentStrategyType || rolling == nil {
		return 0, 0
	}
	surge = scaled(rolling.MaxSurge, want, true)
	unavailable = scaled(rolling.MaxUnavailable, want, false)
	if surge == 0 && unavailable == 0 {
		unavailable = 1
	}
	return surge, min(unavailable, want)
}

// scaled resolves a number or percentage of total; one that cannot be read, which the API server
// does not let in, counts as zero.
func scaled(value *intstr.IntOrString, total int32, up bool) int32 {
	if value == nil {
		return 0
	}
	n, err := intstr.GetScaledValueFromIntOrPercent(value, int(total), up)
	if err != nil {
		return 0
	}
	return int32(n)
}

// newReplicas is the size of the current set in a rolling update: as near to the declared number as
// the surge leaves room for.
func newReplicas(r *rollout) int32 {
	want := r.want()
	var have int32
	if r.current != nil {
		have = *r.current.Spec.Replicas
	}
	surge, _ := bounds(r.deployment)
	room := want + surge - declared(r.all())
	return have + max(0, min(room, want-have))
}

// shrinkOld takes pods from old sets, without ever counting on a pod that is not available, and
// says whether it did. Unhealthy pods of old sets go first: they serve nobody, and would hold up
// the rollout for ever. It waits until every set's controller has seen the size it was last given:
// when a template is changed to and fro, a status from before may count pods that are going.
func (r *rollout) shrinkOld() bool {
	if slices.ContainsFunc(active(r.all()), unseen) {
		return false
	}
	_, unavailable := bounds(r.deployment)
	floor := r.want() - unavailable
	newUnavailable := *r.current.Spec.Replicas - available(r.current)
	spare := declared(r.all()) - floor - newUnavailable
	if declared(r.old) == 0 || spare <= 0 {
		return false
	}
	shrunk := false
	for _, set := range active(r.old) {
		sick := *set.Spec.Replicas - available(set)
		if drop := min(spare, sick); drop > 0 {
			r.resize(set, *set.Spec.Replicas-drop)
			spare -= drop
			shrunk = true
		}
	}
	surplus := sum(r.all(), available) - floor
	for _, set := range active(r.old) {
		if drop := min(surplus, *set.Spec.Replicas); drop > 0 {
			r.resize(set, *set.Spec.Replicas-drop)
			surplus -= drop
			shrunk = true
		}
	}
	return shrunk
}

// rescaled reports whether the deployment was scaled since its sets were last sized.
func (r *rollout) rescaled() bool {
	for _, set := range active(r.all()) {
		noted, ok := count(set, desiredAnnotation)
		if ok && noted != r.want() {
			return true
		}
	}
	return false
}

// scale brings the sets to the size of the deployment without moving the rollout: a single active
// set takes all; a saturated current set leaves nothing to the others; and in the middle of a
// rolling update each set grows or shrinks in proportion to its size, so that a rollout that goes
// wrong does not go wrong for more.
func (r *rollout) scale() {
	if only := r.onlyActive(); only != nil {
		r.resize(only, r.want())
		return
	}
	if len(r.all()) == 0 {
		return // paused before its first set, or after its last was deleted
	}
	if r.saturated() {
		for _, set := range active(r.old) {
			r.resize(set, 0)
		}
		return
	}
	if r.deployment.Spec.Strategy.Type != appsv1.RecreateDeploymentStrategyType {
		r.scaleProportionally()
		return
	}
	for _, set := range active(r.all()) {
		r.resize(set, *set.Spec.Replicas) // the size is noted, and the next pass rolls on
	}
}

// onlyActive returns the one set that has replicas; if none has, the newest one; if several have,
// nil.
func (r *rollout) onlyActive() *appsv1.ReplicaSet {
	switch active := active(r.all()); {
	case len(active) == 1:
		return active[0]
	case len(active) > 1 || len(r.all()) == 0:
		return nil
	case r.current != nil:
		return r.current
	}
	return r.old[len(r.old)-1]
}

// saturated reports whether the current set alone is all that was asked for, and available.
func (r *rollout) saturated() bool {
	if r.current == nil {
		return false
	}
	noted, ok := count(r.current, desiredAnnotation)
	return ok && noted == r.want() && *r.current.Spec.Replicas == r.want() &&
		available(r.current) == r.want() && !unseen(r.current)
}

func (r *rollout) scaleProportionally() {
	sets := active(r.all())
	var allowed int32
	if r.want() > 0 {
		surge, _ := bounds(r.deployment)
		allowed = r.want() + surge
	}
	toAdd := allowed - declared(sets)
	// Larger sets first; among equals growth favours the newest and shrinking the oldest.
	slices.SortStableFunc(sets, func(a, b *appsv1.ReplicaSet) int {
		age := byAge(a, b)
		if toAdd > 0 {
			age = -age
		}
		return cmp.Or(cmp.Compare(*b.Spec.Replicas, *a.Spec.Replicas), age)
	})
	sizes := make([]int32, len(sets))
	var added int32
	for i, set := range sets {
		share := r.share(set, toAdd, added)
		sizes[i] = *set.Spec.Replicas + share
		added += share
	}
	sizes[0] = max(0, sizes[0]+toAdd-added) // what rounding left over
	for i, set := range sets {
		r.resize(set, sizes[i])
	}
}

// share is what of toAdd, of which added is given away already, goes to the set.
func (r *rollout) share(set *appsv1.ReplicaSet, toAdd, added int32) int32 {
	if toAdd == added {
		return 0
	}
	fraction := r.fraction(set)
	if toAdd > 0 {
		return min(fraction, toAdd-added)
	}
	return max(fraction, toAdd-added)
}

// fraction is by how much the set changes if the deployment does in the same proportion.
func (r *rollout) fraction(set *appsv1.ReplicaSet) int32 {
	have := *set.Spec.Replicas
	if r.want() == 0 {
		return -have
	}
	total, ok := count(set, maxAnnotation)
	if !ok || total == 0 {
		total = r.deployment.Status.Replicas
	}
	if total == 0 {
		return 0
	}
	surge, _ := bounds(r.deployment)
	return int32(math.Round(float64(have)*float64(r.want()+surge)/float64(total))) - have
}

// noteSize records on the set how large its deployment is meant to be.
func (r *rollout) noteSize(set *appsv1.ReplicaSet) {
	surge, _ := bounds(r.deployment)
	annotate(set, desiredAnnotation, strconv.Itoa(int(r.want())))
	annotate(set, maxAnnotation, strconv.Itoa(int(r.want()+surge)))
}

func active(sets []*appsv1.ReplicaSet) []*appsv1.ReplicaSet {
	var result []*appsv1.ReplicaSet
	for _, set := range sets {
		if *set.Spec.Replicas > 0 {
			result = append(result, set)
		}
	}
	return result
}

// available is how many of the set's pods can be counted on: those beyond its size are going,
// though the status may still tell of them.
func available(set *appsv1.ReplicaSet) int32 {
	return min(set.Status.AvailableReplicas, *set.Spec.Replicas)
}

// unseen reports whether the set's controller has yet to act on its newest size.
func unseen(set *appsv1.ReplicaSet) bool {
	return set.Status.ObservedGeneration < set.Generation
}

func declared(sets []*appsv1.ReplicaSet) int32 {
	return sum(sets, func(s *appsv1.ReplicaSet) int32 { return *s.Spec.Replicas })
}

func sum(sets []*appsv1.ReplicaSet, of func(*appsv1.ReplicaSet) int32) int32 {
	var total int32
	for _, set := range sets {
		total += of(set)
	}
	return total
}
