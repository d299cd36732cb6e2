package apiserver_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// A scalar of a declared kind has nothing in it that is known, whatever stands there.
func TestScalarsOfDeclaredKindsHaveNoFields(t *testing.T) {
	a := newAPI(t)
	a.want(201, "POST "+crds, "", definition(`{"type":"object","properties":{"s":{"type":"string"},
		"n":{"type":"integer"},"l":{"type":"array","items":{"type":"boolean"}}}}`))
	const parts = `"spec":{"s":{"a":1},"n":[{"b":[{}]}],"l":[{"c":1}]}`
	got := a.want(400, "POST "+widgets+"?fieldValidation=Strict", "", widget("a", parts))
	const want = `Widget in version "v1" cannot be handled as a Widget: strict decoding error: ` +
		`unknown field "spec.l[0].c", unknown field "spec.n[0].b", unknown field "spec.s.a"`
	if diff := cmp.Diff(want, got.str("message")); diff != "" {
		t.Error(diff)
	}
	got = a.want(422, "POST "+widgets, "", widget("a", parts))
	if !strings.Contains(got.str("message"), `spec.s in body must be of type string: "object"`) {
		t.Errorf("got %s", got.text)
	}

	a.want(201, "POST "+widgets, "", widget("a"))
	got = a.want(422, "PATCH "+widgets+"/a?fieldValidation=Strict", merge, `{"spec":{"s":{"a":1}}}`)
	if !strings.Contains(got.str("message"), `strict decoding error: unknown field "spec.s.a"`) {
		t.Errorf("got %s", got.text)
	}
}

// An apply is judged by what the definition says of scalars before anything is merged.
func TestAppliesOfDeclaredKindsAreOfTheirTypes(t *testing.T) {
	a := newAPI(t)
	a.want(201, "POST "+crds, "", definition(`{"type":"object","properties":{"s":{"type":"string","nullable":true},
		"n":{"type":"number"},"b":{"type":"boolean"},"any":{"x-kubernetes-int-or-string":true}}}`))
	for spec, want := range map[string]string{
		`{"s":1}`:   ".spec.s: expected string, got &value.valueUnstructured{Value:1}",
		`{"n":"x"}`: ".spec.n: expected numeric (int or float), got string",
		`{"b":{}}`:  ".spec.b: expected boolean, got &{map[]}",
	} {
		got := a.want(500, "PATCH "+widgets+"/a?fieldManager=m", apply, widget("a", `"spec":`+spec))
		want = "failed to create typed patch object (/a; example.com/v1, Kind=Widget): " + want
		if diff := cmp.Diff(want, got.str("message")); diff != "" {
			t.Errorf("%s: %s", spec, diff)
		}
	}
	a.want(201, "PATCH "+widgets+"/a?fieldManager=m", apply, widget("a", `"spec":{"s":null,"n":1.5,"b":true,"any":"x"}`))
}

func TestPatchesKeepTheDeclaredKind(t *testing.T) {
	a := newAPI(t)
	a.want(201, "POST "+crds, "", definition(anySpec))
	a.want(201, "POST "+widgets, "", widget("a"))
	for patch, want := range map[string]string{
		`{"kind":"Other"}`:                              `Other.example.com "a" is invalid: kind: Invalid value: "Other": must be Widget`,
		`{"apiVersion":"v9"}`:                           `Widget "a" is invalid: apiVersion: Invalid value: "v9": must be example.com/v1`,
		`{"apiVersion":"v9","kind":"Gadget"}`:           `[apiVersion: Invalid value: "v9": must be example.com/v1, kind: Invalid value: "Gadget": must be Widget]`,
		`{"kind":""}`:                                   `Object 'Kind' is missing in '{"apiVersion":"example.com/v1","kind":"","metadata":{"creationTimestamp":`,
		`{"apiVersion":"a/b/c"}`:                        `unexpected GroupVersion string: a/b/c`,
		`{"kind":5}`:                                    `couldn't get version/kind; json parse error: json: cannot unmarshal number`,
		`[{"op":"remove","path":"/kind"}]`:              `Object 'Kind' is missing in '{"apiVersion":"example.com/v1","metadata":{"creationTimestamp":`,
		`[{"op":"add","path":"/kind","value":"Other"}]`: `kind: Invalid value: "Other": must be Widget`,
	} {
		media := merge
		if patch[0] == '[' {
			media = "application/json-patch+json"
		}
		if got := a.want(422, "PATCH "+widgets+"/a", media, patch); !strings.Contains(got.str("message"), want) {
			t.Errorf("%s: %s", patch, got.text)
		}
	}
}

func TestScaleThatSaysNothingOfReplicas(t *testing.T) {
	a := newAPI(t)
	a.want(201, "POST "+crds, "", definition(`{"type":"object","properties":{"size":{"type":"integer"}}}`,
		`"subresources":{"status":{},"scale":{"specReplicasPath":".spec.size","statusReplicasPath":".status.size"}}`))
	a.want(201, "POST "+widgets, "", widget("a"))
	got := a.want(500, "GET "+widgets+"/a/scale", "", "")
	if want := `Internal error occurred: the spec replicas field ".spec.size" does not exist`; got.str("message") != want {
		t.Errorf("got %s", got.text)
	}

	const verbs = `"verbs":["delete","deletecollection","get","list","patch","create","update","watch"]`
	got = a.want(200, "GET /apis/example.com/v1", "", "")
	status, scale := strings.Index(got.text, `"widgets/status"`), strings.Index(got.text, `"widgets/scale"`)
	if !strings.Contains(got.text, verbs) || status < 0 || scale < status {
		t.Errorf("discovery is %s", got.text)
	}
}

// Upstream's rules do not survive a look for fields in a schema that they cannot read.
func TestSelectableFieldsOfASchemaThatIsNotStructural(t *testing.T) {
	a := newAPI(t)
	for _, schema := range []string{
		`{"type":"object","properties":{"s":{"type":"array","items":[{"type":"string"}]}}}`,
		`{"type":"object","additionalItems":{"type":"string"}}`,
	} {
		got := a.want(422, "POST "+crds, "", definition(schema, `"selectableFields":[{"jsonPath":".spec.s"}]`))
		if !strings.Contains(got.str("message"), "openAPIV3Schema") {
			t.Errorf("%s: %s", schema, got.text)
		}
	}
}
