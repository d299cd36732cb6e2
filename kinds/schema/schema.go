// Package schema compiles what is known of a kind's fields into one structure that reads, checks,
// defaults and writes its objects in single passes.
//
// A Schema turns JSON, protobuf or a loose tree into the canonical tree: exactly the fields and
// values that decoding into the kind's Go type and encoding it again would leave, with no Go type,
// no reflection and no second pass. Append writes a canonical tree as canonical JSON, which is what
// the store keeps. So two requests that mean the same become the same bytes.
//
// A tree is map[string]any, []any, string, bool, int64, float64 and nil. Trees that come out of
// this package belong to the caller, who may change them; their strings may share memory with each
// other, and nothing shares memory with the input.
//
// Schemas are read-only and may be used concurrently. Nothing is parsed or compiled before its
// first use.
package schema

import "sync"

// Schema is the compiled form of one object type.
type Schema struct {
	Name string // as OpenAPI names it, "io.k8s.api.core.v1.Pod"

	root     func() *Type
	static   map[string]any
	defaults func() *defaults // compiled on first use
}

// Decoded is the canonical tree of a body, and what a strict reader would have complained about.
type Decoded struct {
	Object map[string]any
	// Findings are unknown and duplicate fields as they were met (`unknown field "spec.foo"`), each
	// once and at most 100 of them. They do not keep the object from being used: what is unknown
	// has been dropped, and of a duplicate the last one counts.
	Findings []string
}

// Builtin returns the schema of a built-in type by its OpenAPI name, such as
// "io.k8s.api.core.v1.Pod", or nil if there is no such type. It compiles the type and those it
// refers to on the first call and returns the same schema ever after.
func Builtin(name string) *Schema {
	if s, ok := builtins.Load(name); ok {
		return s.(*Schema)
	}
	root := builtinTypes.lookup(name)
	if root == nil {
		return nil
	}
	s, _ := builtins.LoadOrStore(name, newSchema(name, known(root), nil))
	return s.(*Schema)
}

var builtins sync.Map // name to *Schema

// Untyped returns a schema for objects of which only apiVersion, kind and metadata are known: it
// keeps every other field as it is.
func Untyped(name string) *Schema {
	meta := builtinTypes.lookup(objectMetaName)
	root := &Type{Kind: Struct, Name: name, PreserveUnknown: true, Fields: []Field{
		{Name: "apiVersion", Type: stringType, Optional: true},
		{Name: "kind", Type: stringType, Optional: true},
		{Name: "metadata", Type: meta, Optional: true},
	}}
	root.index()
	return newSchema(name, known(root), nil)
}

// Declared returns a schema of an object type that is made at run time. root is called once, when
// the schema is first used; the type that it returns is the schema's from then on.
func Declared(name string, root func() *Type) *Schema {
	return newSchema(name, sync.OnceValue(func() *Type {
		t := root()
		t.prepare()
		return t
	}), nil)
}

func known(t *Type) func() *Type { return func() *Type { return t } }

var stringType = &Type{Kind: String, GoName: "string"}

func newSchema(name string, root func() *Type, static map[string]any) *Schema {
	s := &Schema{Name: name, root: root, static: static}
	s.defaults = sync.OnceValue(func() *defaults { return compileDefaults(root(), static) })
	return s
}

// Root returns the type of the whole object. It and all it refers to are read-only.
func (s *Schema) Root() *Type { return s.root() }
