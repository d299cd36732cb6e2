package setpointtest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"syscall"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Effect is what happens to a request. It answers in the place of next, which is the server, and
// may ask it.
type Effect func(req *http.Request, next http.RoundTripper) (*http.Response, error)

// Delay has the request wait before it reaches the server.
func Delay(d time.Duration) Effect {
	return func(req *http.Request, next http.RoundTripper) (*http.Response, error) {
		timer := time.NewTimer(d)
		defer timer.Stop()
		select {
		case <-timer.C:
			return next.RoundTrip(req)
		case <-req.Context().Done():
			closeBody(req)
			return nil, req.Context().Err()
		}
	}
}

// Refuse answers with an error of the API, such as apierrors.NewConflict makes; the request does not
// reach the server.
func Refuse(err apierrors.APIStatus) Effect {
	status := err.Status()
	status.TypeMeta = metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}
	return func(req *http.Request, _ http.RoundTripper) (*http.Response, error) {
		closeBody(req)
		body, err := json.Marshal(status)
		if err != nil {
			return nil, fmt.Errorf("setpointtest: %w", err)
		}
		header := http.Header{"Content-Type": {"application/json"}}
		if status.Details != nil && status.Details.RetryAfterSeconds > 0 {
			header.Set("Retry-After", fmt.Sprint(status.Details.RetryAfterSeconds))
		}
		return &http.Response{
			Status: fmt.Sprintf("%d %s", status.Code, http.StatusText(int(status.Code))), StatusCode: int(status.Code),
			Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
			Header: header, Body: io.NopCloser(bytes.NewReader(body)), ContentLength: int64(len(body)), Request: req,
		}, nil
	}
}

// Unreachable fails the request as if nobody listened; it does not reach the server.
func Unreachable() Effect {
	return func(req *http.Request, _ http.RoundTripper) (*http.Response, error) {
		closeBody(req)
		return nil, fmt.Errorf("setpointtest: made unreachable: %w", syscall.ECONNREFUSED)
	}
}

// ErrReplyLost is what a request fails with whose answer LoseReply has dropped.
var ErrReplyLost = errors.New("setpointtest: the reply was lost")

// LoseReply has the server do what it is asked, and the client not know: the connection breaks
// before the answer arrives.
func LoseReply() Effect {
	return func(req *http.Request, next http.RoundTripper) (*http.Response, error) {
		resp, err := next.RoundTrip(req)
		if err != nil {
			return nil, err
		}
		resp.Body.Close()
		return nil, ErrReplyLost
	}
}

// closeBody does what a transport promises of each request.
func closeBody(req *http.Request) {
	if req.Body != nil {
		req.Body.Close()
	}
}

// target is what a request is for.
type target struct{ verb, resource, namespace, name string }

// parse reads a request for a resource: /api/v1/… or /apis/GROUP/VERSION/…
func parse(req *http.Request) (target, bool) {
	parts := strings.Split(strings.Trim(req.URL.Path, "/"), "/")
	switch {
	case parts[0] == "api" && len(parts) > 2:
		parts = parts[2:]
	case parts[0] == "apis" && len(parts) > 3:
		parts = parts[3:]
	default:
		return target{}, false
	}
	var t target
	if parts[0] == "namespaces" && len(parts) > 2 && parts[2] != "status" && parts[2] != "finalize" {
		t.namespace, parts = parts[1], parts[2:]
	}
	t.resource = parts[0]
	if len(parts) > 1 {
		t.name = parts[1]
	}
	if len(parts) > 2 {
		t.resource += "/" + parts[2]
	}
	t.verb = verbOf(req, t.name)
	return t, true
}

func verbOf(req *http.Request, name string) string {
	switch req.Method {
	case http.MethodGet:
		if w := req.URL.Query().Get("watch"); w == "true" || w == "1" {
			return "watch"
		}
		if name == "" {
			return "list"
		}
		return "get"
	case http.MethodPost:
		return "create"
	case http.MethodPut:
		return "update"
	case http.MethodDelete:
		if name == "" {
			return "deletecollection"
		}
	}
	return strings.ToLower(req.Method)
}
