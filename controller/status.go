package controller

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	cr "sigs.k8s.io/controller-runtime/pkg/client"
)

// PatchStatus writes what change makes of an object's status: one patch, or nothing if it says nothing
// new. The patch is of the state that obj was read in, because lists, conditions among them, are replaced
// as a whole.
// Possible errors: apierrors.IsConflict if the object has changed; it is to be read and decided again. An
// object that is gone is no error: there is nobody left to tell.
func PatchStatus(ctx context.Context, c cr.Client, obj cr.Object, change func()) error {
	before := obj.DeepCopyObject().(cr.Object)
	change()
	if equality.Semantic.DeepEqual(before, obj) {
		return nil
	}
	patch := cr.MergeFromWithOptions(before, cr.MergeFromWithOptimisticLock{})
	return cr.IgnoreNotFound(c.Status().Patch(ctx, obj, patch))
}

// PatchOwnStatus is PatchStatus for what nobody else decides, such as a condition of a type of one's own: what
// others have written since obj was read stays, and is no conflict. It is for built-in kinds, of whose lists
// the server knows the keys.
// Possible errors: apierrors.IsNotFound if the object is gone, and apierrors.IsInvalid if another has its
// name now: a uid does not change.
func PatchOwnStatus(ctx context.Context, c cr.Client, obj cr.Object, change func()) error {
	before := obj.DeepCopyObject().(cr.Object)
	change()
	if equality.Semantic.DeepEqual(before, obj) {
		return nil
	}
	before.SetUID("") // so that the patch names it
	return c.Status().Patch(ctx, obj, cr.StrategicMergeFrom(before))
}

// SetCondition puts a condition of an object into a list, in the place of the one of its type, and reports
// whether that changed anything. It is of the object's generation; the time of its transition is now if its
// status changes, and what it was if not. It needs a Type, a Status and a Reason.
func SetCondition(conditions *[]metav1.Condition, obj cr.Object, now time.Time, c metav1.Condition) bool {
	c.ObservedGeneration = obj.GetGeneration()
	c.LastTransitionTime = metav1.NewTime(now)
	return meta.SetStatusCondition(conditions, c)
}

// IsCurrent reports whether a condition is true of what an object now asks for, and not of an older
// generation.
func IsCurrent(conditions []metav1.Condition, obj cr.Object, typ string) bool {
	c := meta.FindStatusCondition(conditions, typ)
	return c != nil && c.Status == metav1.ConditionTrue && c.ObservedGeneration == obj.GetGeneration()
}
