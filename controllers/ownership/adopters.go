package ownership

import (
	"context"
	"errors"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// Adopters returns what wakes the owners that may adopt an object: for one that has no controller and
// stays, the keys of those in its namespace whose selector matches it. newList makes an empty list of
// owners, and selector reads an owner's.
func Adopters[T client.Object](
	from client.Reader, newList func() client.ObjectList, selector func(T) *metav1.LabelSelector,
) handler.MapFunc {
	return func(ctx context.Context, object client.Object) []reconcile.Request {
		if metav1.GetControllerOfNoCopy(object) != nil || object.GetDeletionTimestamp() != nil {
			return nil
		}
		list := newList()
		err := from.List(ctx, list, client.InNamespace(object.GetNamespace()), client.UnsafeDisableDeepCopy)
		if err != nil {
			return nil // each owner is looked at again at the next resync
		}
		var requests []reconcile.Request
		_ = meta.EachListItem(list, func(item runtime.Object) error {
			owner := item.(T)
			if s, err := Selector(selector(owner)); err == nil && s.Matches(labels.Set(object.GetLabels())) {
				requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(owner)})
			}
			return nil
		})
		return requests
	}
}

// Selector compiles the selector of an owner.
// Possible errors: it is malformed, or empty, and would match everything.
func Selector(s *metav1.LabelSelector) (labels.Selector, error) {
	selector, err := metav1.LabelSelectorAsSelector(s)
	if err == nil && selector.Empty() {
		err = errors.New("is empty and would match everything")
	}
	return selector, err
}
