package schema

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// OfGo returns the schema of the Go type of v, a struct or a pointer to one, as its json tags have it,
// and as patchStrategy and patchMergeKey tags do: for a kind whose Go type is at hand and whose
// OpenAPI is not. name is how OpenAPI would name it, "dev.example.v1.WorkerGroup".
//
// Types of k8s.io are those that are built in. A type that JSON cannot carry, such as a channel or a
// map whose keys are no strings, panics: it is a mistake in the record.
func OfGo(name string, v any) *Schema {
	t := reflect.TypeOf(v)
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t.Kind() != reflect.Struct {
		panic(fmt.Sprintf("schema: %s is a %s, want a struct", name, t))
	}
	root := goReader{}.structure(t, name) // panics here and not at the first request
	return Declared(name, known(root))
}

// goReader makes types of Go types, each struct once.
type goReader map[reflect.Type]*Type

// goScalars are the types that are not what their Go kind says.
var goScalars = map[reflect.Type]Kind{
	reflect.TypeFor[resource.Quantity]():    Quantity,
	reflect.TypeFor[intstr.IntOrString]():   IntOrString,
	reflect.TypeFor[metav1.Time]():          Time,
	reflect.TypeFor[metav1.MicroTime]():     MicroTime,
	reflect.TypeFor[runtime.RawExtension](): Any,
	reflect.TypeFor[json.RawMessage]():      Any,
	reflect.TypeFor[[]byte]():               Bytes,
}

func (r goReader) typeOf(t reflect.Type) *Type {
	if kind, ok := goScalars[t]; ok {
		return &Type{Kind: kind, GoName: t.String()}
	}
	switch t.Kind() {
	case reflect.Bool:
		return &Type{Kind: Bool, GoName: t.String()}
	case reflect.Int32:
		return &Type{Kind: Int32, GoName: t.String()}
	case reflect.Int, reflect.Int64:
		return &Type{Kind: Int64, GoName: t.String()}
	case reflect.String:
		return &Type{Kind: String, GoName: t.String()}
	case reflect.Interface:
		return &Type{Kind: Any, GoName: t.String()}
	case reflect.Slice:
		return r.container(List, t)
	case reflect.Map:
		if t.Key().Kind() == reflect.String {
			return r.container(Map, t)
		}
	case reflect.Struct:
		name := strings.ReplaceAll(t.PkgPath(), "/", ".") + "." + t.Name()
		if own, ok := strings.CutPrefix(name, "k8s.io."); ok {
			if known := builtinTypes.lookup("io.k8s." + own); known != nil {
				return known
			}
		}
		return r.structure(t, name)
	}
	panic(fmt.Sprintf("schema: there is no way to write a %s", t))
}

func (r goReader) container(kind Kind, t reflect.Type) *Type {
	elem := t.Elem()
	nullable := elem.Kind() == reflect.Pointer
	if nullable {
		elem = elem.Elem()
	}
	return &Type{Kind: kind, GoName: t.String(), Elem: r.typeOf(elem), NullableElem: nullable}
}

func (r goReader) structure(t reflect.Type, name string) *Type {
	if known := r[t]; known != nil {
		return known
	}
	s := &Type{Kind: Struct, Name: name, GoName: t.String()}
	r[t] = s
	s.Fields = r.fields(nil, t)
	return s
}

// fields appends those of a struct, with those of structs embedded in it where they stand.
func (r goReader) fields(all []Field, t reflect.Type) []Field {
	for f := range t.Fields() {
		name, flags, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case name == "-" || !f.IsExported():
			continue
		case f.Anonymous && name == "":
			all = r.fields(all, f.Type)
			continue
		case name == "":
			name = f.Name
		}
		all = append(all, r.field(f, name, ","+flags+","))
	}
	return all
}

func (r goReader) field(f reflect.StructField, name, flags string) Field {
	t := f.Type
	pointer := t.Kind() == reflect.Pointer
	if pointer {
		t = t.Elem()
	}
	field := Field{
		Name: name, Type: r.typeOf(t), Pointer: pointer || t.Kind() == reflect.Interface,
		Optional:      strings.Contains(flags, ",omitempty,"),
		OmitZero:      strings.Contains(flags, ",omitzero,"),
		PatchMergeKey: f.Tag.Get("patchMergeKey"),
	}
	field.Required = !field.Optional && !field.OmitZero && !pointer
	if strategy := f.Tag.Get("patchStrategy"); strategy != "" {
		field.PatchStrategy = strings.Split(strategy, ",")
	}
	if field.PatchMergeKey != "" {
		field.Type.ListType, field.Type.ListKeys = "map", []string{field.PatchMergeKey}
	}
	return field
}
