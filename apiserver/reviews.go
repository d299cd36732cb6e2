package apiserver

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/setpoint-dev/setpoint/apiserver/authn"
	"github.com/setpoint-dev/setpoint/apiserver/authz"
	"github.com/setpoint-dev/setpoint/kinds"
	compiled "github.com/setpoint-dev/setpoint/kinds/schema"
)

// review is a kind of question about who somebody is or what he may do.
type review struct {
	kind   kinds.Kind
	answer handler
}

func reviews() []review {
	return []review{
		{reviewKind("authentication", "SelfSubjectReview", false), (*Server).reviewSelf},
		{reviewKind("authentication", "TokenReview", false), (*Server).reviewToken},
		{reviewKind("authorization", "SelfSubjectAccessReview", false), (*Server).reviewSelfAccess},
		{reviewKind("authorization", "SelfSubjectRulesReview", false), (*Server).reviewSelfRules},
		{reviewKind("authorization", "SubjectAccessReview", false), (*Server).reviewAccess},
		{reviewKind("authorization", "LocalSubjectAccessReview", true), (*Server).reviewLocalAccess},
	}
}

func reviewKind(group, kind string, namespaced bool) kinds.Kind {
	singular := strings.ToLower(kind)
	return kinds.Kind{
		Group: group + ".k8s.io", Version: "v1", Kind: kind,
		Resource: singular + "s", Singular: singular, Namespaced: namespaced,
		Schema: compiled.Builtin("io.k8s.api." + group + ".v1." + kind),
	}
}

// readReview reads the question into its Go type.
func readReview(w http.ResponseWriter, r *request, into any) error {
	if _, err := negotiatePlain(r); err != nil {
		return err
	}
	b, err := readObject(r, r.kind.GVK(), r.kind.Schema)
	if err != nil {
		return err
	}
	obj, findings, err := b.decode()
	if err != nil {
		return err
	}
	for _, finding := range findings {
		warn(w, finding)
	}
	text, err := json.Marshal(obj)
	if err != nil {
		return err
	}
	return json.Unmarshal(text, into)
}

// respondReview answers 201 with the question and its answer.
func (s *Server) respondReview(w http.ResponseWriter, r *request, t *metav1.TypeMeta, review any) error {
	t.APIVersion, t.Kind = r.kind.GVK().ToAPIVersionAndKind()
	return s.respondJSON(w, r, http.StatusCreated, review)
}

// reviewSelf says who the client is.
func (s *Server) reviewSelf(w http.ResponseWriter, r *request) error {
	var review authenticationv1.SelfSubjectReview
	if err := readReview(w, r, &review); err != nil {
		return err
	}
	review.CreationTimestamp = metav1.NewTime(s.clock.Now())
	review.Status.UserInfo = userInfo(r.user)
	return s.respondReview(w, r, &review.TypeMeta, &review)
}

func userInfo(u *authn.User) authenticationv1.UserInfo {
	info := authenticationv1.UserInfo{Username: u.Name, UID: u.UID, Groups: u.Groups}
	for key, values := range u.Extra {
		if info.Extra == nil {
			info.Extra = map[string]authenticationv1.ExtraValue{}
		}
		info.Extra[key] = values
	}
	return info
}

// reviewToken says whose a bearer token is.
func (s *Server) reviewToken(w http.ResponseWriter, r *request) error {
	var review authenticationv1.TokenReview
	if err := readReview(w, r, &review); err != nil {
		return err
	}
	if review.Spec.Token == "" {
		return apierrors.NewBadRequest("token is required for TokenReview in authentication")
	}
	ask := (&http.Request{Header: http.Header{
		"Authorization": {"Bearer " + review.Spec.Token},
	}}).WithContext(r.http.Context())
	review.Status = authenticationv1.TokenReviewStatus{Error: "invalid bearer token"}
	if u, err := s.authn.Authenticate(ask); err == nil && u != nil && u.Name != authn.Anonymous {
		review.Status = authenticationv1.TokenReviewStatus{Authenticated: true, User: userInfo(u)}
	}
	return s.respondReview(w, r, &review.TypeMeta, &review)
}

func (s *Server) reviewSelfAccess(w http.ResponseWriter, r *request) error {
	var review authorizationv1.SelfSubjectAccessReview
	if err := readReview(w, r, &review); err != nil {
		return err
	}
	a, err := accessAttributes(r.user, review.Spec.ResourceAttributes, review.Spec.NonResourceAttributes)
	if err != nil {
		return err
	}
	review.Status = s.accessStatus(r, a)
	return s.respondReview(w, r, &review.TypeMeta, &review)
}

