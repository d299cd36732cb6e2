// Package ownership decides and records which objects a controller's object owns: those that name
// it as their controller and match its selector. Orphans that match are adopted, objects that no
// longer match are released; what another controller owns is left alone.
//
// Sort is pure. Claim acts on what Sort decided, and is safe to repeat: each write carries the
// resourceVersion it was decided on, so a decision on an old state is refused and made again.
package ownership

import (
	"context"
	"errors"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Claims is how an owner stands to some objects.
type Claims[T client.Object] struct {
	Owned   []T // named it and match
	Adopt   []T // match and have no controller
	Release []T // named it and match no more
}

// Sort says how the owner stands to the objects. An owner that is being deleted neither adopts nor
// releases, and an object that is being deleted is not adopted.
func Sort[T client.Object](owner client.Object, selector labels.Selector, objects []T) Claims[T] {
	var claims Claims[T]
	deleting := owner.GetDeletionTimestamp() != nil
	for _, object := range objects {
		matches := selector.Matches(labels.Set(object.GetLabels()))
		ref := metav1.GetControllerOfNoCopy(object)
		switch {
		case ref != nil && ref.UID != owner.GetUID():
		case ref != nil && matches:
			claims.Owned = append(claims.Owned, object)
		case ref != nil && !deleting:
			claims.Release = append(claims.Release, object)
		case ref == nil && matches && !deleting && object.GetDeletionTimestamp() == nil:
			claims.Adopt = append(claims.Adopt, object)
		}
	}
	return claims
}

// Claimer makes claims real.
type Claimer struct {
	Client client.Client
	// Live reads from the server: before the first adoption the owner is read again, because a
	// cache may not have seen yet that it is being deleted, or that it was replaced by a namesake.
	Live client.Reader
}

// Claim adopts and releases as Sort decides and returns what the owner then owns, newly adopted
// objects last. The objects given are not changed; an adopted one is returned as it was stored.
// Objects that vanished meanwhile are skipped; other failures, conflicts included, are returned
// joined, after everything has been tried.
func Claim[T client.Object](ctx context.Context, c Claimer, owner client.Object,
	kind schema.GroupVersionKind,
	selector labels.Selector, objects []T,
) ([]T, error) {
	claims := Sort(owner, selector, objects)
	owned := claims.Owned
	var errs []error
	if len(claims.Adopt) > 0 {
		if err := c.mayAdopt(ctx, owner); err != nil {
			return nil, err
		}
	}
	ref := *metav1.NewControllerRef(owner, kind)
	for _, object := range claims.Adopt {
		adopted := object.DeepCopyObject().(T)
		err := c.setOwners(ctx, adopted, append(slices.Clone(object.GetOwnerReferences()), ref))
		if err == nil {
			owned = append(owned, adopted)
		} else if !apierrors.IsNotFound(err) {
			errs = append(errs, fmt.Errorf("adopt %s: %w", object.GetName(), err))
		}
	}
	for _, object := range claims.Release {
		kept := slices.DeleteFunc(slices.Clone(object.GetOwnerReferences()),
			func(r metav1.OwnerReference) bool {
				return r.UID == owner.GetUID()
			})
		err := c.setOwners(ctx, object.DeepCopyObject().(T), kept)
		if err != nil && !apierrors.IsNotFound(err) {
			errs = append(errs, fmt.Errorf("release %s: %w", object.GetName(), err))
		}
	}
	return owned, errors.Join(errs...)
}

func (c Claimer) setOwners(ctx context.Context, object client.Object,
	refs []metav1.OwnerReference,
) error {
	base := object.DeepCopyObject().(client.Object)
	object.SetOwnerReferences(refs)
	return c.Client.Patch(ctx, object, client.MergeFromWithOptions(base,
		client.MergeFromWithOptimisticLock{}))
}

// mayAdopt reads the owner from the server and returns an error if it is not the same object or is
// being deleted.
func (c Claimer) mayAdopt(ctx context.Context, owner client.Object) error {
	fresh := owner.DeepCopyObject().(client.Object)
	if err := c.Live.Get(ctx, client.ObjectKeyFromObject(owner), fresh); err != nil {
		return fmt.Errorf("read %s again before adopting: %w", owner.GetName(), err)
	}
	if fresh.GetUID() != owner.GetUID() {
		return fmt.Errorf("%s was replaced: found uid %s, expected %s", owner.GetName(),
			fresh.GetUID(), owner.GetUID())
	}
	if fresh.GetDeletionTimestamp() != nil {
		return fmt.Errorf("%s is being deleted since %v and adopts nothing", owner.GetName(),
			fresh.GetDeletionTimestamp())
	}
	return nil
}
