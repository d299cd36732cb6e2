package apiserver

import (
	"net/http"

	"k8s.io/apimachinery/pkg/runtime/schema"
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
	}
}

// route finds the handler. Possible errors: 404 for what is not served, 405 for a verb that the
// resource does not have.
func (s *Server) route(r *request) (handler, error) {
	if !r.isResource() {
		return nil, errNotServed()
	}
	gvr := schema.GroupVersionResource{Group: r.group, Version: r.version, Resource: r.resource}
	r.kind = r.kinds.Resource(gvr)
	if r.kind == nil || r.misplaced() {
		return nil, errNotServed()
	}
	if !hasSubresource(r.kind, r.subresource) {
		return nil, errNotServed()
	}
	handle := s.routes[route{r.verb, r.subresource}]
	if handle == nil || !r.wellFormed() {
		return nil, errMethod()
	}
	return handle, nil
}
