// Package replicaset keeps the declared number of pods running for each ReplicaSet, and for each
// ReplicationController, which is planned as if it were one.
//
// A pass counts the pods that the set owns and are active (neither ended nor being deleted), creates
// or deletes the difference, and then records what it saw in the status. Which pods go first, what
// counts as a replica and what the status says are Kubernetes'. Two things are decided here:
// a set whose new pods fail as soon as they start replaces them more and more slowly, and after a
// create whose outcome is unknown the next pass counts pods at the server instead of in the cache.
package replicaset

import (
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/setpoint-dev/setpoint/controllers/podfacts"
)

// burstMax bounds how many pods one pass creates or deletes, so that a huge set does not keep a
// worker and the server from everything else. It is Kubernetes' value.
const burstMax = 500

// snapshot is what a pass decides on.
type snapshot struct {
	Set  *appsv1.ReplicaSet
	Pods []*corev1.Pod // owned by the set, whatever their state
	// Related returns the pods of the set's siblings, the sets of the same controller. It is asked
	// only if pods have to be chosen for deletion.
	Related func() []*corev1.Pod
	Now     time.Time
}

// actions is what a pass does before it writes the status.
type actions struct {
	Create int
	Remove []*corev1.Pod // in order of preference
	// Wait is how long until the pass should be made again, though nothing may have changed; zero
	// means never.
	Wait time.Duration
}

// plan returns the difference between what is declared and what is.
func plan(s snapshot) actions {
	active := podfacts.Filter(s.Pods, podfacts.Active)
	act := actions{Wait: podfacts.NextAvailable(active, s.Set.Spec.MinReadySeconds, s.Now)}
	if s.Set.DeletionTimestamp != nil {
		return act
	}
	missing := int(replicas(s.Set)) - len(active)
	switch {
	case missing > 0:
		if pause := failurePause(s.Pods, missing, s.Now); pause > 0 {
			act.Wait = podfacts.Sooner(act.Wait, pause)
			return act
		}
		act.Create = min(missing, burstMax)
	case missing < 0:
		act.Remove = chooseVictims(active, s.Related(), min(-missing, burstMax), s.Now)
	}
	return act
}

// replicas is the declared number; the API server sets one when it is left out.
func replicas(set *appsv1.ReplicaSet) int32 {
	if set.Spec.Replicas == nil {
		return 1
	}
	return *set.Spec.Replicas
}
