package crd

import (
	"maps"
	"slices"

	structural "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"

	"github.com/setpoint-dev/setpoint/kinds/schema"
)

// objectMeta is the type of metadata, of objects and of those embedded in them.
func objectMeta() *schema.Type {
	return schema.Builtin(objectMetaName).Root()
}

// scalar keeps a value as it is.
var scalar = scalarOf(0)

func scalarOf(m schema.Meaning) *schema.Type {
	return &schema.Type{Kind: schema.Any, GoName: "interface {}", Loose: true, Meant: m}
}

// scalars are the types of values that should be something.
var scalars = map[string]*schema.Type{
	"boolean": scalarOf(schema.MeantBool),
	"integer": scalarOf(schema.MeantNumber),
	"number":  scalarOf(schema.MeantNumber),
	"string":  scalarOf(schema.MeantString),
}

// rootType is the type of whole objects.
func rootType(name string, s *structural.Structural) *schema.Type {
	text := &schema.Type{Kind: schema.String, GoName: "string"}
	t := &schema.Type{Kind: schema.Struct, Name: name, Loose: true, PreserveUnknown: s.XPreserveUnknownFields}
	t.Fields = append(properties(s, aboutItself),
		schema.Field{Name: "apiVersion", Type: text, Optional: true},
		schema.Field{Name: "kind", Type: text, Optional: true},
		schema.Field{Name: "metadata", Type: objectMeta(), Optional: true})
	return t
}

// aboutItself are the fields of an object that its schema may restrict and does not define.
var aboutItself = []string{"apiVersion", "kind", "metadata"}

// typeOf is the type of a value; nothing is known of it if s is nil.
func typeOf(s *structural.Structural) *schema.Type {
	switch {
	case s == nil:
		return &schema.Type{Kind: schema.Struct, Loose: true} // upstream empties objects there
	case s.Type == "array":
		return listType(s)
	case s.AdditionalProperties != nil:
		return &schema.Type{
			Kind: schema.Map, Loose: true, Atomic: isAtomic(s.XMapType),
			Elem: typeOf(s.AdditionalProperties.Structural), NullableElem: nullable(s.AdditionalProperties.Structural),
		}
	case s.Type == "object" || s.XPreserveUnknownFields || len(s.Properties) > 0:
		return structType(s)
	}
	if t := scalars[s.Type]; t != nil {
		return t
	}
	return scalar
}

func structType(s *structural.Structural) *schema.Type {
	t := &schema.Type{
		Kind: schema.Struct, Loose: true, PreserveUnknown: s.XPreserveUnknownFields, Atomic: isAtomic(s.XMapType),
	}
	if !s.XEmbeddedResource {
		t.Fields = properties(s, nil)
		return t
	}
	t.Fields = append(properties(s, aboutItself),
		schema.Field{Name: "apiVersion", Type: scalar, Pointer: true, Optional: true},
		schema.Field{Name: "kind", Type: scalar, Pointer: true, Optional: true},
		schema.Field{Name: "metadata", Type: objectMeta(), Pointer: true, Optional: true})
	return t
}

func listType(s *structural.Structural) *schema.Type {
	t := &schema.Type{Kind: schema.List, Loose: true, Elem: typeOf(s.Items), NullableElem: true}
	if s.XListType != nil {
		t.ListType, t.ListKeys = *s.XListType, s.XListMapKeys
	}
	return t
}

// properties are the fields of an object, without some.
func properties(s *structural.Structural, without []string) []schema.Field {
	fields := make([]schema.Field, 0, len(s.Properties)+len(aboutItself))
	for _, name := range slices.Sorted(maps.Keys(s.Properties)) {
		if slices.Contains(without, name) {
			continue
		}
		p := s.Properties[name]
		fields = append(fields, schema.Field{
			Name: name, Type: typeOf(&p), Pointer: true, Optional: true,
			Nullable: p.Nullable, Default: p.Default.Object,
			Required: s.ValueValidation != nil && slices.Contains(s.ValueValidation.Required, name),
		})
	}
	return fields
}

func nullable(s *structural.Structural) bool { return s == nil || s.Nullable }

func isAtomic(mapType *string) bool { return mapType != nil && *mapType == "atomic" }
