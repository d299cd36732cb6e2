package openapi

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	openapi "github.com/google/gnostic-models/openapiv2"
	"google.golang.org/protobuf/proto"

	"github.com/setpoint-dev/setpoint/kinds"
)

// V2 writes the document of everything, in version 2 of the format.
func V2(all []*kinds.Kind) ([]byte, error) {
	schemas, err := components(all)
	if err != nil {
		return nil, err
	}
	for _, k := range all {
		if k.OpenAPI != nil {
			schemas[k.Schema.Name] = simplify(schemas[k.Schema.Name].(map[string]any))
		}
	}
	definitions := make(map[string]any, len(schemas))
	for name, schema := range schemas {
		definitions[name] = downgrade(schema)
	}
	items := map[string]any{}
	for path, v3 := range paths(all) {
		items[path] = pathV2(v3.(map[string]any))
	}
	return json.Marshal(map[string]any{
		"swagger":     "2.0",
		"info":        info,
		"paths":       items,
		"definitions": definitions,
		"securityDefinitions": map[string]any{"BearerToken": map[string]any{
			"type": "apiKey", "name": "authorization", "in": "header",
			"description": "Bearer Token authentication",
		}},
		"security": []any{map[string]any{"BearerToken": []any{}}},
	})
}

// V2Protobuf turns a version 2 document into its protobuf form.
func V2Protobuf(doc []byte) ([]byte, error) {
	parsed, err := openapi.ParseDocument(doc)
	if err != nil {
		return nil, fmt.Errorf("openapi: %w", err)
	}
	return proto.Marshal(parsed)
}

// downgrade rewrites a schema of version 3 as one of version 2: references point elsewhere and
// need no allOf around them, and a value of several types is a string with a format.
func downgrade(v any) any {
	switch v := v.(type) {
	case []any:
		out := make([]any, len(v))
		for i := range v {
			out[i] = downgrade(v[i])
		}
		return out
	case map[string]any:
		return downgradeObject(v)
	}
	return v
}

func downgradeObject(v map[string]any) map[string]any {
	out := make(map[string]any, len(v))
	for key, value := range v {
		out[key] = downgrade(value)
	}
	if target, ok := out["$ref"].(string); ok {
		out["$ref"] = strings.Replace(target, refPrefix, "#/definitions/", 1)
	}
	if all, ok := out["allOf"].([]any); ok && len(all) == 1 {
		delete(out, "allOf")
		delete(out, "default")
		for key, value := range all[0].(map[string]any) {
			out[key] = value
		}
	}
	if _, several := out["oneOf"].([]any); several {
		delete(out, "oneOf")
		out["type"] = "string"
	}
	return out
}

// pathV2 rewrites the operations of a path.
func pathV2(item map[string]any) map[string]any {
	out := map[string]any{}
	for key, value := range item {
		if key == "parameters" {
			out[key] = parametersV2(value.([]any))
			continue
		}
		out[key] = operationV2(value.(map[string]any))
	}
	return out
}

func parametersV2(params []any) []any {
	out := make([]any, 0, len(params))
	for _, p := range params {
		flat := map[string]any{}
		for key, value := range p.(map[string]any) {
			if key == "schema" {
				for k, v := range value.(map[string]any) {
					flat[k] = v
				}
				continue
			}
			flat[key] = value
		}
		out = append(out, flat)
	}
	return out
}

func operationV2(op map[string]any) map[string]any {
	out := map[string]any{"schemes": []any{"https"}}
	var params []any
	for key, value := range op {
		switch key {
		case "parameters":
			params = append(params, parametersV2(value.([]any))...)
		case "requestBody":
			body := value.(map[string]any)
			consumes, schema := contentV2(body["content"].(map[string]any))
			out["consumes"] = consumes
			required, _ := body["required"].(bool)
			params = append(params, map[string]any{
				"name": "body", "in": "body", "required": required, "schema": schema,
			})
		case "responses":
			answers := map[string]any{}
			for code, value := range value.(map[string]any) {
				v3 := value.(map[string]any)
				answer := map[string]any{"description": v3["description"]}
				if content, ok := v3["content"].(map[string]any); ok {
					out["produces"], answer["schema"] = contentV2(content)
				}
				answers[code] = answer
			}
			out["responses"] = answers
		default:
			out[key] = value
		}
	}
	if params != nil {
		out["parameters"] = params
	}
	return out
}

// contentV2 returns the media types of a body, sorted, and its schema.
func contentV2(content map[string]any) (media []any, schema any) {
	for _, name := range slices.Sorted(maps.Keys(content)) {
		media = append(media, name)
		schema = downgrade(content[name].(map[string]any)["schema"])
	}
	return media, schema
}
