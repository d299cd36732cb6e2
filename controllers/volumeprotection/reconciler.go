package volumeprotection

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/setpoint-dev/setpoint/controller"
	"github.com/setpoint-dev/setpoint/controllers/podcontrol"
)

// Claims protects one claim. It may be called concurrently for different keys.
type Claims struct {
	client client.Client
	live   client.Reader // has the last word before a claim may go
	clock  clock.PassiveClock
}

func newClaims(c client.Client, live client.Reader, clk clock.PassiveClock) *Claims {
	return &Claims{client: c, live: live, clock: clk}
}

// Reconcile makes one pass over the claim that the request names.
func (r *Claims) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	claim := &corev1.PersistentVolumeClaim{}
	if err := r.client.Get(ctx, req.NamespacedName, claim); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	if claim.DeletionTimestamp == nil {
		if err := protect(ctx, r.client, claim, claimFinalizer); err != nil {
			return reconcile.Result{}, err
		}
	}
	pods, err := podcontrol.List(ctx, r.client, client.InNamespace(claim.Namespace), client.UnsafeDisableDeepCopy)
	if err != nil {
		return reconcile.Result{}, err
	}
	if conditions := unused(claim, pods, r.clock.Now()); !equality.Semantic.DeepEqual(claim.Status.Conditions, conditions) {
		err := controller.PatchOwnStatus(ctx, r.client, claim, func() { claim.Status.Conditions = conditions })
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	if claim.DeletionTimestamp == nil || !controllerutil.ContainsFinalizer(claim, claimFinalizer) || used(claim, pods) {
		return reconcile.Result{}, nil
	}
	if pods, err = podcontrol.List(ctx, r.live, client.InNamespace(claim.Namespace)); err != nil || used(claim, pods) {
		return reconcile.Result{}, err
	}
	return reconcile.Result{}, release(ctx, r.client, claim, claimFinalizer)
}

func used(claim *corev1.PersistentVolumeClaim, pods []*corev1.Pod) bool {
	return slices.ContainsFunc(pods, func(pod *corev1.Pod) bool { return uses(pod, claim) })
}

// Volumes protects one volume. It may be called concurrently for different keys.
type Volumes struct{ client client.Client }

func newVolumes(c client.Client) *Volumes { return &Volumes{client: c} }

// Reconcile makes one pass over the volume that the request names.
func (r *Volumes) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	volume := &corev1.PersistentVolume{}
	if err := r.client.Get(ctx, req.NamespacedName, volume); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	switch {
	case volume.DeletionTimestamp == nil:
		return reconcile.Result{}, protect(ctx, r.client, volume, volumeFinalizer)
	case volume.Status.Phase == corev1.VolumeBound:
		return reconcile.Result{}, nil
	}
	return reconcile.Result{}, release(ctx, r.client, volume, volumeFinalizer)
}

// Classes protects one class of volume attributes. It may be called concurrently for different keys.
type Classes struct {
	client client.Client
	live   client.Reader // has the last word before a class may go
}

func newClasses(c client.Client, live client.Reader) *Classes { return &Classes{client: c, live: live} }

// Reconcile makes one pass over the class that the request names.
func (r *Classes) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	class := &storagev1.VolumeAttributesClass{}
	if err := r.client.Get(ctx, req.NamespacedName, class); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	if class.DeletionTimestamp == nil {
		return reconcile.Result{}, protect(ctx, r.client, class, classFinalizer)
	}
	if !controllerutil.ContainsFinalizer(class, classFinalizer) {
		return reconcile.Result{}, nil
	}
	for _, reader := range []client.Reader{r.client, r.live} {
		if had, err := isHad(ctx, reader, class.Name); had || err != nil {
			return reconcile.Result{}, err
		}
	}
	return reconcile.Result{}, release(ctx, r.client, class, classFinalizer)
}

// isHad says whether a claim or a volume has a class.
func isHad(ctx context.Context, reader client.Reader, class string) (bool, error) {
	claims, volumes := &corev1.PersistentVolumeClaimList{}, &corev1.PersistentVolumeList{}
	if err := reader.List(ctx, claims); err != nil {
		return false, err
	}
	for i := range claims.Items {
		if slices.Contains(classesOf(&claims.Items[i]), class) {
			return true, nil
		}
	}
	if err := reader.List(ctx, volumes); err != nil {
		return false, err
	}
	for i := range volumes.Items {
		if slices.Contains(classesOf(&volumes.Items[i]), class) {
			return true, nil
		}
	}
	return false, nil
}

func protect(ctx context.Context, c client.Client, obj client.Object, finalizer string) error {
	if !controllerutil.AddFinalizer(obj, finalizer) {
		return nil
	}
	if err := c.Update(ctx, obj); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("protect %s: %w", obj.GetName(), err)
	}
	return nil
}

func release(ctx context.Context, c client.Client, obj client.Object, finalizer string) error {
	if !controllerutil.RemoveFinalizer(obj, finalizer) {
		return nil
	}
	if err := c.Update(ctx, obj); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("release %s: %w", obj.GetName(), err)
	}
	return nil
}
