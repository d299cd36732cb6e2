package check

import (
	"reflect"
	"strings"
)

// Shown is a map as messages show it that print Kubernetes' Go structs: with all fields, in their order and by
// their names there, null for what the map does not say. A field is called as in the map but for its first
// letter, or "Name=name" if more differs.
func Shown(m map[string]any, fields ...string) any {
	types := make([]reflect.StructField, len(fields))
	values := make([]any, len(fields))
	for i, field := range fields {
		name, key, ok := strings.Cut(field, "=")
		if !ok {
			key = strings.ToLower(name[:1]) + name[1:]
		}
		types[i] = reflect.StructField{Name: name, Type: reflect.TypeFor[any]()}
		values[i] = m[key]
	}
	out := reflect.New(reflect.StructOf(types)).Elem()
	for i, v := range values {
		if v != nil {
			out.Field(i).Set(reflect.ValueOf(v))
		}
	}
	return out.Interface()
}

// Changed is what a field was to become that may not change, as messages show it: the two parts of a label
// selector stand in the order of their Go type.
func Changed(v any) any {
	selector, ok := v.(map[string]any)
	if ok && selector["matchLabels"] != nil && selector["matchExpressions"] != nil {
		return *LabelSelector(selector)
	}
	return v
}
