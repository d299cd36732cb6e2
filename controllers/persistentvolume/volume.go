package persistentvolume

import (
	corev1 "k8s.io/api/core/v1"
)

// provisionedBy names the provisioner that made a volume, and that deletes it when it is released.
const provisionedBy = "pv.kubernetes.io/provisioned-by"

// volumeSnapshot is what a pass over a volume decides on. Nothing in it is changed.
type volumeSnapshot struct {
	Volume *corev1.PersistentVolume
	Claim  *corev1.PersistentVolumeClaim // of the name that the volume has; nil if there is none
}

// volumeActions is what such a pass writes; nil is nothing.
type volumeActions struct {
	Volume *corev1.PersistentVolume // its spec and metadata
	Status corev1.PersistentVolumeStatus
	Note   note
}

// planVolume decides one pass over a volume.
func planVolume(s volumeSnapshot) volumeActions {
	act := volumeActions{Status: *s.Volume.Status.DeepCopy()}
	ref := s.Volume.Spec.ClaimRef
	switch {
	case ref == nil || ref.UID == "":
		act.phase(corev1.VolumeAvailable) // set aside for a name, perhaps, which nobody has yet
	case s.Claim == nil || s.Claim.UID != ref.UID:
		act.release(s.Volume)
	case s.Claim.Spec.VolumeName == s.Volume.Name:
		act.phase(corev1.VolumeBound)
	case s.Claim.Spec.VolumeName == "":
		// The claim is about to be bound; which volume it takes it says itself.
	default:
		act.unbind(s.Volume)
	}
	return act
}

func (a *volumeActions) phase(phase corev1.PersistentVolumePhase) {
	if a.Status.Phase != phase {
		a.Status.Phase, a.Status.Message, a.Status.Reason = phase, "", ""
	}
}

// release marks a volume whose claim is gone. One that is to be deleted then, and that no provisioner made,
// stays: nobody here knows how.
func (a *volumeActions) release(volume *corev1.PersistentVolume) {
	if a.Status.Phase == corev1.VolumeFailed {
		return
	}
	a.phase(corev1.VolumeReleased)
	if volume.Spec.PersistentVolumeReclaimPolicy != corev1.PersistentVolumeReclaimDelete ||
		volume.Annotations[provisionedBy] != "" || volume.Spec.CSI != nil || volume.DeletionTimestamp != nil {
		return
	}
	a.Status.Phase = corev1.VolumeFailed
	a.Status.Message = "error getting deleter volume plugin for volume " + `"` + volume.Name + `": no deletable volume plugin matched`
	a.Note = warning("VolumeFailedDelete", "%s", a.Status.Message)
}

// unbind frees a volume from a claim that took another one: what the controller wrote goes, and what
// somebody wrote is cut down to the claim's name.
func (a *volumeActions) unbind(volume *corev1.PersistentVolume) {
	a.Volume = volume.DeepCopy()
	if volume.Annotations[boundByController] != "" {
		a.Volume.Spec.ClaimRef = nil
		delete(a.Volume.Annotations, boundByController)
	} else {
		a.Volume.Spec.ClaimRef.UID, a.Volume.Spec.ClaimRef.ResourceVersion = "", ""
	}
	a.phase(corev1.VolumeAvailable)
}
