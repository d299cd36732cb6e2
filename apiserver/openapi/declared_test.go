package openapi_test

import (
	"encoding/json"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/setpoint-dev/setpoint/apiserver/openapi"
	"github.com/setpoint-dev/setpoint/kinds"
	"github.com/setpoint-dev/setpoint/kinds/schema"
)

// Orchard is a kind as programs bring it: a Go type, and no document.
type Orchard struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec OrchardSpec `json:"spec"`
}

type OrchardSpec struct {
	Trees    int32                       `json:"trees"`
	Labels   map[string]string           `json:"labels,omitempty"`
	Gardener *corev1.PodSpec             `json:"gardener,omitempty"`
	Parts    []OrchardSpec               `json:"parts,omitempty"`
	Fence    struct{ High bool }         `json:"fence,omitempty"`
	Watered  *metav1.Time                `json:"watered,omitempty"`
	Water    corev1.ResourceRequirements `json:"water,omitempty"`
}

func orchard() *kinds.Kind {
	return &kinds.Kind{
		Group: "example.dev", Version: "v1", Kind: "Orchard", Resource: "orchards", Singular: "orchard",
		Namespaced: true, Schema: schema.OfGo("dev.example.v1.Orchard", &Orchard{}),
	}
}

// TestKindOfGoTypeIsDescribed is what kubectl explain needs of a kind that a program brought.
func TestKindOfGoTypeIsDescribed(t *testing.T) {
	docs, err := openapi.V3([]*kinds.Kind{orchard()})
	if err != nil {
		t.Fatal(err)
	}
	var doc struct {
		Components struct{ Schemas map[string]map[string]any }
	}
	text := docs["apis/example.dev/v1"]
	if err := json.Unmarshal(text, &doc); err != nil {
		t.Fatal(err)
	}
	schemas := doc.Components.Schemas
	for _, match := range regexp.MustCompile(`"\$ref":"#/components/schemas/([^"]+)"`).FindAllSubmatch(text, -1) {
		if name := string(match[1]); schemas[name] == nil {
			t.Errorf("%s is referred to and not there", name)
		}
	}
	root := schemas["dev.example.v1.Orchard"]
	gvk := []any{map[string]any{"group": "example.dev", "version": "v1", "kind": "Orchard"}}
	if diff := cmp.Diff(gvk, root["x-kubernetes-group-version-kind"]); diff != "" {
		t.Errorf("the kind of the component (-want +got):\n%s", diff)
	}
	var spec map[string]any
	for name, schema := range schemas {
		if strings.HasSuffix(name, ".OrchardSpec") {
			spec = schema
		}
	}
	own := strings.TrimSuffix(refOf(t, root["properties"].(map[string]any)["spec"]), "OrchardSpec")
	refer := func(name string) map[string]any {
		return map[string]any{"allOf": []any{map[string]any{"$ref": name}}}
	}
	want := map[string]any{
		"type": "object", "required": []any{"trees"},
		"properties": map[string]any{
			"trees":    map[string]any{"type": "integer", "format": "int32"},
			"labels":   map[string]any{"type": "object", "additionalProperties": map[string]any{"type": "string"}},
			"gardener": refer("#/components/schemas/io.k8s.api.core.v1.PodSpec"),
			"parts":    map[string]any{"type": "array", "items": refer(own + "OrchardSpec")},
			"fence": map[string]any{
				"type": "object", "required": []any{"High"},
				"properties": map[string]any{"High": map[string]any{"type": "boolean"}},
			},
			"watered": map[string]any{"type": "string", "format": "date-time"},
			"water":   refer("#/components/schemas/io.k8s.api.core.v1.ResourceRequirements"),
		},
	}
	if diff := cmp.Diff(want, spec); diff != "" {
		t.Errorf("the component of the spec (-want +got):\n%s", diff)
	}
	if _, err := openapi.V2([]*kinds.Kind{orchard()}); err != nil {
		t.Errorf("version 2: %v", err)
	}
}

func refOf(t *testing.T, property any) string {
	t.Helper()
	all, ok := property.(map[string]any)["allOf"].([]any)
	if !ok {
		t.Fatalf("%v refers to nothing", property)
	}
	return all[0].(map[string]any)["$ref"].(string)
}
