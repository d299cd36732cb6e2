package gc

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// ownerState is how the server answered when asked for an owner.
type ownerState int

const (
	// ownerSolid exists and keeps its dependents.
	ownerSolid ownerState = iota
	// ownerAbsent does not exist, or not with that uid.
	ownerAbsent
	// ownerWaiting is being deleted in the foreground and waits for its dependents to go.
	ownerWaiting
	// ownerInvalid cannot own the object: the object is in no namespace and the owner in one.
	ownerInvalid
)

// verb is what is to be done about an object.
type verb int

const (
	// keep: nothing.
	keep verb = iota
	// forget: the object is gone; its dependents have to be looked at.
	forget
	// awaitDependents: look at the dependents that its deletion waits for.
	awaitDependents
	// finishForeground: no dependent is waited for; take the finalizer away.
	finishForeground
	// releaseDependents: take the object out of its dependents' owners, then the finalizer away.
	releaseDependents
	// dropOwners: take the owners in Drop out of the object's references; the others keep it.
	dropOwners
	// remove: delete it as Policy says.
	remove
)

// verdict is what decide came to.
type verdict struct {
	Verb   verb
	Drop   []types.UID
	Policy metav1.DeletionPropagation
	// Unblock says that, before the deletion, the object's references must stop blocking its
	// owners: a dependent waits as well, and they may wait for each other in a circle.
	Unblock bool
}

// settled is the verdict on an object from the object alone, as the server has it (nil: it does not,
// or has another uid by that name). ok is false if it depends on the owners.
func settled(v view, live *metav1.PartialObjectMetadata) (_ verdict, ok bool) {
	switch {
	case live == nil:
		return verdict{Verb: forget}, true
	case live.DeletionTimestamp == nil:
		return verdict{}, len(live.OwnerReferences) == 0
	case slices.Contains(live.Finalizers, metav1.FinalizerOrphanDependents):
		return verdict{Verb: releaseDependents}, true
	case slices.Contains(live.Finalizers, metav1.FinalizerDeleteDependents):
		if slices.ContainsFunc(v.Dependents, func(d dependent) bool { return d.Blocking }) {
			return verdict{Verb: awaitDependents}, true
		}
		return verdict{Verb: finishForeground}, true
	}
	return verdict{}, true // on its way out; nobody waits for the collector
}

// decide is the verdict on an object that is not being deleted, with the state of each of its
// owners.
func decide(v view, live *metav1.PartialObjectMetadata, owners []ownerState) verdict {
	var drop []types.UID
	var solid, waiting bool
	for i, state := range owners {
		switch state {
		case ownerSolid, ownerInvalid:
			solid = true
		case ownerWaiting:
			waiting = true
			drop = append(drop, live.OwnerReferences[i].UID)
		case ownerAbsent:
			drop = append(drop, live.OwnerReferences[i].UID)
		}
	}
	switch {
	case solid && len(drop) == 0:
		return verdict{}
	case solid:
		return verdict{Verb: dropOwners, Drop: drop}
	case waiting && len(v.Dependents) > 0:
		circle := slices.ContainsFunc(v.Dependents, func(d dependent) bool { return d.Foreground })
		return verdict{Verb: remove, Policy: metav1.DeletePropagationForeground, Unblock: circle}
	}
	return verdict{Verb: remove, Policy: policyOf(live)}
}

// policyOf is how an object is deleted whose owner is gone: as its finalizers ask, else in the
// background.
func policyOf(live *metav1.PartialObjectMetadata) metav1.DeletionPropagation {
	switch {
	case slices.Contains(live.Finalizers, metav1.FinalizerOrphanDependents):
		return metav1.DeletePropagationOrphan
	case slices.Contains(live.Finalizers, metav1.FinalizerDeleteDependents):
		return metav1.DeletePropagationForeground
	}
	return metav1.DeletePropagationBackground
}
