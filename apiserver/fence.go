package apiserver

import (
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/setpoint-dev/setpoint/apiserver/authz"
	"github.com/setpoint-dev/setpoint/kinds/tree"
	"github.com/setpoint-dev/setpoint/store"
)

// FenceHeader makes a write go through only while a term of a Lease lasts:
//
//	Setpoint-Fence: NAMESPACE/NAME;uid=UID;epoch=LEASETRANSITIONS;holder=IDENTITY
//
// Values are escaped as those of a URL's query. The lease is looked at in the step that commits, so
// a leader that was stopped, and writes when another has taken over, is refused; with 409, and a
// cause of the type LeaseLost. A write that changes nothing is not refused.
const FenceHeader = "Setpoint-Fence"

// LeaseLost is the type of the cause in the answer to a write whose term is over.
const LeaseLost metav1.CauseType = "LeaseLost"

var leasesResource = schema.GroupResource{Group: "coordination.k8s.io", Resource: "leases"}

// fence is the term that a request belongs to.
type fence struct {
	namespace, name string
	uid, holder     string
	epoch           int64
}

// readFence reads the fence of a write. Whoever names a lease is told of it, so it takes the right
// to read it. Possible errors: 400, 403.
func (s *Server) readFence(r *request) error {
	text := r.http.Header.Get(FenceHeader)
	if text == "" || r.http.Method == http.MethodGet {
		return nil
	}
	f, err := parseFence(text)
	if err != nil {
		return apierrors.NewBadRequest(fmt.Sprintf("the header %s is %q: %v", FenceHeader, text, err))
	}
	r.fence = f
	return s.allowed(r, &authz.Attributes{
		User: r.user, Verb: "get", Group: leasesResource.Group, Version: "v1", Resource: leasesResource.Resource,
		Namespace: f.namespace, Name: f.name,
	})
}

func parseFence(text string) (*fence, error) {
	lease, rest, _ := strings.Cut(text, ";")
	f := &fence{}
	var ok bool
	if f.namespace, f.name, ok = strings.Cut(lease, "/"); !ok || f.namespace == "" || f.name == "" {
		return nil, fmt.Errorf("want NAMESPACE/NAME of a lease, found %q", lease)
	}
	given := map[string]bool{}
	for part := range strings.SplitSeq(rest, ";") {
		key, escaped, _ := strings.Cut(part, "=")
		value, err := url.QueryUnescape(escaped)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", key, err)
		}
		given[key] = true
		switch key {
		case "uid":
			f.uid = value
		case "holder":
			f.holder = value
		case "epoch":
			if f.epoch, err = strconv.ParseInt(value, 10, 64); err != nil {
				return nil, fmt.Errorf("epoch: want a number, found %q", value)
			}
		default:
			return nil, fmt.Errorf("want uid, epoch and holder, found %q", key)
		}
	}
	if !given["epoch"] || !given["holder"] {
		return nil, fmt.Errorf("epoch and holder must be given")
	}
	return f, nil
}

// fenced returns the changes of a commit with the condition that the term of the write lasts.
// Possible errors: 409 if it does not, *store.ConflictError if the lease is what is written, and
// has been written meanwhile.
func (t *write) fenced(ops []store.Op) ([]store.Op, error) {
	if t.fence == nil {
		return ops, nil
	}
	snap, err := t.newest()
	if err != nil {
		return nil, err
	}
	key := store.Key{Resource: leasesResource.String(), Path: t.fence.namespace + "/" + t.fence.name}
	entry := snap.Get(key)
	if err := t.fence.holds(t, entry); err != nil {
		return nil, err
	}
	for _, op := range ops {
		if op.Key == key && op.Expect != entry.Revision {
			return nil, &store.ConflictError{Key: key, Expected: op.Expect, Found: entry}
		}
		if op.Key == key {
			return ops, nil
		}
	}
	return append(ops, store.Op{Key: key, Expect: entry.Revision}), nil
}

// holds says whether a lease is in the term of the fence.
func (f *fence) holds(t *write, entry *store.Entry) error {
	if entry == nil {
		return f.lost("is gone")
	}
	kind := t.kinds.Kind(schema.GroupVersionKind{Group: leasesResource.Group, Version: "v1", Kind: "Lease"})
	lease, err := decodeStored(t.ctx, t.kinds, kind, entry.Value)
	if err != nil {
		return err
	}
	holder, epoch := tree.Str(lease, "spec", "holderIdentity"), tree.Int(lease, "spec", "leaseTransitions")
	switch uid := tree.Str(lease, "metadata", "uid"); {
	case f.uid != "" && f.uid != uid:
		return f.lost("is another one of that name")
	case holder == "":
		return f.lost(fmt.Sprintf("is held by nobody, in epoch %d", epoch))
	case holder != f.holder || epoch != f.epoch:
		return f.lost(fmt.Sprintf("is held by %q in epoch %d", holder, epoch))
	}
	return nil
}

func (f *fence) lost(now string) error {
	err := apierrors.NewConflict(leasesResource, f.name, nil)
	msg := fmt.Sprintf("the lease %s/%s, which the request was to be in epoch %d of, held by %q, %s",
		f.namespace, f.name, f.epoch, f.holder, now)
	err.ErrStatus.Message = msg
	err.ErrStatus.Details.Causes = []metav1.StatusCause{{
		Type: LeaseLost, Message: msg, Field: f.namespace + "/" + f.name,
	}}
	return err
}
