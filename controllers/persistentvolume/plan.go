// Package persistentvolume binds claims to volumes.
//
// Two controllers share the work, and each writes its own kind. That of claims finds a volume, has the
// volume name the claim, then the claim the volume, and only then says that the claim is bound; a volume
// is taken by the write that names the claim, which fails if anybody was faster. That of volumes says
// what a volume is: available, bound, or released by a claim that is gone.
//
// Volumes are not made here, and the data of released ones is not deleted: that is for provisioners, which
// are told by annotations, as in Kubernetes. A claim whose class waits for its first consumer stays
// pending unless a volume was set aside for it.
package persistentvolume

import (
	"cmp"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/utils/ptr"
)

// The annotations by which Kubernetes' parts tell each other of bindings.
const (
	bindCompleted      = "pv.kubernetes.io/bind-completed"
	boundByController  = "pv.kubernetes.io/bound-by-controller"
	storageProvisioner = "volume.kubernetes.io/storage-provisioner"
	betaProvisioner    = "volume.beta.kubernetes.io/storage-provisioner"
	selectedNode       = "volume.kubernetes.io/selected-node"
	yes                = "yes"
)

// note is an event; the zero value is none.
type note struct{ level, reason, message string }

func normal(reason, format string, args ...any) note {
	return note{corev1.EventTypeNormal, reason, fmt.Sprintf(format, args...)}
}

func warning(reason, format string, args ...any) note {
	return note{corev1.EventTypeWarning, reason, fmt.Sprintf(format, args...)}
}

// claimSnapshot is what a pass over a claim decides on. Nothing in it is changed.
type claimSnapshot struct {
	Claim   *corev1.PersistentVolumeClaim
	Class   *storagev1.StorageClass // the one that the claim names; nil if there is none of the name
	Volumes []*corev1.PersistentVolume
}

// claimActions is what such a pass writes, in this order; nil is nothing.
type claimActions struct {
	Volume *corev1.PersistentVolume      // its spec and metadata
	Claim  *corev1.PersistentVolumeClaim // its spec and metadata
	Status corev1.PersistentVolumeClaimStatus
	Note   note
}

// planClaim decides one pass over a claim.
func planClaim(s claimSnapshot) claimActions {
	act := claimActions{Status: *s.Claim.Status.DeepCopy()}
	if s.Claim.DeletionTimestamp != nil {
		return act
	}
	switch {
	case s.Claim.Annotations[bindCompleted] != "":
		s.keep(&act)
	case s.Claim.Spec.VolumeName != "":
		s.bindNamed(&act)
	default:
		s.bindAny(&act)
	}
	return act
}

// keep looks after a claim that has been bound: it stays so, or has lost its volume for good.
func (s claimSnapshot) keep(act *claimActions) {
	volume := s.volume(s.Claim.Spec.VolumeName)
	switch {
	case s.Claim.Spec.VolumeName == "":
		act.lose("ClaimLost", "Bound claim has lost reference to PersistentVolume. Data on the volume is lost!")
	case volume == nil:
		act.lose("ClaimLost", "Bound claim has lost its PersistentVolume. Data on the volume is lost!")
	case volume.Spec.ClaimRef != nil && volume.Spec.ClaimRef.UID != s.Claim.UID:
		act.lose("ClaimMisbound", "Two claims are bound to the same volume, this one is bound incorrectly")
	default:
		act.bind(s.Claim, volume)
	}
}

func (a *claimActions) lose(reason, message string) {
	if a.Status.Phase != corev1.ClaimLost {
		a.Status.Phase = corev1.ClaimLost
		a.Note = warning(reason, "%s", message)
	}
	a.Status.AccessModes, a.Status.Capacity = nil, nil
}

// bindNamed binds a claim to the volume that somebody chose for it, once it is there and free.
func (s claimSnapshot) bindNamed(act *claimActions) {
	act.Status.Phase = corev1.ClaimPending
	volume := s.volume(s.Claim.Spec.VolumeName)
	switch {
	case volume == nil:
	case volume.Spec.ClaimRef == nil:
		if why := mismatch(s.Claim, volume); why != "" {
			act.Note = warning("VolumeMismatch", "Cannot bind to requested volume %q: %s", volume.Name, why)
			return
		}
		act.bind(s.Claim, volume)
	case isFor(volume, s.Claim):
		act.bind(s.Claim, volume)
	default:
		act.Note = warning("FailedBinding", "volume %q already bound to a different claim.", volume.Name)
	}
}

