package admission

import (
	"fmt"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/setpoint-dev/setpoint/kinds"
)

// review is an AdmissionReview as it is sent: both versions have the same request.
type review struct {
	APIVersion string         `json:"apiVersion"`
	Kind       string         `json:"kind"`
	Request    map[string]any `json:"request"`
}

// request is what a webhook is asked.
func (w *Webhooks) request(a *Attributes, s *subject) map[string]any {
	gvk, gvr := s.attributes.VersionedKind, s.kind.GVR()
	own := a.Kind.GVR()
	r := map[string]any{
		"uid": w.uid(), "kind": kindTree(gvk), "resource": resourceTree(gvr),
		"requestKind": kindTree(a.GVK()), "requestResource": resourceTree(own),
		"operation": string(a.Operation), "dryRun": a.DryRun, "userInfo": userTree(a),
		"object": s.treeOf(false), "oldObject": s.treeOf(true), "options": a.State.Options(a.Operation),
	}
	for name, text := range map[string]string{
		"name": a.Name, "namespace": a.namespaceSeen(), "subResource": a.Subresource, "requestSubResource": a.Subresource,
	} {
		if text != "" {
			r[name] = text
		}
	}
	return r
}

// treeOf returns the object, or its old state, or nil.
func (s *subject) treeOf(old bool) kinds.Object {
	lazy := &s.attributes.VersionedObject
	if old {
		lazy = &s.attributes.VersionedOldObject
	}
	u, _ := lazy.Object().(interface{ UnstructuredContent() map[string]any })
	if u == nil {
		return nil
	}
	return u.UnstructuredContent()
}

func kindTree(k schema.GroupVersionKind) map[string]any {
	return map[string]any{"group": k.Group, "version": k.Version, "kind": k.Kind}
}

func resourceTree(r schema.GroupVersionResource) map[string]any {
	return map[string]any{"group": r.Group, "version": r.Version, "resource": r.Resource}
}

func userTree(a *Attributes) map[string]any {
	u := map[string]any{"username": a.User.Name}
	if a.User.UID != "" {
		u["uid"] = a.User.UID
	}
	if len(a.User.Groups) > 0 {
		u["groups"] = a.User.Groups
	}
	if len(a.User.Extra) > 0 {
		u["extra"] = a.User.Extra
	}
	return u
}

// denied is the answer to a write that a webhook refuses.
func denied(name string, said *metav1.Status) error {
	if said == nil {
		said = &metav1.Status{}
	}
	refused := *said
	if refused.Code < http.StatusBadRequest {
		refused.Code = http.StatusBadRequest
	}
	if refused.Status == "" || refused.Status == metav1.StatusSuccess {
		refused.Status = metav1.StatusFailure
	}
	by := fmt.Sprintf("admission webhook %q denied the request", name)
	switch {
	case said.Message != "":
		refused.Message = by + ": " + said.Message
	case said.Reason != "":
		refused.Message = by + ": " + string(said.Reason)
	default:
		refused.Message = by + " without explanation"
	}
	return &apierrors.StatusError{ErrStatus: refused}
}
