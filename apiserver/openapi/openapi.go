// Package openapi writes the OpenAPI documents of a set of kinds: version 3, a document for each
// group and version, and version 2, one for everything. kubectl explains, applies and validates by
// them.
//
// The components are what package kinds/schema knows of the types; the paths follow from the
// records. Writing a document takes milliseconds and is done on request: the caller keeps it.
package openapi

import (
	"encoding/json"
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/setpoint-dev/setpoint/kinds"
	compiled "github.com/setpoint-dev/setpoint/kinds/schema"
)

const (
	patchName  = "io.k8s.apimachinery.pkg.apis.meta.v1.Patch"
	statusName = "io.k8s.apimachinery.pkg.apis.meta.v1.Status"
	optionName = "io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions"
	scaleName  = "io.k8s.api.autoscaling.v1.Scale"

	objectMetaName = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"
	listMetaName   = "io.k8s.apimachinery.pkg.apis.meta.v1.ListMeta"
)

// Path is the path of the version 3 document that a kind is in: "api/v1", "apis/apps/v1".
func Path(k *kinds.Kind) string {
	if k.Group == "" {
		return "api/" + k.Version
	}
	return "apis/" + k.Group + "/" + k.Version
}

// V3 writes all version 3 documents, by path. They are written together because unpacking the
// components is most of the work.
func V3(all []*kinds.Kind) (map[string][]byte, error) {
	schemas, err := components(all)
	if err != nil {
		return nil, err
	}
	byPath := map[string][]*kinds.Kind{}
	for _, k := range all {
		byPath[Path(k)] = append(byPath[Path(k)], k)
	}
	docs := make(map[string][]byte, len(byPath))
	for path, own := range byPath {
		if docs[path], err = document(own, schemas); err != nil {
			return nil, fmt.Errorf("openapi: %s: %w", path, err)
		}
	}
	return docs, nil
}

// document writes one version 3 document, with the components that its paths refer to.
func document(own []*kinds.Kind, schemas map[string]any) ([]byte, error) {
	items, picked := paths(own), map[string]any{}
	pick(picked, schemas, items)
	return json.Marshal(map[string]any{
		"openapi": "3.0.0",
		"info":    info,
		"paths":   items,
		"components": map[string]any{
			"schemas": picked,
			"securitySchemes": map[string]any{"BearerToken": map[string]any{
				"type": "apiKey", "name": "authorization", "in": "header",
				"description": "Bearer Token authentication",
			}},
		},
	})
}

const refPrefix = "#/components/schemas/"

// pick adds to picked the schemas that v refers to, and those that these refer to.
func pick(picked, schemas map[string]any, v any) {
	switch v := v.(type) {
	case []any:
		for _, item := range v {
			pick(picked, schemas, item)
		}
	case operations:
		for _, op := range v {
			pick(picked, schemas, op)
		}
	case map[string]any:
		if target, ok := v["$ref"].(string); ok {
			name := strings.TrimPrefix(target, refPrefix)
			if schema, known := schemas[name]; known && picked[name] == nil {
				picked[name] = schema
				pick(picked, schemas, schema)
			}
		}
		for _, value := range v {
			pick(picked, schemas, value)
		}
	}
}

var info = map[string]any{"title": "Setpoint", "version": "unversioned"}

// components are the schemas of the kinds, of their lists, and of all that these refer to.
func components(own []*kinds.Kind) (map[string]any, error) {
	names := []string{statusName, optionName}
	for _, k := range own {
		if k.OpenAPI != nil {
			names = append(names, objectMetaName, listMetaName)
		} else {
			names = append(names, k.Schema.Name, listName(k))
		}
		if k.Scale != nil {
			names = append(names, scaleName)
		}
		for _, s := range k.Subresources {
			if name := bodyName(k, s); name != "" {
				names = append(names, name)
			}
		}
	}
	raw, err := compiled.OpenAPIDefinitions(names...)
	if err != nil {
		return nil, fmt.Errorf("openapi: %w", err)
	}
	schemas := make(map[string]any, len(raw)+1)
	if err := unpack(schemas, raw); err != nil {
		return nil, err
	}
	schemas[patchName] = map[string]any{
		"description": "A patch: its form is what the media type says.", "type": "object",
	}
	for _, k := range own {
		if k.OpenAPI != nil {
			schemas[k.Schema.Name], schemas[listName(k)] = k.OpenAPI(), listOf(k)
		}
	}
	if err := declare(schemas, own); err != nil {
		return nil, err
	}
	for _, k := range own {
		identify(schemas, k)
	}
	return schemas, nil
}

// What is said of the fields of every list.
var (
	typeDoc = metav1.TypeMeta{}.SwaggerDoc()
	listDoc = metav1.PartialObjectMetadataList{}.SwaggerDoc()
)

const conventions = "https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md"

// listOf is the component of a list of objects whose own component is not among the written ones.
func listOf(k *kinds.Kind) map[string]any {
	text := func(description string) map[string]any {
		return map[string]any{"type": "string", "description": description}
	}
	return map[string]any{
		"description": k.ListKindName() + " is a list of " + k.Kind, "type": "object", "required": []any{"items"},
		"properties": map[string]any{
			"apiVersion": text(typeDoc["apiVersion"]),
			"kind":       text(typeDoc["kind"]),
			"metadata":   map[string]any{"description": listDoc["metadata"], "allOf": []any{ref(listMetaName)}},
			"items": map[string]any{
				"description": "List of " + k.Resource + ". More info: " + conventions,
				"type":        "array", "items": ref(k.Schema.Name),
			},
		},
	}
}

// listName is the component of a list of a kind's objects.
func listName(k *kinds.Kind) string {
	return strings.TrimSuffix(k.Schema.Name, k.Kind) + k.ListKindName()
}

// bodyName is the component of a subresource's body, if it has one of its own.
func bodyName(k *kinds.Kind, s kinds.Subresource) string {
	if s.Kind == "" || s.Kind == k.Kind || strings.HasSuffix(s.Kind, "Options") {
		return ""
	}
	if s.Group == "" {
		return "io.k8s.api.core.v1." + s.Kind
	}
	group, _, _ := strings.Cut(s.Group, ".")
	return "io.k8s.api." + group + "." + s.Version + "." + s.Kind
}

// identify says which group, version and kind the components of a kind are.
func identify(schemas map[string]any, k *kinds.Kind) {
	for name, kind := range map[string]string{k.Schema.Name: k.Kind, listName(k): k.ListKindName()} {
		if schema, ok := schemas[name].(map[string]any); ok {
			schema[identity] = []any{gvk(k.Group, k.Version, kind)}
		}
	}
}

func gvk(group, version, kind string) map[string]any {
	return map[string]any{"group": group, "version": version, "kind": kind}
}

func ref(name string) map[string]any {
	return map[string]any{"$ref": refPrefix + name}
}
