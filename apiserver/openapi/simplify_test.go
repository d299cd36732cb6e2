package openapi_test

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/setpoint-dev/setpoint/apiserver/openapi"
	"github.com/setpoint-dev/setpoint/kinds"
	"github.com/setpoint-dev/setpoint/kinds/schema"
)

// What is wanted is what a Kubernetes API server of version 1.37 publishes of the same definitions.
func TestVersionTwoIsNoStricterThanTheDeclaredSchema(t *testing.T) {
	for name, test := range map[string]struct{ declared, want string }{
		"anything goes at the root": {
			`{"type":"object","description":"d","x-kubernetes-preserve-unknown-fields":true,"properties":{"a":{"type":"string"}}}`,
			`{"type":"object"}`,
		},
		"anything goes within": {
			`{"type":"object","properties":{"a":{"type":"object","description":"d","x-kubernetes-preserve-unknown-fields":true,
				"properties":{"b":{"type":"string"}}},"l":{"type":"array","items":{"type":"object","x-kubernetes-preserve-unknown-fields":true}}}}`,
			`{"type":"object","properties":{"a":{"description":"d","x-kubernetes-preserve-unknown-fields":true},
				"l":{"type":"array","items":{"x-kubernetes-preserve-unknown-fields":true}}}}`,
		},
		"a list of anything": {
			`{"type":"object","properties":{"l":{"type":"array","items":{"type":"string"},"x-kubernetes-preserve-unknown-fields":true}}}`,
			`{"type":"object","properties":{"l":{"x-kubernetes-preserve-unknown-fields":true}}}`,
		},
		"an embedded object of which anything goes": {
			`{"type":"object","properties":{"e":{"type":"object","required":["kind"],"properties":{"kind":{"type":"string"}},
				"x-kubernetes-embedded-resource":true,"x-kubernetes-preserve-unknown-fields":true}}}`,
			`{"type":"object","properties":{"e":{"x-kubernetes-embedded-resource":true,"x-kubernetes-preserve-unknown-fields":true}}}`,
		},
		"null": {
			`{"type":"object","required":["n","a"],"properties":{"a":{"type":"string"},"n":{"type":"string","nullable":true,"description":"d"},
				"o":{"type":"object","required":["x"],"nullable":true,"properties":{"x":{"type":"string","nullable":true}}},
				"m":{"type":"object","additionalProperties":{"type":"string","nullable":true}},
				"l":{"type":"array","nullable":true,"items":{"type":"string"}}}}`,
			`{"type":"object","required":["a"],"properties":{"a":{"type":"string"},"n":{"description":"d"},"o":{"required":["x"]},
				"m":{"type":"object","additionalProperties":{}},"l":{}}}`,
		},
		"alternatives and defaults": {
			`{"type":"object","properties":{"p":{"anyOf":[{"type":"integer"},{"type":"string"}],"x-kubernetes-int-or-string":true},
				"c":{"type":"object","properties":{"l":{"type":"string","default":"x","minLength":1}},
				"oneOf":[{"required":["l"]}],"not":{"required":["r"]},"allOf":[{"required":["l"]}]}}}`,
			`{"type":"object","properties":{"p":{"x-kubernetes-int-or-string":true},
				"c":{"type":"object","properties":{"l":{"type":"string","minLength":1}}}}}`,
		},
		"a reference": {
			`{"type":"object","properties":{"metadata":{"description":"d","allOf":[{"$ref":"#/components/schemas/io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"}]}}}`,
			`{"type":"object","properties":{"metadata":{"description":"d","$ref":"#/definitions/io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"}}}`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			k := &kinds.Kind{
				Group: "example.com", Version: "v1", Kind: "Thing", Resource: "things", Singular: "thing",
				Schema:  &schema.Schema{Name: "com.example.v1.Thing"},
				OpenAPI: func() map[string]any { return parse(t, test.declared) },
			}
			text, err := openapi.V2([]*kinds.Kind{k})
			if err != nil {
				t.Fatal(err)
			}
			got := parse(t, string(text))["definitions"].(map[string]any)["com.example.v1.Thing"].(map[string]any)
			delete(got, "x-kubernetes-group-version-kind")
			if d := cmp.Diff(parse(t, test.want), got); d != "" {
				t.Errorf("(-want +got):\n%s", d)
			}
		})
	}
}

func parse(t *testing.T, text string) (v map[string]any) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		t.Fatal(err)
	}
	return v
}
