package main

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/kube-openapi/pkg/builder3"
	"k8s.io/kube-openapi/pkg/common"
	"k8s.io/kube-openapi/pkg/validation/spec"

	"github.com/setpoint-dev/setpoint/tools/schemagen/openapi"
)

// definitions are what openapi-gen says of each type, by OpenAPI name.
type definitions struct {
	raw    map[string]common.OpenAPIDefinition // as generated, with plain references
	served map[string]*spec.Schema             // as a server publishes them
}

const refPrefix = "#/components/schemas/"

func loadDefinitions(known map[schema.GroupVersionKind]reflect.Type) (*definitions, error) {
	kindsOf := map[string][]schema.GroupVersionKind{}
	for gvk, t := range known {
		if name, ok := modelName(t); ok {
			kindsOf[name] = append(kindsOf[name], gvk)
		}
	}
	raw := openapi.GetOpenAPIDefinitions(func(name string) spec.Ref {
		return spec.MustCreateRef(refPrefix + name)
	})
	config := &common.OpenAPIV3Config{
		GetDefinitions: openapi.GetOpenAPIDefinitions,
		GetDefinitionName: func(name string) (string, spec.Extensions) {
			return name, kindsExtension(kindsOf[name])
		},
	}
	served, err := builder3.BuildOpenAPIDefinitionsForResources(config, slices.Sorted(maps.Keys(raw))...)
	if err != nil {
		return nil, fmt.Errorf("building the OpenAPI definitions: %w", err)
	}
	return &definitions{raw: raw, served: served}, nil
}

// kindsExtension is x-kubernetes-group-version-kind, by which clients find a kind's definition.
func kindsExtension(gvks []schema.GroupVersionKind) spec.Extensions {
	if len(gvks) == 0 {
		return nil
	}
	slices.SortFunc(gvks, func(a, b schema.GroupVersionKind) int {
		return cmp.Or(strings.Compare(a.Group, b.Group), strings.Compare(a.Version, b.Version),
			strings.Compare(a.Kind, b.Kind))
	})
	var list []any
	for _, gvk := range gvks {
		list = append(list, map[string]any{"group": gvk.Group, "version": gvk.Version, "kind": gvk.Kind})
	}
	return spec.Extensions{"x-kubernetes-group-version-kind": list}
}

// pack returns the served definitions as compressed JSON: one object, by name.
func (d *definitions) pack() ([]byte, error) {
	plain, err := json.Marshal(d.served) // sorts its keys
	if err != nil {
		return nil, err
	}
	var packed bytes.Buffer
	w, err := gzip.NewWriterLevel(&packed, gzip.BestCompression)
	if err != nil {
		return nil, err
	}
	if _, err := w.Write(plain); err != nil {
		return nil, err
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return packed.Bytes(), nil
}

// property returns the definition of a field.
func (d *definitions) property(model, name string) (spec.Schema, error) {
	def, ok := d.raw[model]
	if !ok {
		return spec.Schema{}, fmt.Errorf("%s: no definition", model)
	}
	p, ok := def.Schema.Properties[name]
	if !ok {
		return spec.Schema{}, fmt.Errorf("%s: no definition of the field %s", model, name)
	}
	return p, nil
}

func (d *definitions) required(model, name string) bool {
	return slices.Contains(d.raw[model].Schema.Required, name)
}

// extension returns a list type, map type or other "x-kubernetes-" extension, or "".
func extension(s spec.Schema, name string) string {
	v, _ := s.Extensions["x-kubernetes-"+name].(string)
	return v
}

func listMapKeys(s spec.Schema) []string {
	var keys []string
	list, _ := s.Extensions["x-kubernetes-list-map-keys"].([]any)
	for _, k := range list {
		keys = append(keys, k.(string))
	}
	return keys
}
