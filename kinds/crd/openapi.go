package crd

import "encoding/json"

// openAPI is the definition of the version's objects as documents have it: the schema of the
// CustomResourceDefinition, with what it leaves unsaid about every object.
func (f *form) openAPI() map[string]any {
	var read struct{ OpenAPIV3Schema map[string]any }
	if json.Unmarshal(f.version.Schema, &read) != nil || read.OpenAPIV3Schema == nil {
		read.OpenAPIV3Schema = map[string]any{"type": "object"}
	}
	root := read.OpenAPIV3Schema
	embed(root)
	addItself(root)
	return root
}

// addItself adds the fields that every object has.
func addItself(m map[string]any) {
	fields, _ := m["properties"].(map[string]any)
	if fields == nil {
		fields = map[string]any{}
		m["properties"] = fields
	}
	fields["apiVersion"] = text("The versioned schema of this representation of an object.")
	fields["kind"] = text("The kind of object this is.")
	fields["metadata"] = map[string]any{
		"description": "What every object says of itself.",
		"allOf":       []any{map[string]any{"$ref": "#/components/schemas/" + objectMetaName}},
	}
}

const objectMetaName = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"

func text(description string) map[string]any {
	return map[string]any{"type": "string", "description": description}
}

// embed adds those fields to all objects in it that are embedded whole.
func embed(v any) {
	switch v := v.(type) {
	case []any:
		for _, item := range v {
			embed(item)
		}
	case map[string]any:
		for _, sub := range v {
			embed(sub)
		}
		if v["x-kubernetes-embedded-resource"] == true {
			addItself(v)
		}
	}
}
