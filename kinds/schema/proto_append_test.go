package schema_test

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/setpoint-dev/setpoint/kinds/schema"
)

// appendEnveloped encodes canonical JSON as a whole protobuf body.
func appendEnveloped(t testing.TB, s *schema.Schema, apiVersion, kind string, canonical []byte) []byte {
	t.Helper()
	raw, err := s.AppendProto(nil, canonical)
	if err != nil {
		t.Fatalf("%v: %s", err, canonical)
	}
	return schema.AppendEnvelope(nil, apiVersion, kind, raw)
}

func TestAppendProto_MatchesUpstreamByteForByte(t *testing.T) {
	for _, f := range loadFixtures(t) {
		t.Run(f.name, func(t *testing.T) {
			apiVersion, kind, _, err := schema.Envelope(f.proto)
			if err != nil {
				t.Fatal(err)
			}
			decoded, err := f.schema.DecodeJSON(f.json)
			if err != nil {
				t.Fatal(err)
			}
			got := appendEnveloped(t, f.schema, apiVersion, kind, appendStamped(f.schema, decoded.Object))
			if diff := cmp.Diff(f.proto, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// Objects of which nothing was given have what a Go value has even then.
func TestAppendProto_WritesWhatUpstreamAlwaysWrites(t *testing.T) {
	for _, f := range loadFixtures(t) {
		t.Run(f.name, func(t *testing.T) {
			decoded, err := f.schema.DecodeJSON([]byte(`{}`))
			if err != nil {
				t.Fatal(err)
			}
			got, err := f.schema.AppendProto(nil, appendStamped(f.schema, decoded.Object))
			if err != nil {
				t.Fatal(err)
			}
			want, err := f.typed.DeepCopyObject().(interface{ Marshal() ([]byte, error) }).Marshal()
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// A definition has values that protobuf and JSON have in forms of their own.
func TestProto_DefinitionsAgreeWithTypedOnes(t *testing.T) {
	half, ten := 0.5, 10.0
	leaf := &apiextensionsv1.JSONSchemaProps{Type: "string"}
	definition := &apiextensionsv1.CustomResourceDefinition{
		TypeMeta:   metav1.TypeMeta{APIVersion: "apiextensions.k8s.io/v1", Kind: "CustomResourceDefinition"},
		ObjectMeta: metav1.ObjectMeta{Name: "widgets.example.com"},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
			Name: "v1", Schema: &apiextensionsv1.CustomResourceValidation{
				OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{
					Type: "object", Minimum: &half, Maximum: &ten,
					Default: &apiextensionsv1.JSON{Raw: []byte(`{"a":[1,"b"]}`)},
					Enum:    []apiextensionsv1.JSON{{Raw: []byte(`"a"`)}, {Raw: []byte(`1.5`)}},
					Items:   &apiextensionsv1.JSONSchemaPropsOrArray{Schema: leaf},
					AdditionalProperties: &apiextensionsv1.JSONSchemaPropsOrBool{
						Allows: true, Schema: leaf},
					AdditionalItems: &apiextensionsv1.JSONSchemaPropsOrBool{},
					Properties: map[string]apiextensionsv1.JSONSchemaProps{
						"b": {Items: &apiextensionsv1.JSONSchemaPropsOrArray{
							JSONSchemas: []apiextensionsv1.JSONSchemaProps{*leaf, {Type: "integer"}}}},
						"a": {AdditionalProperties: &apiextensionsv1.JSONSchemaPropsOrBool{Allows: true}},
					},
					Dependencies: apiextensionsv1.JSONSchemaDependencies{
						"x": {Property: []string{"y", "z"}}, "w": {Schema: leaf}},
					XValidations: apiextensionsv1.ValidationRules{{Rule: "self > 1"}, {Rule: "self < 9"}},
				},
			},
		}}},
	}
	s := schemaOf(definition)
	text, err := json.Marshal(definition)
	if err != nil {
		t.Fatal(err)
	}
	fromJSON, err := s.DecodeJSON(text)
	if err != nil || len(fromJSON.Findings) > 0 {
		t.Fatal(err, fromJSON.Findings)
	}
	want, err := definition.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	got, err := s.AppendProto(nil, appendStamped(s, fromJSON.Object))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	fromProto, err := s.DecodeProto(want)
	if err != nil {
		t.Fatal(err)
	}
	fromProto.Object["apiVersion"], fromProto.Object["kind"] = definition.APIVersion, definition.Kind
	if diff := cmp.Diff(fromJSON.Object, fromProto.Object); diff != "" {
		t.Error(diff)
	}
}

func TestAppendProto_RefusesWhatIsNotCanonical(t *testing.T) {
	pod := schema.Builtin("io.k8s.api.core.v1.Pod")
	for _, text := range []string{
		``, `{`, `{}{}`, `{"metadata":1}`, `{"metadata":{"name":1}}`, `{"spec":{"hostNetwork":1.5,"priority":"x"}}`,
		`{"metadata":{"creationTimestamp":"yesterday"}}`,
	} {
		if out, err := pod.AppendProto(nil, []byte(text)); err == nil {
			t.Errorf("%s became %x", text, out)
		}
	}
}
