package apiserver

import (
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// status is a Status as an error. It is what every handler returns for a client to see, made here
// or by the constructors of apimachinery's errors package.
func status(code int32, reason metav1.StatusReason, msg string) *apierrors.StatusError {
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: code, Reason: reason, Message: msg,
	}}
}

// withDetails gives a Status the empty details that some answers have.
func withDetails(err *apierrors.StatusError) *apierrors.StatusError {
	if err.ErrStatus.Details == nil {
		err.ErrStatus.Details = &metav1.StatusDetails{}
	}
	return err
}

func errNotServed() error {
	return withDetails(status(http.StatusNotFound, metav1.StatusReasonNotFound,
		"the server could not find the requested resource"))
}

func errMethod() error {
	return withDetails(status(http.StatusMethodNotAllowed, metav1.StatusReasonMethodNotAllowed,
		"the server does not allow this method on the requested resource"))
}

func forbiddenPath(msg string) error {
	return withDetails(status(http.StatusForbidden, metav1.StatusReasonForbidden, "forbidden: "+msg))
}

// errNotAcceptable is for an Accept header that names no type the endpoint has.
func errNotAcceptable(r *request) error {
	available := mediaTypes
	if r.verb == "list" || r.verb == "watch" {
		available += ", " + streamTypes
	}
	return withDetails(status(http.StatusNotAcceptable, metav1.StatusReasonNotAcceptable,
		"406: Not Acceptable\n\nAvailable representations: "+available))
}

// errTransform is for an Accept header whose types are known but not in the asked form.
func errTransform() error {
	return status(http.StatusNotAcceptable, metav1.StatusReasonNotAcceptable,
		"only the following media types are accepted: "+mediaTypes)
}

// errStream is for a watch in a form that watches do not have.
func errStream() error {
	return status(http.StatusNotAcceptable, metav1.StatusReasonNotAcceptable,
		"only the following media types are accepted: "+streamTypes)
}

// isFault says whether a Status is about something that went wrong here.
func isFault(st *metav1.Status) bool {
	return st.Code == http.StatusInternalServerError && st.Reason != ""
}

// unreasoned is the Status of an error that upstream has no Status for: 500, and nothing but what it says. It
// is for mistakes of clients that Kubernetes answers so; what goes wrong here is an internal error.
func unreasoned(err error) error {
	return status(http.StatusInternalServerError, "", err.Error())
}

// asStatus turns any error into a Status. What is not one already, and none of the store's that clients can do
// something about, is an internal error.
func asStatus(err error) *apierrors.StatusError {
	err = storeError(err)
	if s, ok := err.(*apierrors.StatusError); ok {
		return s
	}
	if s, ok := err.(apierrors.APIStatus); ok {
		return &apierrors.StatusError{ErrStatus: s.Status()}
	}
	return apierrors.NewInternalError(err)
}