// bindAny binds a claim to the volume that suits it best, if there is one.
func (s claimSnapshot) bindAny(act *claimActions) {
	act.Status.Phase = corev1.ClaimPending
	waits := s.Class != nil && s.Class.VolumeBindingMode != nil &&
		*s.Class.VolumeBindingMode == storagev1.VolumeBindingWaitForFirstConsumer
	if volume := s.best(waits); volume != nil {
		act.bind(s.Claim, volume)
		return
	}
	className := claimClass(s.Claim)
	switch {
	case waits && s.Claim.Annotations[selectedNode] == "":
		act.Note = normal("WaitForFirstConsumer", "waiting for first consumer to be created before binding")
	case className == "":
		act.Note = normal("FailedBinding", "no persistent volumes available for this claim and no storage class is set")
	case s.Class == nil:
		act.Note = warning("ProvisioningFailed", "storageclass.storage.k8s.io %q not found", className)
	default:
		act.askProvisioner(s.Claim, s.Class.Provisioner)
	}
}

// noProvisioner is the provisioner of classes whose volumes somebody makes by hand.
const noProvisioner = "kubernetes.io/no-provisioner"

// askProvisioner tells the provisioner of a class, if somebody runs it, that a volume is wanted.
func (a *claimActions) askProvisioner(claim *corev1.PersistentVolumeClaim, provisioner string) {
	if provisioner == noProvisioner {
		a.Note = normal("FailedBinding", "no persistent volumes available for this claim, and its class has no provisioner")
		return
	}
	a.Note = normal("ExternalProvisioning", "Waiting for a volume to be created either by the external provisioner '%s' or "+
		"manually by the system administrator. If volume creation is delayed, please verify that the provisioner is running "+
		"and correctly registered.", provisioner)
	if claim.Annotations[storageProvisioner] == provisioner && claim.Annotations[betaProvisioner] == provisioner {
		return
	}
	a.Claim = claim.DeepCopy()
	metav1.SetMetaDataAnnotation(&a.Claim.ObjectMeta, storageProvisioner, provisioner)
	metav1.SetMetaDataAnnotation(&a.Claim.ObjectMeta, betaProvisioner, provisioner)
}

// bind plans what a claim and its volume lack of being bound to each other.
func (a *claimActions) bind(claim *corev1.PersistentVolumeClaim, volume *corev1.PersistentVolume) {
	if ref := volume.Spec.ClaimRef; ref == nil || ref.UID != claim.UID {
		a.Volume = volume.DeepCopy()
		if ref == nil {
			metav1.SetMetaDataAnnotation(&a.Volume.ObjectMeta, boundByController, yes)
		}
		a.Volume.Spec.ClaimRef = &corev1.ObjectReference{
			APIVersion: "v1", Kind: "PersistentVolumeClaim", Namespace: claim.Namespace, Name: claim.Name,
			UID: claim.UID, ResourceVersion: claim.ResourceVersion,
		}
	}
	if claim.Spec.VolumeName == "" || claim.Annotations[bindCompleted] == "" {
		a.Claim = claim.DeepCopy()
		if claim.Spec.VolumeName == "" {
			a.Claim.Spec.VolumeName = volume.Name
			metav1.SetMetaDataAnnotation(&a.Claim.ObjectMeta, boundByController, yes)
		}
		metav1.SetMetaDataAnnotation(&a.Claim.ObjectMeta, bindCompleted, yes)
	}
	if a.Status.Phase != corev1.ClaimBound {
		a.Status.Phase = corev1.ClaimBound
		a.Status.AccessModes = volume.Spec.AccessModes
		a.Status.Capacity = volume.Spec.Capacity.DeepCopy()
		a.Status.CurrentVolumeAttributesClassName = nil
		if class := volume.Spec.VolumeAttributesClassName; class != nil {
			a.Status.CurrentVolumeAttributesClassName = ptr.To(*class)
		}
	}
}

