package crd_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/setpoint-dev/setpoint/kinds/crd"
)

// The document of a kind says what its definition leaves unsaid, in the words of Kubernetes: kubectl
// explain shows them.
func TestOpenAPISaysWhatEveryObjectHas(t *testing.T) {
	text := strings.Replace(string(stored(1, 0)), `"size":{"type":"integer","default":1}`, `"size":{"type":"integer","default":1},
		"port":{"x-kubernetes-int-or-string":true},
		"inner":{"type":"object","required":["spec"],"x-kubernetes-embedded-resource":true,"x-kubernetes-preserve-unknown-fields":true}`, 1)
	d, err := crd.Read([]byte(text), 7)
	if err != nil {
		t.Fatal(err)
	}
	_, kept := d.Kinds(0, crd.Converters{}, nil)
	document := kept.OpenAPI()
	at := func(path ...string) any {
		var v any = document
		for _, name := range path {
			v = v.(map[string]any)[name]
		}
		return v
	}
	for field, begins := range map[string]string{
		"apiVersion": "APIVersion defines", "kind": "Kind is a string", "metadata": "Standard object's metadata.",
	} {
		for _, path := range [][]string{{"properties"}, {"properties", "spec", "properties", "inner", "properties"}} {
			if text, _ := at(append(path, field, "description")...).(string); !strings.HasPrefix(text, begins) {
				t.Errorf("%v: %s is described as %q", path, field, text)
			}
		}
	}
	for field, want := range map[string]string{
		"port":  `{"anyOf":[{"type":"integer"},{"type":"string"}],"x-kubernetes-int-or-string":true}`,
		"inner": `["spec","kind","apiVersion"]`,
	} {
		v := at("properties", "spec", "properties", field)
		if field == "inner" {
			v = v.(map[string]any)["required"]
		}
		got, err := json.Marshal(v)
		if d := cmp.Diff(want, string(got)); err != nil || d != "" {
			t.Errorf("%s, %v (-want +got):\n%s", field, err, d)
		}
	}
}
