package openapi

import (
	"maps"
	"slices"
)

const (
	anyFields = "x-kubernetes-preserve-unknown-fields"
	identity  = "x-kubernetes-group-version-kind"
)

// simplify makes a declared schema one that clients of version 2 understand, as Kubernetes does:
// what they would take for a stricter rule than it is is left out. They know no null, no
// alternatives and no defaults, and refuse what a type does not name even where anything goes.
func simplify(root map[string]any) map[string]any {
	if root[anyFields] == true {
		return map[string]any{"type": "object", identity: root[identity]}
	}
	return simplified(root)
}

func simplified(schema map[string]any) map[string]any {
	out := maps.Clone(schema)
	for _, keyword := range []string{"oneOf", "anyOf", "not", "default", "nullable"} {
		delete(out, keyword)
	}
	if !refers(schema) {
		delete(out, "allOf")
	}
	nullable, free := schema["nullable"] == true, schema[anyFields] == true
	if nullable || free {
		delete(out, "items")
		delete(out, "properties")
	}
	if nullable || free && schema["type"] == "object" || schema["type"] == "array" && out["items"] == nil {
		delete(out, "type")
	}
	if free && schema["x-kubernetes-embedded-resource"] == true {
		delete(out, "required")
	}
	requireValues(out)
	simplifyWithin(out)
	return out
}

// requireValues leaves fields out of those required that may be null.
func requireValues(out map[string]any) {
	properties, _ := out["properties"].(map[string]any)
	required, _ := out["required"].([]any)
	kept := slices.DeleteFunc(slices.Clone(required), func(name any) bool {
		property, _ := properties[name.(string)].(map[string]any)
		return property["nullable"] == true
	})
	if values, _ := out["additionalProperties"].(map[string]any); values["nullable"] == true || len(kept) == 0 {
		delete(out, "required")
	} else {
		out["required"] = kept
	}
}

// simplifyWithin does the same to the schemas of fields, items and values.
func simplifyWithin(out map[string]any) {
	for _, keyword := range []string{"items", "additionalProperties"} {
		if sub, ok := out[keyword].(map[string]any); ok {
			out[keyword] = simplified(sub)
		}
	}
	if properties, ok := out["properties"].(map[string]any); ok {
		properties = maps.Clone(properties)
		for name, sub := range properties {
			properties[name] = simplified(sub.(map[string]any))
		}
		out["properties"] = properties
	}
}

// refers says whether a schema is another one, with a description of its own.
func refers(schema map[string]any) bool {
	all, _ := schema["allOf"].([]any)
	if len(all) != 1 {
		return false
	}
	only, _ := all[0].(map[string]any)
	return only["$ref"] != nil
}
