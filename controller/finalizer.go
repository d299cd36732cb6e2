package controller

import (
	"context"
	"fmt"

	cr "sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
)

// EnsureFinalizer puts a finalizer on an object, unless it has it. To be called before anything is made
// outside that has to be taken away again. It does not touch the finalizers of others: the patch is of the
// state that obj was read in.
// Possible errors: apierrors.IsConflict if the object has changed; an object that is being deleted takes
// no finalizer.
func EnsureFinalizer(ctx context.Context, c cr.Client, obj cr.Object, name string) error {
	if controllerutil.ContainsFinalizer(obj, name) {
		return nil
	}
	if at := obj.GetDeletionTimestamp(); at != nil {
		return fmt.Errorf("finalizer %s: %s is being deleted since %v and takes none", name, obj.GetName(), at)
	}
	return patchFinalizers(ctx, c, obj, func() { controllerutil.AddFinalizer(obj, name) })
}

// Finalize does what a finalizer is for, and removes it: cleanup takes away what was made outside, and
// returns nil when it is certainly gone. It is called again after any failure, so it must be safe to
// repeat. An object without the finalizer is left alone.
// Possible errors: cleanup's, and apierrors.IsConflict if the object has changed.
func Finalize(ctx context.Context, c cr.Client, obj cr.Object, name string, cleanup func(context.Context) error) error {
	if !controllerutil.ContainsFinalizer(obj, name) {
		return nil
	}
	if err := cleanup(ctx); err != nil {
		return fmt.Errorf("finalizer %s: %w", name, err)
	}
	err := patchFinalizers(ctx, c, obj, func() { controllerutil.RemoveFinalizer(obj, name) })
	return cr.IgnoreNotFound(err)
}

func patchFinalizers(ctx context.Context, c cr.Client, obj cr.Object, change func()) error {
	before := obj.DeepCopyObject().(cr.Object)
	change()
	return c.Patch(ctx, obj, cr.MergeFromWithOptions(before, cr.MergeFromWithOptimisticLock{}))
}
