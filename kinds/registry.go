package kinds

import (
	"slices"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Set is a fixed set of kinds, looked up by resource and by kind.
type Set struct {
	all        []*Kind
	byResource map[schema.GroupVersionResource]*Kind
	byKind     map[schema.GroupVersionKind]*Kind
}

// NewSet makes a set. Later records of a resource replace earlier ones.
func NewSet(all ...*Kind) *Set {
	s := &Set{
		byResource: make(map[schema.GroupVersionResource]*Kind, len(all)),
		byKind:     make(map[schema.GroupVersionKind]*Kind, len(all)),
	}
	for _, k := range all {
		s.byResource[k.GVR()] = k
		s.byKind[k.GVK()] = k
	}
	listed := make(map[*Kind]bool, len(all))
	for _, k := range all {
		if s.byResource[k.GVR()] == k && !listed[k] {
			s.all = append(s.all, k)
			listed[k] = true
		}
	}
	return s
}

// All returns the kinds in the order in which discovery lists them.
func (s *Set) All() []*Kind { return s.all }

// Resource returns the kind served at a path, or nil.
func (s *Set) Resource(gvr schema.GroupVersionResource) *Kind { return s.byResource[gvr] }

// Kind returns the record of a kind, or nil.
func (s *Set) Kind(gvk schema.GroupVersionKind) *Kind { return s.byKind[gvk] }

// HasGroupVersion says whether any kind belongs to the group and version.
func (s *Set) HasGroupVersion(gv schema.GroupVersion) bool {
	return slices.ContainsFunc(s.all, func(k *Kind) bool { return k.GVK().GroupVersion() == gv })
}

// Registry is the set in force. It is replaced as a whole, so that a request sees one set from
// beginning to end.
type Registry struct{ set atomic.Pointer[Set] }

// NewRegistry makes a registry with a first set.
func NewRegistry(s *Set) *Registry {
	r := &Registry{}
	r.set.Store(s)
	return r
}

// Current returns the set in force.
func (r *Registry) Current() *Set { return r.set.Load() }

// Replace puts another set in force for every request that starts from now on.
func (r *Registry) Replace(s *Set) { r.set.Store(s) }
