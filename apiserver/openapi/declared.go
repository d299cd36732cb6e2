package openapi

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/setpoint-dev/setpoint/kinds"
	compiled "github.com/setpoint-dev/setpoint/kinds/schema"
)

// declare adds the components of the kinds that have none yet, because they are made of Go types.
// Types say what a field holds; what it is for stands in comments, which a program has not.
func declare(schemas map[string]any, own []*kinds.Kind) error {
	d := declared{schemas: schemas}
	for _, k := range own {
		if schemas[k.Schema.Name] == nil {
			d.add(k.Schema.Root())
			schemas[listName(k)] = listOf(k)
			d.outside = append(d.outside, listMetaName)
		}
	}
	if len(d.outside) == 0 {
		return nil
	}
	raw, err := compiled.OpenAPIDefinitions(d.outside...)
	if err != nil {
		return fmt.Errorf("openapi: %w", err)
	}
	return unpack(schemas, raw)
}

type declared struct {
	schemas map[string]any
	outside []string // types met on the way whose components are written: those of Kubernetes
}

// unpack adds components that are written as JSON.
func unpack(schemas map[string]any, raw map[string][]byte) error {
	for name, text := range raw {
		var schema map[string]any
		if err := json.Unmarshal(text, &schema); err != nil {
			return fmt.Errorf("openapi: %s: %w", name, err)
		}
		schemas[name] = schema
	}
	return nil
}

// add writes the component of a struct, once, and of all that it refers to.
func (d *declared) add(t *compiled.Type) {
	if d.schemas[t.Name] == nil {
		schema := map[string]any{}
		d.schemas[t.Name] = schema // before its fields: a type may refer to itself
		d.fill(schema, t)
	}
}

func (d *declared) fill(schema map[string]any, t *compiled.Type) {
	properties, required := map[string]any{}, []any{}
	for i := range t.Fields {
		f := &t.Fields[i]
		properties[f.Name] = d.property(f)
		if f.Required {
			required = append(required, f.Name)
		}
	}
	schema["type"], schema["properties"] = "object", properties
	if len(required) > 0 {
		schema["required"] = required
	}
}

func (d *declared) property(f *compiled.Field) map[string]any {
	p := d.value(f.Type)
	if f.Default != nil {
		p["default"] = f.Default
	}
	if len(f.PatchStrategy) > 0 {
		p["x-kubernetes-patch-strategy"] = strings.Join(f.PatchStrategy, ",")
	}
	if f.PatchMergeKey != "" {
		p["x-kubernetes-patch-merge-key"] = f.PatchMergeKey
	}
	return p
}

// scalars are the schemas of values that have no parts.
var scalars = map[compiled.Kind]map[string]any{
	compiled.Bool:        {"type": "boolean"},
	compiled.Int32:       {"type": "integer", "format": "int32"},
	compiled.Int64:       {"type": "integer", "format": "int64"},
	compiled.String:      {"type": "string"},
	compiled.Bytes:       {"type": "string", "format": "byte"},
	compiled.Quantity:    {"oneOf": []any{map[string]any{"type": "string"}, map[string]any{"type": "number"}}},
	compiled.IntOrString: {"format": "int-or-string", "oneOf": []any{map[string]any{"type": "integer"}, map[string]any{"type": "string"}}},
	compiled.Time:        {"type": "string", "format": "date-time"},
	compiled.MicroTime:   {"type": "string", "format": "date-time"},
	compiled.Any:         {anyFields: true},
}

// value is the schema of a value, for the caller to add to.
func (d *declared) value(t *compiled.Type) map[string]any {
	v := map[string]any{}
	switch t.Kind {
	case compiled.List:
		v["type"], v["items"] = "array", d.value(t.Elem)
		if t.ListType != "" {
			v["x-kubernetes-list-type"] = t.ListType
		}
		if len(t.ListKeys) > 0 {
			v["x-kubernetes-list-map-keys"] = t.ListKeys
		}
	case compiled.Map:
		v["type"], v["additionalProperties"] = "object", d.value(t.Elem)
	case compiled.Struct:
		d.structure(v, t)
	default:
		for key, value := range scalars[t.Kind] {
			v[key] = value
		}
	}
	return v
}

// structure refers to a struct, or writes one that has no name where it stands.
func (d *declared) structure(v map[string]any, t *compiled.Type) {
	switch {
	case strings.HasPrefix(t.Name, "io.k8s."):
		d.outside = append(d.outside, t.Name)
	case t.Name == "" || strings.HasSuffix(t.Name, "."):
		d.fill(v, t)
		return
	default:
		d.add(t)
	}
	v["allOf"] = []any{ref(t.Name)}
}
