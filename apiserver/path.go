package apiserver

import (
	"fmt"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/setpoint-dev/setpoint/apiserver/authn"
	"github.com/setpoint-dev/setpoint/apiserver/authz"
	"github.com/setpoint-dev/setpoint/apiserver/streaming"
)

// ServeHTTP answers one request. A panic in a handler is logged and answered with 500; the server
// lives on.
func (s *Server) ServeHTTP(w http.ResponseWriter, hr *http.Request) {
	out := &response{ResponseWriter: w}
	out.Header().Set("Audit-Id", s.random.uid())
	out.Header().Set("Cache-Control", "no-cache, private")
	s.definitions.follow(hr.Context())
	r := &request{http: hr, kinds: s.kinds.Current(), query: hr.URL.Query()}
	begun := s.clock.Now()
	defer func() { s.metrics.observe(r, out.code, s.clock.Since(begun)) }()
	defer s.recoverPanic(out, r)
	if err := s.serve(out, r); err != nil {
		s.respondError(out, r, err)
	}
}

// serve is the way of every request. What comes after the handler is found, for a write, is the
// line in write_path.go: decode, mutate, default, validate, admit, commit.
func (s *Server) serve(w http.ResponseWriter, r *request) error {
	if err := r.parse(); err != nil {
		return err
	}
	if err := s.authenticate(r); err != nil {
		return err
	}
	if err := s.impersonate(r); err != nil {
		return err
	}
	if err := s.authorize(r); err != nil {
		return err
	}
	if err := s.readFence(r); err != nil {
		return err
	}
	leave, err := s.limit(r)
	if err != nil {
		return err
	}
	defer leave()
	handle, err := s.route(r)
	if err != nil {
		return err
	}
	if r.kind != nil && r.kind.Deprecated != "" {
		warn(w, r.kind.Deprecated)
	}
	if streaming.IsWebSocket(r.http) && (r.verb == "watch" || r.subresource == "log") {
		return s.serveMessages(w, r, handle)
	}
	return handle(s, w, r)
}

func (s *Server) authenticate(r *request) error {
	if u := authn.FromContext(r.http.Context()); u != nil {
		r.user = u
		return nil
	}
	u, err := s.authn.Authenticate(r.http)
	if err != nil {
		return apierrors.NewUnauthorized("Unauthorized")
	}
	r.user = u
	return nil
}

// impersonate makes the request somebody else's, if it asks for that and may.
func (s *Server) impersonate(r *request) error {
	u, ok := authn.Impersonated(r.http.Header)
	if !ok {
		return apierrors.NewBadRequest("groups, uid and extra values can be impersonated only " +
			"together with a user: the header Impersonate-User is missing")
	}
	if u == nil {
		return nil
	}
	for _, aspect := range authn.Aspects(r.http.Header) {
		a := authz.Attributes{
			User: r.user, Verb: "impersonate",
			Group: aspect.Group, Version: "v1", Resource: aspect.Resource,
			Subresource: aspect.Subresource, Namespace: aspect.Namespace, Name: aspect.Name,
		}
		if err := s.allowed(r, &a); err != nil {
			return err
		}
	}
	r.user = u
	return nil
}

func (s *Server) authorize(r *request) error {
	if r.user == serverUser { // nobody else has it: what the server does by itself is not asked for
		return nil
	}
	a := authz.Attributes{User: r.user, Verb: r.verb}
	if r.isResource() {
		a.Group, a.Version, a.Resource, a.Subresource = r.group, r.version, r.resource, r.subresource
		a.Namespace, a.Name = r.namespace, r.name
	} else {
		a.Path = r.http.URL.Path
	}
	return s.allowed(r, &a)
}

// allowed asks the authorizer and words a refusal as a Kubernetes server does.
func (s *Server) allowed(r *request, a *authz.Attributes) error {
	d, reason, err := s.authz.Authorize(r.http.Context(), a)
	if d == authz.Allow && err == nil {
		return nil
	}
	if err != nil {
		reason = err.Error()
	}
	return forbidden(a, reason)
}

func forbidden(a *authz.Attributes, reason string) error {
	if !a.IsResource() {
		msg := fmt.Sprintf("User %q cannot %s path %q", a.User.Name, a.Verb, a.Path)
		return forbiddenPath(withReason(msg, reason))
	}
	resource := a.Resource
	if a.Subresource != "" {
		resource += "/" + a.Subresource
	}
	msg := fmt.Sprintf("User %q cannot %s resource %q in API group %q", a.User.Name, a.Verb, resource, a.Group)
	if a.Namespace != "" {
		msg += fmt.Sprintf(" in the namespace %q", a.Namespace)
	} else {
		msg += " at the cluster scope"
	}
	gr := schema.GroupResource{Group: a.Group, Resource: a.Resource}
	return apierrors.NewForbidden(gr, a.Name, fmt.Errorf("%s", withReason(msg, reason)))
}

func withReason(msg, reason string) string {
	if reason == "" {
		return msg
	}
	return msg + ": " + reason
}
