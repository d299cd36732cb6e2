package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/kube-openapi/pkg/validation/spec"
)

// walker collects one block of text for each struct that it meets:
//
//	io.k8s.api.core.v1.Volume
//		name r string 1
//		^VolumeSource @.VolumeSource 2
//
// A block is the OpenAPI name and a line for each field in the order of the Go type: the JSON name,
// flags, type, protobuf number (0: none), and options. The flags are o omitempty, z omitzero,
// p pointer and r required, or - for none. A line with ^ embeds the fields of another struct. Types are
//
//	bool int32 int64 string bytes quantity intorstring time microtime duration any
//	string<v1.Protocol>       a Go type of its own, for messages
//	[]T []<v1.Verbs>T         a list; [*]T if items may be null
//	{}T {}<v1.ResourceList>T  a map by string; {*}T if values may be null
//	@io.k8s.api.core.v1.Pod   a struct; @.Pod in the package of the block
//
// and the options are patch=strategy,… key=field list=type keys=field,… atomic granular
// proto=form default=JSON and, to the end of the line, enum=A|B. In protobuf a list with a Go type of its own is
// a message, with its items as field 1, unless its form is repeated; the other forms are of values,
// or the items of a list or map, that protobuf has not as JSON has them: double, orbool, orarray and
// orstrings. Behind the name of a block, atomic says that server-side apply replaces the struct as a
// whole, unless a field of the type says granular, and loose that values of other types may stand in its place.
type walker struct {
	defs   *definitions
	blocks map[string]string // by OpenAPI name; "" while under way
}

// describe returns the blocks of all registered types, and those they refer to, in order of name.
func describe(known map[schema.GroupVersionKind]reflect.Type, defs *definitions) ([]byte, error) {
	w := &walker{defs: defs, blocks: map[string]string{}}
	for _, t := range known {
		if _, ok := modelName(t); !ok {
			continue // internal helpers of the scheme
		}
		if err := w.structure(t); err != nil {
			return nil, err
		}
	}
	var out bytes.Buffer
	for _, name := range slices.Sorted(maps.Keys(w.blocks)) {
		out.WriteString(w.blocks[name])
	}
	return out.Bytes(), nil
}

// modelName is how OpenAPI names a type, if it is part of the API.
func modelName(t reflect.Type) (string, bool) {
	n, ok := reflect.New(t).Interface().(interface{ OpenAPIModelName() string })
	if !ok {
		return "", false
	}
	return n.OpenAPIModelName(), true
}

func (w *walker) structure(t reflect.Type) error {
	name, ok := modelName(t)
	if !ok {
		return fmt.Errorf("%v has no OpenAPI name", t)
	}
	if _, seen := w.blocks[name]; seen {
		return nil
	}
	if want := lastTwo(name); t.String() != want {
		return fmt.Errorf("%s: the Go type is %v and not %s", name, t, want)
	}
	w.blocks[name] = ""
	var b strings.Builder
	b.WriteString(name)
	if w.atomicStruct(name) {
		b.WriteString(" atomic")
	}
	if loose[t] {
		b.WriteString(" loose")
	}
	b.WriteByte('\n')
	for i := range t.NumField() {
		line, err := w.field(name, t.Field(i))
		if err != nil {
			return fmt.Errorf("%s: %s: %w", name, t.Field(i).Name, err)
		}
		b.WriteString(line)
	}
	w.blocks[name] = b.String()
	return nil
}

func lastTwo(name string) string {
	parts := strings.Split(name, ".")
	return strings.Join(parts[len(parts)-2:], ".")
}

func (w *walker) atomicStruct(model string) bool {
	return extension(w.defs.raw[model].Schema, "map-type") == "atomic"
}

func (w *walker) field(model string, f reflect.StructField) (string, error) {
	name, opts, _ := strings.Cut(f.Tag.Get("json"), ",")
	switch {
	case name == "-" || !f.IsExported():
		return "", nil
	case f.Anonymous && name == "":
		return w.embed(model, f)
	case name == "":
		return "", fmt.Errorf("no JSON name")
	}
	property, err := w.defs.property(model, name)
	if err != nil && len(w.defs.raw[model].Schema.Properties) > 0 {
		return "", err
	}
	t, pointer := f.Type, false
	if t.Kind() == reflect.Pointer {
		t, pointer = t.Elem(), true
	}
	spelled, err := w.spell(model, t)
	if err != nil {
		return "", err
	}
	flags := flags(opts, pointer, w.defs.required(model, name))
	line := fmt.Sprintf("\t%s %s %s %s", name, flags, spelled, protoNumber(f))
	return line + options(f, t, pointer, property) + "\n", nil
}

func (w *walker) embed(model string, f reflect.StructField) (string, error) {
	spelled, err := w.spell(model, f.Type)
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("\t^%s %s %s\n", f.Name, spelled, protoNumber(f)), nil
}

func flags(jsonOptions string, pointer, required bool) string {
	var flags string
	options := strings.Split(jsonOptions, ",")
	if slices.Contains(options, "omitempty") {
		flags += "o"
	}
	if slices.Contains(options, "omitzero") {
		flags += "z"
	}
	if pointer {
		flags += "p"
	}
	if required {
		flags += "r"
	}
	if flags == "" {
		return "-"
	}
	return flags
}

// protoNumber reads `protobuf:"bytes,2,opt,name=spec"`.
func protoNumber(f reflect.StructField) string {
	parts := strings.Split(f.Tag.Get("protobuf"), ",")
	if len(parts) < 2 {
		return "0"
	}
	return parts[1]
}

