// Package volumeprotection keeps claims that pods use, volumes that claims use, and classes of attributes
// that either has, from going: each has a finalizer, which is taken away when it is to be deleted and nobody
// uses it any more. Of a bound claim it also says since when no pod uses it.
package volumeprotection

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/setpoint-dev/setpoint/controllers/podfacts"
)

// The finalizers are Kubernetes'.
const (
	claimFinalizer  = "kubernetes.io/pvc-protection"
	volumeFinalizer = "kubernetes.io/pv-protection"
	classFinalizer  = "kubernetes.io/vac-protection"
)

// claimName is the claim that a volume of a pod is, or "".
func claimName(pod *corev1.Pod, volume *corev1.Volume) string {
	switch {
	case volume.PersistentVolumeClaim != nil:
		return volume.PersistentVolumeClaim.ClaimName
	case volume.Ephemeral != nil:
		return pod.Name + "-" + volume.Name
	}
	return ""
}

// names says whether a pod that has not ended has a claim.
func names(pod *corev1.Pod, claim *corev1.PersistentVolumeClaim) bool {
	return !podfacts.Terminal(pod) && slices.ContainsFunc(pod.Spec.Volumes, func(v corev1.Volume) bool {
		if v.Ephemeral != nil && !metav1.IsControlledBy(claim, pod) {
			return false // a namesake
		}
		return claimName(pod, &v) == claim.Name
	})
}

// uses says whether a claim may not go because of a pod. One that is on no node does not use it yet.
func uses(pod *corev1.Pod, claim *corev1.PersistentVolumeClaim) bool {
	return pod.Spec.NodeName != "" && names(pod, claim)
}

// unused returns the conditions of a claim as they should be. Only a bound one has them, so that they do
// not meet the writes that bind it.
func unused(claim *corev1.PersistentVolumeClaim, pods []*corev1.Pod, now time.Time) []corev1.PersistentVolumeClaimCondition {
	next := slices.Clone(claim.Status.Conditions)
	if claim.DeletionTimestamp != nil || claim.Status.Phase != corev1.ClaimBound {
		return next
	}
	c := corev1.PersistentVolumeClaimCondition{
		Type: corev1.PersistentVolumeClaimUnused, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(now),
		Reason: "NoPodsUsingPVC", Message: "No pods are currently referencing this PVC",
	}
	if slices.ContainsFunc(pods, func(pod *corev1.Pod) bool { return names(pod, claim) }) {
		c.Status, c.Reason, c.Message = corev1.ConditionFalse, "PodUsingPVC", "A pod is currently referencing this PVC"
	}
	i := slices.IndexFunc(next, func(old corev1.PersistentVolumeClaimCondition) bool { return old.Type == c.Type })
	switch {
	case i < 0:
		next = append(next, c)
	case next[i].Status != c.Status:
		next[i] = c
	}
	return next
}

// classesOf are the classes of attributes that a claim or a volume has, is to have, or is being given.
func classesOf(o client.Object) (names []string) {
	said := func(name *string) {
		if name != nil && *name != "" {
			names = append(names, *name)
		}
	}
	switch o := o.(type) {
	case *corev1.PersistentVolume:
		said(o.Spec.VolumeAttributesClassName)
	case *corev1.PersistentVolumeClaim:
		said(o.Spec.VolumeAttributesClassName)
		said(o.Status.CurrentVolumeAttributesClassName)
		if target := o.Status.ModifyVolumeStatus; target != nil {
			said(&target.TargetVolumeAttributesClassName)
		}
	}
	return names
}
