package admission

import (
	"context"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	upstream "k8s.io/apiserver/pkg/admission"
	plugin "k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/setpoint-dev/setpoint/apiserver/authn"
	"github.com/setpoint-dev/setpoint/apiserver/authz"
	"github.com/setpoint-dev/setpoint/kinds"
)

// subject is a write in the form of one kind, as expressions see it.
type subject struct {
	kind       *kinds.Kind
	attributes *upstream.VersionedAttributes
	request    *admissionv1.AdmissionRequest
	namespace  *corev1.Namespace
	authorizer authorizer.UnconditionalAuthorizer
}

func newSubject(a *Attributes, k *kinds.Kind, allowed authz.Authorizer) (*subject, error) {
	obj, old, err := form(a, k)
	if err != nil {
		return nil, err
	}
	gvk := k.GVK()
	if !a.Body.Empty() {
		gvk = a.Body
	}
	u := user.DefaultInfo{Name: a.User.Name, UID: a.User.UID, Groups: a.User.Groups, Extra: a.User.Extra}
	record := upstream.NewAttributesRecord(object(a.Object), object(a.Old), a.GVK(), a.namespaceSeen(), a.Name,
		a.Kind.GVR(), a.Subresource, upstream.Operation(a.Operation), object(a.State.Options(a.Operation)), a.DryRun, &u)
	s := &subject{kind: k, authorizer: asker{allowed}, namespace: namespaceOf(a)}
	s.attributes = &upstream.VersionedAttributes{Attributes: record, VersionedKind: gvk}
	if obj != nil {
		s.attributes.VersionedObject = upstream.NewLazyObject(object(obj))
	}
	if old != nil {
		s.attributes.VersionedOldObject = upstream.NewLazyObject(object(old))
	}
	s.request = plugin.CreateAdmissionRequest(record, metav1.GroupVersionResource(k.GVR()), metav1.GroupVersionKind(gvk))
	return s, nil
}

// namespaceSeen is the namespace as expressions and webhooks see it: a namespace is in itself.
func (a *Attributes) namespaceSeen() string {
	if isNamespace(a.Kind) {
		return a.Name
	}
	return a.Namespace
}

// object wraps a tree; nil stays nil.
func object(obj kinds.Object) runtime.Object {
	if obj == nil {
		return nil
	}
	return &unstructured.Unstructured{Object: obj}
}

// namespaceOf is what expressions see of the object's namespace.
func namespaceOf(a *Attributes) *corev1.Namespace {
	obj := readNamespace(a)
	if obj == nil {
		return nil
	}
	var ns corev1.Namespace
	if runtime.DefaultUnstructuredConverter.FromUnstructured(obj, &ns) != nil {
		return nil
	}
	return plugin.CreateNamespaceObject(&ns)
}

// asker lets expressions ask what the server's authorizer decides.
type asker struct{ authz.Authorizer }

func (k asker) Authorize(ctx context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	u := a.GetUser()
	asked := authz.Attributes{
		User: &authn.User{Name: u.GetName(), UID: u.GetUID(), Groups: u.GetGroups(), Extra: u.GetExtra()},
		Verb: a.GetVerb(),
	}
	if a.IsResourceRequest() {
		asked.Group, asked.Version, asked.Resource = a.GetAPIGroup(), a.GetAPIVersion(), a.GetResource()
		asked.Subresource, asked.Namespace, asked.Name = a.GetSubresource(), a.GetNamespace(), a.GetName()
	} else {
		asked.Path = a.GetPath()
	}
	d, reason, err := k.Authorizer.Authorize(ctx, &asked)
	switch d {
	case authz.Allow:
		return authorizer.DecisionAllow, reason, err
	case authz.Deny:
		return authorizer.DecisionDeny, reason, err
	}
	return authorizer.DecisionNoOpinion, reason, err
}

// admissionGroup is the group of what people configure admission by. Policies and webhooks are not
// asked about it: a wrong one could not be taken back.
const admissionGroup = "admissionregistration.k8s.io"

// admittable says whether policies and webhooks are asked about a write.
func admittable(a *Attributes) bool { return a.Kind.Group != admissionGroup }

func groupVersion(text string) schema.GroupVersion {
	gv, _ := schema.ParseGroupVersion(text)
	return gv
}
