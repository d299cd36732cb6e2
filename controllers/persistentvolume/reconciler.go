package persistentvolume

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// Claims binds one claim. Volumes says what one volume is. Either may be called concurrently for
// different keys.
type (
	Claims  struct{ binder }
	Volumes struct{ binder }
)

type binder struct {
	client client.Client
	live   client.Reader // says whether a claim that a volume names is gone
	events events.EventRecorder
}

// Reconcile makes one pass over the claim that the request names.
func (r *Claims) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	claim := &corev1.PersistentVolumeClaim{}
	if err := r.client.Get(ctx, req.NamespacedName, claim); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	snap := claimSnapshot{Claim: claim}
	if name := claimClass(claim); name != "" {
		class, err := get(ctx, r.client, client.ObjectKey{Name: name}, &storagev1.StorageClass{})
		if err != nil {
			return reconcile.Result{}, err
		}
		snap.Class = class
	}
	var list corev1.PersistentVolumeList
	if err := r.client.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		return reconcile.Result{}, err
	}
	for i := range list.Items {
		snap.Volumes = append(snap.Volumes, &list.Items[i])
	}
	return reconcile.Result{}, r.apply(ctx, claim, planClaim(snap))
}

// apply writes as planned. Each write is of what was read, and the later are only made if the earlier
// went well.
func (r *Claims) apply(ctx context.Context, claim *corev1.PersistentVolumeClaim, act claimActions) error {
	if act.Volume != nil {
		if err := r.client.Update(ctx, act.Volume); err != nil {
			return fmt.Errorf("set aside volume %s: %w", act.Volume.Name, err)
		}
	}
	if act.Claim != nil {
		if err := r.client.Update(ctx, act.Claim); err != nil {
			return fmt.Errorf("name the volume: %w", err)
		}
		claim = act.Claim
	}
	if act.Note != (note{}) {
		r.events.Eventf(claim, nil, act.Note.level, act.Note.reason, "Bind", "%s", act.Note.message)
	}
	if equality.Semantic.DeepEqual(claim.Status, act.Status) {
		return nil
	}
	claim.Status = act.Status
	return client.IgnoreNotFound(r.client.Status().Update(ctx, claim))
}

// Reconcile makes one pass over the volume that the request names.
func (r *Volumes) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	volume := &corev1.PersistentVolume{}
	if err := r.client.Get(ctx, req.NamespacedName, volume); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	snap := volumeSnapshot{Volume: volume}
	if ref := volume.Spec.ClaimRef; ref != nil {
		key := client.ObjectKey{Namespace: ref.Namespace, Name: ref.Name}
		claim, err := get(ctx, r.client, key, &corev1.PersistentVolumeClaim{})
		if err == nil && ref.UID != "" && (claim == nil || claim.UID != ref.UID) && volume.Status.Phase != corev1.VolumeReleased {
			claim, err = get(ctx, r.live, key, &corev1.PersistentVolumeClaim{}) // before it is said that it is gone
		}
		if err != nil {
			return reconcile.Result{}, err
		}
		snap.Claim = claim
	}
	act := planVolume(snap)
	if act.Volume != nil {
		if err := r.client.Update(ctx, act.Volume); err != nil {
			return reconcile.Result{}, fmt.Errorf("free volume: %w", err)
		}
		volume = act.Volume
	}
	if act.Note != (note{}) {
		r.events.Eventf(volume, nil, act.Note.level, act.Note.reason, "Reclaim", "%s", act.Note.message)
	}
	// The server sets when the phase changed.
	act.Status.LastPhaseTransitionTime = volume.Status.LastPhaseTransitionTime
	if equality.Semantic.DeepEqual(volume.Status, act.Status) {
		return reconcile.Result{}, nil
	}
	volume.Status = act.Status
	return reconcile.Result{}, client.IgnoreNotFound(r.client.Status().Update(ctx, volume))
}

// get reads an object, or returns nil if it is not there.
func get[T client.Object](ctx context.Context, from client.Reader, key client.ObjectKey, into T) (found T, err error) {
	if err := from.Get(ctx, key, into); err != nil {
		return found, client.IgnoreNotFound(err)
	}
	return into, nil
}