// reviewSelfRules lists what the client may do in a namespace.
func (s *Server) reviewSelfRules(w http.ResponseWriter, r *request) error {
	var review authorizationv1.SelfSubjectRulesReview
	if err := readReview(w, r, &review); err != nil {
		return err
	}
	if review.Spec.Namespace == "" {
		return apierrors.NewBadRequest("no namespace on request")
	}
	rules, complete := authz.Rules(r.http.Context(), s.authz, r.user, review.Spec.Namespace)
	review.Status = authorizationv1.SubjectRulesReviewStatus{
		Incomplete:       !complete,
		ResourceRules:    []authorizationv1.ResourceRule{},
		NonResourceRules: []authorizationv1.NonResourceRule{},
	}
	for _, rule := range rules {
		if len(rule.Paths) > 0 {
			review.Status.NonResourceRules = append(review.Status.NonResourceRules,
				authorizationv1.NonResourceRule{Verbs: rule.Verbs, NonResourceURLs: rule.Paths})
			continue
		}
		review.Status.ResourceRules = append(review.Status.ResourceRules, authorizationv1.ResourceRule{
			Verbs: rule.Verbs, APIGroups: rule.Groups, Resources: rule.Resources, ResourceNames: rule.Names,
		})
	}
	return s.respondReview(w, r, &review.TypeMeta, &review)
}

func (s *Server) reviewAccess(w http.ResponseWriter, r *request) error {
	var review authorizationv1.SubjectAccessReview
	if err := readReview(w, r, &review); err != nil {
		return err
	}
	var err error
	if review.Status, err = s.answerAccess(r, &review.Spec); err != nil {
		return err
	}
	return s.respondReview(w, r, &review.TypeMeta, &review)
}

func (s *Server) reviewLocalAccess(w http.ResponseWriter, r *request) error {
	var review authorizationv1.LocalSubjectAccessReview
	if err := readReview(w, r, &review); err != nil {
		return err
	}
	if at := review.Spec.ResourceAttributes; at == nil || at.Namespace != r.namespace {
		return invalidReview(field.Invalid(field.NewPath("spec", "resourceAttributes", "namespace"), "",
			fmt.Sprintf("must be the namespace of the request, %q", r.namespace)))
	}
	review.Namespace = r.namespace
	var err error
	if review.Status, err = s.answerAccess(r, &review.Spec); err != nil {
		return err
	}
	return s.respondReview(w, r, &review.TypeMeta, &review)
}

func (s *Server) answerAccess(r *request, spec *authorizationv1.SubjectAccessReviewSpec) (authorizationv1.SubjectAccessReviewStatus, error) {
	if spec.User == "" && len(spec.Groups) == 0 {
		return authorizationv1.SubjectAccessReviewStatus{}, invalidReview(field.Invalid(
			field.NewPath("spec", "user"), "", "at least one of user or group must be specified"))
	}
	u := &authn.User{Name: spec.User, UID: spec.UID, Groups: spec.Groups}
	for key, values := range spec.Extra {
		if u.Extra == nil {
			u.Extra = map[string][]string{}
		}
		u.Extra[key] = values
	}
	a, err := accessAttributes(u, spec.ResourceAttributes, spec.NonResourceAttributes)
	if err != nil {
		return authorizationv1.SubjectAccessReviewStatus{}, err
	}
	return s.accessStatus(r, a), nil
}

// accessAttributes turns a question into what an authorizer is asked.
func accessAttributes(u *authn.User, resource *authorizationv1.ResourceAttributes, path *authorizationv1.NonResourceAttributes) (*authz.Attributes, error) {
	spec := field.NewPath("spec")
	switch {
	case resource != nil && path != nil:
		return nil, invalidReview(field.Invalid(spec, struct{ Path, Verb string }{path.Path, path.Verb},
			"exactly one of nonResourceAttributes or resourceAttributes must be specified"))
	case resource != nil:
		return &authz.Attributes{
			User: u, Verb: resource.Verb, Group: resource.Group, Version: resource.Version,
			Resource: resource.Resource, Subresource: resource.Subresource,
			Namespace: resource.Namespace, Name: resource.Name,
		}, nil
	case path != nil:
		return &authz.Attributes{User: u, Verb: path.Verb, Path: path.Path}, nil
	}
	return nil, invalidReview(field.Invalid(spec, "",
		"exactly one of nonResourceAttributes or resourceAttributes must be specified"))
}

func invalidReview(err *field.Error) error {
	return apierrors.NewInvalid(schema.GroupKind{Group: "authorization.k8s.io"}, "", field.ErrorList{err})
}

func (s *Server) accessStatus(r *request, a *authz.Attributes) authorizationv1.SubjectAccessReviewStatus {
	d, reason, err := s.authz.Authorize(r.http.Context(), a)
	st := authorizationv1.SubjectAccessReviewStatus{
		Allowed: d == authz.Allow && err == nil, Denied: d == authz.Deny, Reason: reason,
	}
	if err != nil {
		st.EvaluationError = err.Error()
	}
	return st
}
