package gc

import (
	"context"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// get asks the server for an object; nil says that there is none, or one of another uid.
func (c *collector) get(ctx context.Context, id identity) (*metav1.PartialObjectMetadata, error) {
	live, err := getter(c.metadata, id).Get(ctx, id.Name, metav1.GetOptions{})
	switch {
	case absent(err):
		return nil, nil
	case err != nil:
		return nil, err
	case live.UID != id.UID:
		return nil, nil
	}
	return live, nil
}

// absent reports whether the server said that an object does not exist. That it does not know the
// path, as while a kind comes or goes or in front of a server that is not there, is another matter
// though it has the same code.
func absent(err error) bool {
	if !apierrors.IsNotFound(err) {
		return false
	}
	var status apierrors.APIStatus
	if !errors.As(err, &status) || status.Status().Details == nil {
		return false
	}
	details := status.Status().Details
	return details.Name != "" && !slices.ContainsFunc(details.Causes,
		func(cause metav1.StatusCause) bool {
			return cause.Type == metav1.CauseTypeUnexpectedServerResponse
		})
}

// ownerKey is an owner that was found to be absent.
type ownerKey struct {
	kind      schema.GroupVersionKind
	namespace string
	name      string
	uid       types.UID
}

// ownerState asks the server for an owner of the object.
func (c *collector) ownerState(ctx context.Context, v view,
	ref metav1.OwnerReference,
) (ownerState, error) {
	gvk := schema.FromAPIVersionAndKind(ref.APIVersion, ref.Kind)
	c.mu.Lock()
	where, known := c.catalog.kinds[gvk]
	c.mu.Unlock()
	if !known {
		select {
		case c.unknown <- struct{}{}:
		default:
		}
		return ownerSolid, fmt.Errorf("kind %s is not known to the server", gvk)
	}
	namespace := v.Namespace
	if !where.Namespaced {
		namespace = ""
	} else if namespace == "" {
		c.reportInvalid(v, ref)
		return ownerInvalid, nil
	}
	key := ownerKey{gvk, namespace, ref.Name, ref.UID}
	if _, found := c.absent.Get(key); found {
		return ownerAbsent, nil
	}
	owner, err := c.get(ctx, identity{Resource: where.GroupVersionResource, Namespace: namespace,
		Name: ref.Name, UID: ref.UID})
	switch {
	case err != nil:
		return ownerSolid, err
	case owner == nil:
		c.absent.Add(key, nil)
		return ownerAbsent, nil
	case owner.DeletionTimestamp != nil && slices.Contains(owner.Finalizers,
		metav1.FinalizerDeleteDependents):
		return ownerWaiting, nil
	}
	return ownerSolid, nil
}

func (c *collector) reportInvalid(v view, ref metav1.OwnerReference) {
	regarding := &corev1.ObjectReference{APIVersion: v.APIVersion, Kind: v.Kind, Name: v.Name,
		UID: v.UID}
	c.events.Eventf(regarding, nil, corev1.EventTypeWarning, "OwnerRefInvalidNamespace", "Collect",
		"owner %s %s is in a namespace and cannot own an object that is in none", ref.Kind, ref.Name)
}
