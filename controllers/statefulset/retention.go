package statefulset

import (
	"context"
	"errors"
	"fmt"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// How long a claim stays is said by whose dependent it is: one that is to go with the set is the set's,
// one that is to go with a pod that is too many is that pod's, and the others are nobody's. The collector
// of garbage does the rest.

var podKind = corev1.SchemeGroupVersion.WithKind("Pod")

// deletesWith says with what the claims of a set go: with the set, with pods that are too many.
func deletesWith(set *appsv1.StatefulSet) (withSet, withPod bool) {
	policy := ptr.Deref(set.Spec.PersistentVolumeClaimRetentionPolicy, appsv1.StatefulSetPersistentVolumeClaimRetentionPolicy{})
	return policy.WhenDeleted == appsv1.DeletePersistentVolumeClaimRetentionPolicyType,
		policy.WhenScaled == appsv1.DeletePersistentVolumeClaimRetentionPolicyType
}

// claimOwners returns the owners that a claim of a pod should have; condemned says that the pod is too
// many. A claim that somebody else controls, a namesake of the set or of the pod among them, is not the
// set's to give.
func claimOwners(set *appsv1.StatefulSet, pod *corev1.Pod, claim *corev1.PersistentVolumeClaim,
	condemned bool,
) []metav1.OwnerReference {
	ours := func(ref metav1.OwnerReference) bool { return ref.UID == set.UID || ref.UID == pod.UID }
	others := slices.DeleteFunc(slices.Clone(claim.OwnerReferences), ours)
	foreign := slices.ContainsFunc(others, func(ref metav1.OwnerReference) bool { return ptr.Deref(ref.Controller, false) })
	withSet, withPod := deletesWith(set)
	switch {
	case foreign:
		return others
	case condemned && withPod:
		return append(others, *metav1.NewControllerRef(pod, podKind))
	case withSet:
		return append(others, *metav1.NewControllerRef(set, kind))
	}
	return others
}

// retain gives the claims of all pods the owners that they should have. It comes before pods are deleted,
// so that what goes with them is theirs by then.
func (r *Reconciler) retain(ctx context.Context, s snapshot) error {
	if len(s.Set.Spec.VolumeClaimTemplates) == 0 {
		return nil
	}
	last := s.first() + int(ptr.Deref(s.Set.Spec.Replicas, 1))
	var errs []error
	for _, pod := range s.Pods {
		number := ordinal(pod)
		for _, template := range s.Set.Spec.VolumeClaimTemplates {
			claim := &corev1.PersistentVolumeClaim{}
			key := types.NamespacedName{Namespace: s.Set.Namespace, Name: claimName(s.Set, template.Name, number)}
			if err := r.client.Get(ctx, key, claim); err != nil {
				errs = append(errs, client.IgnoreNotFound(err))
				continue
			}
			owners := claimOwners(s.Set, pod, claim, number < s.first() || number >= last)
			if claim.DeletionTimestamp != nil || equality.Semantic.DeepEqual(claim.OwnerReferences, owners) {
				continue
			}
			claim.OwnerReferences = owners
			if err := r.client.Update(ctx, claim); err != nil && !apierrors.IsNotFound(err) {
				errs = append(errs, fmt.Errorf("claim %s: %w", claim.Name, err))
			}
		}
	}
	return errors.Join(errs...)
}

// goesWithPod says whether a claim is the dependent of a pod that was too many.
func goesWithPod(claim *corev1.PersistentVolumeClaim) bool {
	ref := metav1.GetControllerOfNoCopy(claim)
	return ref != nil && ref.Kind == podKind.Kind
}
