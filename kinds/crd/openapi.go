package crd

import (
	"encoding/json"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// openAPI is the definition of the version's objects as documents have it: the schema of the
// CustomResourceDefinition, with what it leaves unsaid about every object.
func (f *form) openAPI() map[string]any {
	var read struct{ OpenAPIV3Schema map[string]any }
	if json.Unmarshal(f.version.Schema, &read) != nil || read.OpenAPIV3Schema == nil {
		read.OpenAPIV3Schema = map[string]any{"type": "object"}
	}
	root := read.OpenAPIV3Schema
	complete(root)
	addItself(root)
	return root
}

// What is said of the fields of every object.
var (
	typeDoc   = metav1.TypeMeta{}.SwaggerDoc()
	objectDoc = metav1.PartialObjectMetadata{}.SwaggerDoc()
)

// addItself adds the fields that every object has.
func addItself(m map[string]any) {
	fields, _ := m["properties"].(map[string]any)
	if fields == nil {
		fields = map[string]any{}
		m["properties"] = fields
	}
	fields["apiVersion"] = text(typeDoc["apiVersion"])
	fields["kind"] = text(typeDoc["kind"])
	fields["metadata"] = map[string]any{
		"description": objectDoc["metadata"],
		"allOf":       []any{map[string]any{"$ref": "#/components/schemas/" + objectMetaName}},
	}
}

const objectMetaName = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"

func text(description string) map[string]any {
	return map[string]any{"type": "string", "description": description}
}

// complete says what follows from the schema's own keywords: objects that are embedded whole have
// those fields and need the first two, and what is an integer or a string is one of the two.
func complete(v any) {
	switch v := v.(type) {
	case []any:
		for _, item := range v {
			complete(item)
		}
	case map[string]any:
		for _, sub := range v {
			complete(sub)
		}
		if v["x-kubernetes-embedded-resource"] == true {
			addItself(v)
			v["required"] = withRequired(v["required"], "kind", "apiVersion")
		}
		if v["x-kubernetes-int-or-string"] == true && v["anyOf"] == nil && v["allOf"] == nil {
			v["anyOf"] = []any{map[string]any{"type": "integer"}, map[string]any{"type": "string"}}
		}
	}
}

// withRequired adds names to a list of required fields.
func withRequired(list any, names ...string) []any {
	required, _ := list.([]any)
	for _, name := range names {
		if !slices.Contains(required, any(name)) {
			required = append(required, name)
		}
	}
	return required
}
