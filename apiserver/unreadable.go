package apiserver

import (
	"fmt"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/setpoint-dev/setpoint/apiserver/authz"
	"github.com/setpoint-dev/setpoint/kinds"
	"github.com/setpoint-dev/setpoint/store"
)

// This file is about objects whose stored bytes were damaged and marked as such (store.Unreadable). They
// are there, which is why a list that leaves them out would lie: what reads one fails and names it, the
// others are served, and whoever may do so can delete it.

// unreadableMax is how many objects an answer names.
const unreadableMax = 100

// checkReadable refuses a list that has unreadable objects in it.
func checkReadable(gr schema.GroupResource, entries []*store.Entry) error {
	var causes []metav1.StatusCause
	more := 0
	for _, e := range entries {
		why, unreadable := store.Unreadable(e.Value)
		switch {
		case !unreadable:
		case len(causes) == unreadableMax:
			more++
		default:
			causes = append(causes, metav1.StatusCause{
				Type: metav1.CauseTypeUnexpectedServerResponse, Field: e.Key.String(), Message: why,
			})
		}
	}
	if len(causes) == 0 {
		return nil
	}
	if more > 0 {
		causes = append(causes, metav1.StatusCause{
			Type: metav1.CauseTypeTooMany, Message: fmt.Sprintf("%d more are not named", more),
		})
	}
	return errUnreadable(gr, fmt.Sprintf("%d stored %s cannot be read, the first is %s: %s",
		len(causes)+more-min(more, 1), gr, causes[0].Field, causes[0].Message), causes)
}

func errUnreadable(gr schema.GroupResource, msg string, causes []metav1.StatusCause) *apierrors.StatusError {
	err := status(http.StatusInternalServerError, metav1.StatusReasonStoreReadError, msg)
	err.ErrStatus.Details = &metav1.StatusDetails{Group: gr.Group, Kind: gr.Resource, Causes: causes}
	return err
}

// readable refuses one value.
func readable(gr schema.GroupResource, value []byte) error {
	if why, unreadable := store.Unreadable(value); unreadable {
		return errUnreadable(gr, fmt.Sprintf("a stored %s cannot be read: %s", gr, why), nil)
	}
	return nil
}

// unsafeDelete is the verb for deleting what cannot be read, beside that for deleting.
const unsafeDelete = "unsafe-delete-ignore-read-errors"

// authorizeUnsafe asks whether the user may delete what cannot be read.
func (s *Server) authorizeUnsafe(r *request) error {
	return s.allowed(r, &authz.Attributes{
		User: r.user, Verb: unsafeDelete, Group: r.group, Version: r.version, Resource: r.resource,
		Namespace: r.namespace, Name: r.name,
	})
}

const unsafeOption = "ignoreStoreReadErrorWithClusterBreakingPotential"

func unsafely(opts *metav1.DeleteOptions) bool {
	unsafe := opts.IgnoreStoreReadErrorWithClusterBreakingPotential
	return unsafe != nil && *unsafe
}

func invalidUnsafe(k *kinds.Kind, name, why string) error {
	errs := field.ErrorList{field.Invalid(field.NewPath(unsafeOption), true, why)}
	return apierrors.NewInvalid(k.GVK().GroupKind(), name, errs)
}

// removeUnreadable deletes an object of which nothing is known but its key: neither finalizers nor
// preconditions nor owners. One that can be read has to be deleted as others are.
func (t *write) removeUnreadable(entry *store.Entry) (removed, error) {
	why, unreadable := store.Unreadable(entry.Value)
	if !unreadable {
		return removed{}, invalidUnsafe(t.kind, t.name, "the object can be read: delete it without this")
	}
	if t.opts.dryRun {
		return removed{}, nil
	}
	t.server.log.Warn("an object that cannot be read is deleted", "object", entry.Key.String(), "user", t.user.Name, "why", why)
	_, err := t.commit(store.Op{
		Key: entry.Key, Type: store.Delete, Expect: entry.Revision, RevisionAt: -1, Origin: t.origin(),
	})
	return removed{}, err
}
