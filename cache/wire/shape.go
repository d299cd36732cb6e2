package wire

import (
	"reflect"
	"strings"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// A shape is what a cutter knows of a type.
type shape struct {
	of      reflect.Type
	part    bool             // may be shared
	fields  map[string]field // of a struct, or what points to one, by the names of their members
	element *shape           // of a slice
}

// opens says whether a value that begins so is to be looked into. "}" is two behind "{", and so is "]".
func (s *shape) opens(c byte) bool {
	return s.fields != nil && c == '{' || s.element != nil && c == '['
}

type field struct {
	index int
	shape *shape
}

var shapes sync.Map // reflect.Type of objects to *shape

// shapeOf returns the shape of the pointer to an object, nil if it is not to be cut.
func shapeOf(t reflect.Type) *shape {
	if known, ok := shapes.Load(t); ok {
		return known.(*shape)
	}
	var s *shape
	if strict(t) {
		s = shapesOf{}.of(t)
		s.part = false
	}
	shapes.Store(t, s)
	return s
}

// shapesOf are the shapes of one object's types, some of which may contain themselves.
type shapesOf map[reflect.Type]*shape

// of returns the shape of a type, nil if there is nothing to share in it.
func (known shapesOf) of(t reflect.Type) *shape {
	if s, ok := known[t]; ok {
		return s
	}
	own := t.Implements(unmarshaler) || reflect.PointerTo(t).Implements(unmarshaler)
	inner := t
	if t.Kind() == reflect.Pointer {
		inner = t.Elem()
	}
	// Metadata as a whole is never what another object's is.
	s := &shape{of: t, part: t != reflect.TypeFor[metav1.ObjectMeta]()}
	switch {
	case own && t.Kind() != reflect.Pointer:
		s = nil // its text is its own affair
	case own: // what it points to can be shared, but not be looked into
	case inner.Kind() == reflect.Struct:
		known[t] = s
		s.fields = known.fieldsOf(inner)
	case t.Kind() == reflect.Slice:
		known[t] = s
		s.element = known.of(t.Elem())
	case t.Kind() == reflect.Map:
	default:
		s = nil
	}
	known[t] = s
	return s
}

func (known shapesOf) fieldsOf(t reflect.Type) map[string]field {
	fields := make(map[string]field)
	for i := range t.NumField() {
		f := t.Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if name == "" || name == "-" || !f.IsExported() {
			continue // members of what is inline are decoded in the usual way
		}
		if s := known.of(f.Type); s != nil {
			fields[name] = field{i, s}
		}
	}
	return fields
}
