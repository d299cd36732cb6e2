package lease

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// fenceHeader is the header that a Setpoint API server looks at, and others do not.
const fenceHeader = "Setpoint-Fence"

// lostCause is the type of the cause with which it refuses a write.
const lostCause = "LeaseLost"

// Fence is the term as the header of a write that should fail when the term is over.
func (t Term) Fence() string {
	return fmt.Sprintf("%s/%s;uid=%s;epoch=%d;holder=%s", t.Lease.Namespace, t.Lease.Name,
		url.QueryEscape(string(t.UID)), t.Epoch, url.QueryEscape(t.Holder))
}

// Fenced returns a transport whose writes carry the fence of the term in whose work they are made:
// that of TermFrom of a request's context. A Setpoint API server refuses them when the term is
// over, however late they arrive; IsLost tells such a refusal from others.
func Fenced(next http.RoundTripper) http.RoundTripper { return &fenced{next} }

type fenced struct{ next http.RoundTripper }

func (f *fenced) RoundTrip(req *http.Request) (*http.Response, error) {
	term, ok := TermFrom(req.Context())
	if !ok || req.Method == http.MethodGet || req.Method == http.MethodHead {
		return f.next.RoundTrip(req)
	}
	req = req.Clone(req.Context()) // which is not ours to change
	req.Header.Set(fenceHeader, term.Fence())
	return f.next.RoundTrip(req)
}

// WrappedRoundTripper lets client-go reach what is below.
func (f *fenced) WrappedRoundTripper() http.RoundTripper { return f.next }

// IsLost says whether an API server refused a write because its term is over. Like every such
// refusal it is a conflict, too; but to try again is of no use.
func IsLost(err error) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) || status.Status().Details == nil {
		return false
	}
	for _, cause := range status.Status().Details.Causes {
		if cause.Type == lostCause {
			return true
		}
	}
	return false
}
