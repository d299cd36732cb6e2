package apiserver

import (
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/setpoint-dev/setpoint/kinds"
)

// virtual are resources that are served and not stored: a question is POSTed and answered, or, for
// bindings, another object is changed.
type virtual struct {
	kinds  []*kinds.Kind
	byPath map[schema.GroupVersionResource]virtualKind
}

type virtualKind struct {
	kind   *kinds.Kind
	create handler
}

func newVirtual() virtual {
	v := virtual{byPath: map[schema.GroupVersionResource]virtualKind{}}
	add := func(k kinds.Kind, create handler) {
		k.Verbs = []string{"create"}
		v.kinds = append(v.kinds, &k)
		v.byPath[k.GVR()] = virtualKind{&k, create}
	}
	for _, review := range reviews() {
		add(review.kind, review.answer)
	}
	add(bindingKind(), (*Server).bindByName)
	return v
}

// virtualRoute finds the handler of a resource that no stored kind has.
func (s *Server) virtualRoute(r *request, gvr schema.GroupVersionResource) (handler, error) {
	found, ok := s.virtual.byPath[gvr]
	switch {
	case !ok && !hasGroup(r.kinds, r.group) && !s.virtual.hasGroup(r.group):
		return nil, errNoPage
	case !ok || r.subresource != "" || found.kind.Namespaced != (r.namespace != ""):
		return nil, errNotServed()
	case r.name != "":
		return nil, errNotServed()
	case r.verb != "create":
		return nil, errMethod()
	}
	r.kind = found.kind
	return found.create, nil
}

func (v virtual) hasGroup(group string) bool {
	for gvr := range v.byPath {
		if gvr.Group == group {
			return true
		}
	}
	return false
}

// hasGroup says whether a group has kinds that nobody declared: upstream knows no other groups when
// it looks for a path.
func hasGroup(set *kinds.Set, group string) bool {
	return slices.ContainsFunc(set.All(), func(k *kinds.Kind) bool { return k.Group == group && !k.Declared })
}
