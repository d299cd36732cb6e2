package persistentvolume

import (
	"cmp"
	"context"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/setpoint-dev/setpoint/controller"
)

// Options are the settings of the controllers. The zero value is a good default.
type Options struct {
	// Workers is how many volumes are worked on at once; zero is 5. Claims are worked on one by one: they
	// want the same volumes.
	Workers int
}

// name is the controllers' in events and in the history of what they write.
const name = "persistentvolume-binder"

// Setup adds the controllers of claims and of volumes to the manager.
func Setup(mgr *controller.Manager, opts Options) error {
	b := newBinder(mgr.GetClient(), mgr.GetAPIReader(), mgr.GetEventRecorder(name))
	err := controller.ManagedBy(mgr).Named("persistentvolumeclaim").
		For(&corev1.PersistentVolumeClaim{}).
		Watches(&corev1.PersistentVolume{}, handler.EnqueueRequestsFromMapFunc(b.claimsOf)).
		Watches(&storagev1.StorageClass{}, handler.EnqueueRequestsFromMapFunc(b.pendingOf)).
		WithOptions(controller.Options{FieldOwner: name, MaxConcurrentReconciles: 1}).
		Complete(&Claims{b})
	if err != nil {
		return err
	}
	return controller.ManagedBy(mgr).Named("persistentvolume").
		For(&corev1.PersistentVolume{}).
		Watches(&corev1.PersistentVolumeClaim{}, handler.EnqueueRequestsFromMapFunc(b.volumesOf)).
		WithOptions(controller.Options{FieldOwner: name, MaxConcurrentReconciles: cmp.Or(opts.Workers, 5)}).
		Complete(&Volumes{b})
}

func newBinder(c client.Client, live client.Reader, rec events.EventRecorder) binder {
	return binder{client: c, live: live, events: rec}
}

// claimsOf wakes the claims that a volume concerns: those that it names or that name it, and, if it is
// free, those that wait for one of its class.
func (b binder) claimsOf(ctx context.Context, o client.Object) []reconcile.Request {
	volume := o.(*corev1.PersistentVolume)
	return b.claims(ctx, func(claim *corev1.PersistentVolumeClaim) bool {
		if isFor(volume, claim) || claim.Spec.VolumeName == volume.Name {
			return true
		}
		return volume.Spec.ClaimRef == nil && claim.Spec.VolumeName == "" && claimClass(claim) == volumeClass(volume)
	})
}

// pendingOf wakes the claims that wait for a volume of a class.
func (b binder) pendingOf(ctx context.Context, class client.Object) []reconcile.Request {
	return b.claims(ctx, func(claim *corev1.PersistentVolumeClaim) bool {
		return claim.Spec.VolumeName == "" && claimClass(claim) == class.GetName()
	})
}

func (b binder) claims(ctx context.Context, keep func(*corev1.PersistentVolumeClaim) bool) (out []reconcile.Request) {
	var list corev1.PersistentVolumeClaimList
	if b.client.List(ctx, &list, client.UnsafeDisableDeepCopy) != nil {
		return nil // each claim is looked at again at the next resync
	}
	for i := range list.Items {
		if claim := &list.Items[i]; keep(claim) {
			out = append(out, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(claim)})
		}
	}
	return out
}

// volumesOf wakes the volumes that name a claim or that it names.
func (b binder) volumesOf(ctx context.Context, o client.Object) (out []reconcile.Request) {
	claim := o.(*corev1.PersistentVolumeClaim)
	var list corev1.PersistentVolumeList
	if b.client.List(ctx, &list, client.UnsafeDisableDeepCopy) != nil {
		return nil
	}
	for i := range list.Items {
		volume := &list.Items[i]
		ref := volume.Spec.ClaimRef
		names := ref != nil && ref.Namespace == claim.Namespace && ref.Name == claim.Name
		if names || volume.Name == claim.Spec.VolumeName {
			out = append(out, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(volume)})
		}
	}
	return out
}