func (s claimSnapshot) volume(name string) *corev1.PersistentVolume {
	i := slices.IndexFunc(s.Volumes, func(v *corev1.PersistentVolume) bool { return v.Name == name })
	if i < 0 {
		return nil
	}
	return s.Volumes[i]
}

// best returns the volume for a claim: one that was set aside for it, or else, unless the claim waits, the
// free one that has the least of what was not asked for.
func (s claimSnapshot) best(waits bool) *corev1.PersistentVolume {
	var free []*corev1.PersistentVolume
	for _, volume := range s.Volumes {
		switch {
		case volume.DeletionTimestamp != nil || mismatch(s.Claim, volume) != "":
		case volume.Spec.ClaimRef != nil:
			if isFor(volume, s.Claim) {
				return volume
			}
		case !waits && volume.Status.Phase == corev1.VolumeAvailable && selects(s.Claim, volume):
			free = append(free, volume)
		}
	}
	if len(free) == 0 {
		return nil
	}
	return slices.MinFunc(free, func(a, b *corev1.PersistentVolume) int {
		sizeA, sizeB := a.Spec.Capacity[corev1.ResourceStorage], b.Spec.Capacity[corev1.ResourceStorage]
		return cmp.Or(cmp.Compare(len(a.Spec.AccessModes), len(b.Spec.AccessModes)), sizeA.Cmp(sizeB), cmp.Compare(a.Name, b.Name))
	})
}

// isFor says whether a volume names a claim: that very one, or any of its name.
func isFor(volume *corev1.PersistentVolume, claim *corev1.PersistentVolumeClaim) bool {
	ref := volume.Spec.ClaimRef
	return ref != nil && ref.Namespace == claim.Namespace && ref.Name == claim.Name && (ref.UID == "" || ref.UID == claim.UID)
}

func selects(claim *corev1.PersistentVolumeClaim, volume *corev1.PersistentVolume) bool {
	if claim.Spec.Selector == nil {
		return true
	}
	selector, err := metav1.LabelSelectorAsSelector(claim.Spec.Selector)
	return err == nil && selector.Matches(labels.Set(volume.Labels))
}

// mismatch says what of a volume is not as a claim asks; "" if all is.
func mismatch(claim *corev1.PersistentVolumeClaim, volume *corev1.PersistentVolume) string {
	asked, size := claim.Spec.Resources.Requests[corev1.ResourceStorage], volume.Spec.Capacity[corev1.ResourceStorage]
	file := corev1.PersistentVolumeFilesystem
	switch {
	case size.Cmp(asked) < 0:
		return "requested PV is too small"
	case volumeClass(volume) != claimClass(claim):
		return "storageClassName does not match"
	case ptr.Deref(claim.Spec.VolumeMode, file) != ptr.Deref(volume.Spec.VolumeMode, file):
		return "incompatible volumeMode"
	case ptr.Deref(claim.Spec.VolumeAttributesClassName, "") != ptr.Deref(volume.Spec.VolumeAttributesClassName, ""):
		return "volumeAttributesClassName does not match"
	case !covers(volume.Spec.AccessModes, claim.Spec.AccessModes):
		return "incompatible accessMode"
	}
	return ""
}

func covers(have, want []corev1.PersistentVolumeAccessMode) bool {
	return !slices.ContainsFunc(want, func(m corev1.PersistentVolumeAccessMode) bool { return !slices.Contains(have, m) })
}

// claimClass and volumeClass name the class of either; an annotation of old comes before the field.
func claimClass(claim *corev1.PersistentVolumeClaim) string {
	return cmp.Or(claim.Annotations[corev1.BetaStorageClassAnnotation], ptr.Deref(claim.Spec.StorageClassName, ""))
}

func volumeClass(volume *corev1.PersistentVolume) string {
	return cmp.Or(volume.Annotations[corev1.BetaStorageClassAnnotation], volume.Spec.StorageClassName)
}
