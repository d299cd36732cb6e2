package apiserver

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/setpoint-dev/setpoint/store"
)

// get answers with one object. A resourceVersion in the query asks for an answer at least so new,
// which every answer is, unless the revision has not happened yet; with resourceVersionMatch=Exact it
// asks for the object as it was. What once left out what a cluster had added, export, is refused.
func (s *Server) get(w http.ResponseWriter, r *request) error {
	if _, err := negotiate(r); err != nil {
		return err
	}
	if boolParam(r.query, "export") {
		return apierrors.NewBadRequest("the export parameter, deprecated since v1.14, is no longer supported")
	}
	revision, err := parseRevision(r.query.Get("resourceVersion"))
	if err != nil {
		return badRevision(err)
	}
	read := s.snapshot
	if revision > 0 && r.query.Get("resourceVersionMatch") == string(metav1.ResourceVersionMatchExact) {
		read = s.snapshotAt
	}
	snap, err := read(r, revision)
	if err != nil {
		return err
	}
	e := snap.Get(r.key())
	if e == nil {
		return apierrors.NewNotFound(r.kind.Absent(), r.name)
	}
	return s.respond(w, r, http.StatusOK, e.Value)
}

// snapshot returns the newest state, or an error if that is older than what the client has seen.
func (s *Server) snapshot(r *request, atLeast store.Revision) (store.Snapshot, error) {
	snap, err := s.store.Snapshot(r.http.Context())
	if err != nil {
		return nil, storeError(err)
	}
	if snap.Revision() < atLeast {
		return nil, errTooLarge(atLeast, snap.Revision())
	}
	return snap, nil
}

// snapshotAt returns the state as of a revision.
func (s *Server) snapshotAt(r *request, at store.Revision) (store.Snapshot, error) {
	snap, err := s.store.SnapshotAt(r.http.Context(), at)
	switch {
	case errors.Is(err, store.ErrFuture):
		return nil, errTooLarge(at, s.store.Revision())
	case errors.Is(err, store.ErrCompacted):
		return nil, errExpired(at, s.store.Compacted())
	case err != nil:
		return nil, storeError(err)
	}
	return snap, nil
}

// parseRevision reads a resourceVersion: decimal digits, or nothing, which is zero. The error says what is wrong
// with it, for the caller to make a Status of.
func parseRevision(text string) (store.Revision, error) {
	if text == "" {
		return 0, nil
	}
	n, err := strconv.ParseUint(text, 10, 63)
	if err != nil {
		return 0, field.Invalid(field.NewPath("resourceVersion"), text, parseUintError(text, err))
	}
	return store.Revision(n), nil
}

// badRevision is what a client sees of an error of parseRevision.
func badRevision(err error) error {
	return apierrors.NewBadRequest("invalid resource version: " + err.Error())
}

// parseUintError words the error as ParseUint does.
func parseUintError(text string, err error) string {
	var number *strconv.NumError
	if errors.As(err, &number) {
		return fmt.Sprintf("strconv.ParseUint: parsing %q: %v", text, number.Err)
	}
	return err.Error()
}

// errTooLarge is for a revision that the store has not reached: it asks to try again.
func errTooLarge(asked, current store.Revision) error {
	err := apierrors.NewTimeoutError(
		fmt.Sprintf("Too large resource version: %d, current: %d", asked, current), 1)
	err.ErrStatus.Details.Causes = []metav1.StatusCause{{
		Type:    metav1.CauseTypeResourceVersionTooLarge,
		Message: "Too large resource version",
	}}
	return err
}

// errExpired is for a revision that the store no longer remembers.
func errExpired(asked, oldest store.Revision) *apierrors.StatusError {
	return apierrors.NewResourceExpired(
		fmt.Sprintf("too old resource version: %d (%d)", asked, oldest))
}

// storeError is what a client sees of a store's error.
func storeError(err error) error {
	switch {
	case errors.Is(err, store.ErrClosed):
		return status(http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable,
			"the server is shutting down")
	case errors.Is(err, store.ErrNoSpace):
		return status(http.StatusInsufficientStorage, metav1.StatusReasonInternalError, err.Error())
	case errors.Is(err, store.ErrTooLarge):
		return status(http.StatusRequestEntityTooLarge, metav1.StatusReasonRequestEntityTooLarge, err.Error())
	case errors.Is(err, store.ErrNoAnswer):
		// Nothing says when to try again: a client would do so by itself then, with a write, too, that may
		// have happened.
		return apierrors.NewTimeoutError("request did not complete within requested timeout - "+err.Error(), 0)
	}
	return err
}
