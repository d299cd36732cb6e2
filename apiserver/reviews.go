package apiserver

import (
	"encoding/json"
	"net/http"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

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
func (s *Server) readReview(w http.ResponseWriter, r *request, into any) error {
	if _, err := negotiatePlain(r); err != nil {
		return err
	}
	b, t, err := s.readObject(w, r, r.kind.GVK(), r.kind.Schema)
	if err != nil {
		return err
	}
	obj, err := t.decode(b)
	if err != nil {
		return err
	}
	if err := t.matchNamespace(obj); err != nil {
		return err
	}
	t.own(nil, obj)
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
	if err := s.readReview(w, r, &review); err != nil {
		return err
	}
	review.ObjectMeta = metav1.ObjectMeta{CreationTimestamp: metav1.NewTime(s.clock.Now())}
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
	if err := s.readReview(w, r, &review); err != nil {
		return err
	}
	if review.Spec.Token == "" {
		return apierrors.NewBadRequest("token is required for TokenReview in authentication")
	}
	ask := (&http.Request{Header: http.Header{
		"Authorization": {"Bearer " + review.Spec.Token},
	}}).WithContext(r.http.Context())
	review.Status.Authenticated, review.Status.Error = false, "invalid bearer token"
	if u, err := s.authn.Authenticate(ask); err == nil && u != nil && u.Name != authn.Anonymous {
		review.Status = authenticationv1.TokenReviewStatus{Authenticated: true, User: userInfo(u)}
	}
	return s.respondReview(w, r, &review.TypeMeta, &review)
}

func (s *Server) reviewSelfAccess(w http.ResponseWriter, r *request) error {
	var review authorizationv1.SelfSubjectAccessReview
	if err := s.readReview(w, r, &review); err != nil {
		return err
	}
	spec := authorizationv1.SubjectAccessReviewSpec{
		ResourceAttributes: review.Spec.ResourceAttributes, NonResourceAttributes: review.Spec.NonResourceAttributes,
	}
	errs := append(checkAccess(&spec), checkReviewMeta(review.ObjectMeta, "must be empty")...)
	if len(errs) > 0 {
		return invalidReview(errs)
	}
	review.Status = s.accessStatus(r, accessAttributes(r.user, &spec))
	return s.respondReview(w, r, &review.TypeMeta, &review)
}

// reviewSelfRules lists what the client may do in a namespace.
func (s *Server) reviewSelfRules(w http.ResponseWriter, r *request) error {
	var review authorizationv1.SelfSubjectRulesReview
	if err := s.readReview(w, r, &review); err != nil {
		return err
	}
	if review.Spec.Namespace == "" {
		return apierrors.NewBadRequest("no namespace on request")
	}
	namespace := review.Spec.Namespace
	review.ObjectMeta, review.Spec = metav1.ObjectMeta{}, authorizationv1.SelfSubjectRulesReviewSpec{}
	rules, complete := authz.Rules(r.http.Context(), s.authz, r.user, namespace)
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
	if err := s.readReview(w, r, &review); err != nil {
		return err
	}
	errs := append(checkSubjectAccess(&review.Spec), checkReviewMeta(review.ObjectMeta, "must be empty")...)
	if len(errs) > 0 {
		return invalidReview(errs)
	}
	review.Status = s.accessStatus(r, accessAttributes(subjectOf(&review.Spec), &review.Spec))
	return s.respondReview(w, r, &review.TypeMeta, &review)
}

func (s *Server) reviewLocalAccess(w http.ResponseWriter, r *request) error {
	var review authorizationv1.LocalSubjectAccessReview
	if err := s.readReview(w, r, &review); err != nil {
		return err
	}
	if errs := checkLocalAccess(&review); len(errs) > 0 {
		return invalidReview(errs)
	}
	review.Status = s.accessStatus(r, accessAttributes(subjectOf(&review.Spec), &review.Spec))
	return s.respondReview(w, r, &review.TypeMeta, &review)
}

// subjectOf is who a question is about.
func subjectOf(spec *authorizationv1.SubjectAccessReviewSpec) *authn.User {
	u := &authn.User{Name: spec.User, UID: spec.UID, Groups: spec.Groups}
	for key, values := range spec.Extra {
		if u.Extra == nil {
			u.Extra = map[string][]string{}
		}
		u.Extra[key] = values
	}
	return u
}

// accessAttributes turns a question that has been checked into what an authorizer is asked.
func accessAttributes(u *authn.User, spec *authorizationv1.SubjectAccessReviewSpec) *authz.Attributes {
	if path := spec.NonResourceAttributes; path != nil {
		return &authz.Attributes{User: u, Verb: path.Verb, Path: path.Path}
	}
	resource := spec.ResourceAttributes
	return &authz.Attributes{
		User: u, Verb: resource.Verb, Group: resource.Group, Version: resource.Version,
		Resource: resource.Resource, Subresource: resource.Subresource,
		Namespace: resource.Namespace, Name: resource.Name,
	}
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
