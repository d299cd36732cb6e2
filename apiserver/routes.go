package apiserver

import (
	"net/http"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/setpoint-dev/setpoint/kinds"
)

// handler answers a request whose kind is known and which is allowed. An error is answered with
// its Status; after the first byte of a body it only ends the answer.
type handler func(s *Server, w http.ResponseWriter, r *request) error

// route is what a handler is chosen by, once the kind is known.
type route struct{ verb, subresource string }

// routes is the whole table of what can be done with objects.
func routes() map[route]handler {
	return map[route]handler{
		{"get", ""}:       (*Server).get,
		{"list", ""}:      (*Server).list,
		{"watch", ""}:     (*Server).watch,
		{"get", "status"}: (*Server).get,
		{"get", "log"}:    (*Server).podLog,
		{"get", "scale"}:  (*Server).getScale,

		{"create", ""}:           (*Server).create,
		{"update", ""}:           (*Server).update,
		{"patch", ""}:            (*Server).patch,
		{"delete", ""}:           (*Server).delete,
		{"deletecollection", ""}: (*Server).deleteCollection,

		{"update", "status"}:   (*Server).update,
		{"patch", "status"}:    (*Server).patch,
		{"update", "scale"}:    (*Server).updateScale,
		{"patch", "scale"}:     (*Server).patchScale,
		{"create", "binding"}:  (*Server).bind,
		{"create", "eviction"}: (*Server).evict,

		{"get", "exec"}:           (*Server).podExec,
		{"create", "exec"}:        (*Server).podExec,
		{"get", "attach"}:         (*Server).podAttach,
		{"create", "attach"}:      (*Server).podAttach,
		{"get", "portforward"}:    (*Server).podForward,
		{"create", "portforward"}: (*Server).podForward,
	}
}

// route finds the handler. Possible errors: 404 for what is not served, 405 for a verb that the
// resource does not have.
func (s *Server) route(r *request) (handler, error) {
	if !r.isResource() {
		return (*Server).servePath, nil
	}
	gvr := schema.GroupVersionResource{Group: r.group, Version: r.version, Resource: r.resource}
	r.kind = r.kinds.Resource(gvr)
	if r.kind == nil {
		return s.virtualRoute(r, gvr)
	}
	if r.misplaced() {
		return nil, errNowhere(r.kind)
	}
	if !hasSubresource(r.kind, r.subresource) {
		if r.kind.Declared {
			return nil, apierrors.NewNotFound(r.kind.GroupResource(), r.name)
		}
		return nil, errNoSubresource(r)
	}
	if r.proxied() {
		return (*Server).proxy, nil
	}
	at := route{r.verb, r.subresource}
	if isView(r.kind, r.subresource) {
		at.subresource = "status" // it is read and written as the object is
	}
	handle := s.routes[at]
	if handle == nil || !r.wellFormed() || !allows(r.kind, r) {
		return nil, errMethod()
	}
	if !r.history {
		return handle, nil
	}
	if r.subresource != "" || r.verb != "get" && r.verb != "list" {
		return nil, errMethod()
	}
	return (*Server).history, nil
}

// errNowhere is for a path on the wrong side of namespaces. Paths of declared kinds are no part of
// upstream's server until they are looked for, so what it does not find there is just no page.
func errNowhere(k *kinds.Kind) error {
	if k.Declared {
		return errNoPage
	}
	return errNotServed()
}

// subresourcesLater are those that clients know of and this server does not have yet.
var subresourcesLater = []string{"token"}

// errNoSubresource is answered as upstream answers what it does not serve; whoever asks for what
// upstream does serve is told that it is missing, and that nothing is wrong with the request.
func errNoSubresource(r *request) error {
	if !slices.Contains(subresourcesLater, r.subresource) {
		return errNotServed()
	}
	return withDetails(status(http.StatusNotFound, metav1.StatusReasonNotFound,
		"Setpoint does not serve "+r.resource+"/"+r.subresource+" yet"))
}

// isView says whether a subresource is read as the object is.
func isView(k *kinds.Kind, name string) bool {
	return slices.ContainsFunc(k.Subresources, func(s kinds.Subresource) bool {
		return s.Name == name && s.Strategy != nil
	})
}

// allows says whether the kind has the verb. Those of subresources are the table's business, but for a view
// that says which it has.
func allows(k *kinds.Kind, r *request) bool {
	for _, s := range k.Subresources {
		if s.Name == r.subresource && s.Strategy != nil {
			return slices.Contains(s.Verbs, r.verb)
		}
	}
	return r.subresource != "" || slices.Contains(verbs(k), r.verb)
}