func options(f reflect.StructField, t reflect.Type, pointer bool, property spec.Schema) string {
	var b strings.Builder
	add := func(key, value string) {
		if value != "" {
			fmt.Fprintf(&b, " %s=%s", key, value)
		}
	}
	add("patch", f.Tag.Get("patchStrategy"))
	add("key", f.Tag.Get("patchMergeKey"))
	add("list", extension(property, "list-type"))
	add("keys", strings.Join(listMapKeys(property), ","))
	switch mapType := extension(property, "map-type"); {
	case mapType == "atomic", mapType == "granular" && f.Type.Kind() != reflect.Map:
		b.WriteString(" " + mapType)
	}
	add("proto", protoForm(f, t))
	add("default", staticDefault(pointer, property.Default))
	add("enum", enum(property))
	return b.String()
}

func enum(property spec.Schema) string {
	values := property.Enum
	if property.Items != nil && property.Items.Schema != nil {
		values = property.Items.Schema.Enum
	}
	var list []string
	for _, v := range values {
		list = append(list, fmt.Sprint(v))
	}
	return strings.Join(list, "|")
}

// staticDefault leaves out what says no more than that the zero value is written.
func staticDefault(pointer bool, value any) string {
	if value == nil {
		return ""
	}
	text, err := json.Marshal(value)
	if err != nil {
		panic(err) // it came from JSON
	}
	if bytes.ContainsRune(text, ' ') {
		panic("a default with a space needs another format: " + string(text))
	}
	if zero := []string{`""`, "0", "false", "{}"}; !pointer && slices.Contains(zero, string(text)) {
		return ""
	}
	return string(text)
}

var special = map[reflect.Type]string{
	reflect.TypeFor[resource.Quantity]():    "quantity",
	reflect.TypeFor[intstr.IntOrString]():   "intorstring",
	reflect.TypeFor[metav1.Time]():          "time",
	reflect.TypeFor[metav1.MicroTime]():     "microtime",
	reflect.TypeFor[metav1.Duration]():      "duration",
	reflect.TypeFor[metav1.FieldsV1]():      "any",
	reflect.TypeFor[runtime.RawExtension](): "any",
	reflect.TypeFor[any]():                  "any",
	reflect.TypeFor[[]byte]():               "bytes",
	reflect.TypeFor[float64]():              "any",

	reflect.TypeFor[apiextensionsv1.JSON]():                         "any",
	reflect.TypeFor[apiextensionsv1.JSONSchemaPropsOrBool]():        "@.JSONSchemaProps",
	reflect.TypeFor[apiextensionsv1.JSONSchemaPropsOrArray]():       "@.JSONSchemaProps",
	reflect.TypeFor[apiextensionsv1.JSONSchemaPropsOrStringArray](): "@.JSONSchemaProps",
}

// protoForms are the types that are a message of their own in protobuf, and not one in JSON.
var protoForms = map[reflect.Type]string{
	reflect.TypeFor[float64]():                                      "double",
	reflect.TypeFor[apiextensionsv1.JSONSchemaPropsOrBool]():        "orbool",
	reflect.TypeFor[apiextensionsv1.JSONSchemaPropsOrArray]():       "orarray",
	reflect.TypeFor[apiextensionsv1.JSONSchemaPropsOrStringArray](): "orstrings",
}

func protoForm(f reflect.StructField, t reflect.Type) string {
	if form, ok := protoForms[t]; ok {
		return form
	}
	repeated := strings.Contains(f.Tag.Get("protobuf"), ",rep,")
	switch {
	case t.Kind() == reflect.Slice && t.Name() != "" && repeated:
		return "repeated"
	case t.Kind() == reflect.Slice, t.Kind() == reflect.Map:
		return protoForms[t.Elem()]
	}
	return ""
}

// loose are the structs in whose place the API has values of other types, too.
var loose = map[reflect.Type]bool{reflect.TypeFor[apiextensionsv1.JSONSchemaProps](): true}

func (w *walker) spell(model string, t reflect.Type) (string, error) {
	if name, ok := special[t]; ok {
		return name, nil
	}
	switch t.Kind() {
	case reflect.Bool, reflect.Int32, reflect.Int64, reflect.String:
		return t.Kind().String() + ownName(t, t.Kind().String()), nil
	case reflect.Slice:
		return w.spellElem(model, t, "[", "]", "[]")
	case reflect.Map:
		if t.Key().Kind() != reflect.String {
			return "", fmt.Errorf("%v: keys are not strings", t)
		}
		return w.spellElem(model, t, "{", "}", "map[string]")
	case reflect.Struct:
		name, _ := modelName(t)
		if err := w.structure(t); err != nil {
			return "", err
		}
		if i := strings.LastIndexByte(name, '.'); strings.HasPrefix(model, name[:i+1]) &&
			!strings.Contains(model[i+1:], ".") {
			name = name[i:]
		}
		return "@" + name, nil
	}
	return "", fmt.Errorf("%v: no such kind of value", t)
}

func (w *walker) spellElem(model string, t reflect.Type, open, shut, goPrefix string) (string, error) {
	elem := t.Elem()
	if elem.Kind() == reflect.Pointer {
		elem, open = elem.Elem(), open+"*"
	}
	spelled, err := w.spell(model, elem)
	if err != nil {
		return "", err
	}
	return open + shut + ownName(t, goPrefix+t.Elem().String()) + spelled, nil
}

// ownName is the name of a Go type in messages, where it is not the usual one.
func ownName(t reflect.Type, usual string) string {
	if t.String() == usual {
		return ""
	}
	return "<" + t.String() + ">"
}
