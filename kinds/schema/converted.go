package schema

import "strings"

// Converted is the error in the words of Kubernetes' converter from trees to Go values, which reads what
// strategic patches and applies make. It names no field.
func (e *Error) Converted() string {
	if e.converted != "" {
		return e.converted
	}
	return e.text
}

// wrongType reports a value that is not of its type.
func (c *conformer) wrongType(g gravity, t *Type, v any, goType string) {
	if e := c.mismatch(g, foundValue(v), goType); e != nil {
		e.converted = conversionError(t, v)
	}
}

func conversionError(t *Type, v any) string {
	switch t.Kind {
	case Struct:
		return "cannot restore struct from: " + reflectKind(v)
	case Map:
		return "cannot restore map from " + reflectKind(v)
	case List, Bytes:
		return "cannot restore slice from " + reflectKind(v)
	case IntOrString:
		return "json: cannot unmarshal " + foundValue(v) + " into Go value of type int32"
	case Time, MicroTime:
		return "json: cannot unmarshal " + foundValue(v) + " into Go value of type string"
	}
	from, to := reflectKind(v), scalarKind(t.Kind)
	if from == "int64" && to == "string" || from == "float64" && strings.HasPrefix(to, "int") {
		return "cannot convert " + from + " to " + t.GoName
	}
	return "unrecognized type: " + to
}

// scalarKind names the Go kind of a scalar.
func scalarKind(k Kind) string {
	switch k {
	case Bool:
		return "bool"
	case Int32:
		return "int32"
	case Int64:
		return "int64"
	}
	return "string"
}

// reflectKind names the Go kind of a value in a tree.
func reflectKind(v any) string {
	switch v.(type) {
	case string:
		return "string"
	case bool:
		return "bool"
	case map[string]any:
		return "map"
	case []any:
		return "slice"
	case float64:
		return "float64"
	}
	return "int64"
}
