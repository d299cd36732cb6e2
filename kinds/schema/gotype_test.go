package schema_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/setpoint-dev/setpoint/kinds/schema"
)

type gadget struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   gadgetSpec   `json:"spec"`
	Status gadgetStatus `json:"status,omitzero"`
}

type gadgetSpec struct {
	Size     int32                   `json:"size"`
	Count    *int64                  `json:"count,omitempty"`
	On       bool                    `json:"on,omitempty"`
	Mode     gadgetMode              `json:"mode,omitempty"`
	Secret   []byte                  `json:"secret,omitempty"`
	Limit    resource.Quantity       `json:"limit"`
	Port     intstr.IntOrString      `json:"port"`
	Since    *metav1.Time            `json:"since,omitempty"`
	Template *corev1.PodTemplateSpec `json:"template,omitempty"`
	Labels   map[string]string       `json:"labels,omitempty"`
	Parts    []part                  `json:"parts,omitempty" patchStrategy:"merge" patchMergeKey:"name"`
	Spare    []*part                 `json:"spare,omitempty"`
	Free     any                     `json:"free,omitempty"`
	Raw      runtime.RawExtension    `json:"raw,omitempty"`
	Plain    string
	Hidden   string `json:"-"`
}

type gadgetMode string

type part struct {
	Name string `json:"name"`
	Sub  []part `json:"sub,omitempty"`
}

type gadgetStatus struct {
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// TestOfGoAgreesWithJSON compares a schema with what encoding/json makes of the Go type it is of.
func TestOfGoAgreesWithJSON(t *testing.T) {
	s := schema.OfGo("dev.example.v1.Gadget", &gadget{})
	for _, body := range []string{
		`{}`,
		`{"apiVersion":"example.dev/v1","kind":"Gadget","metadata":{"name":"a","labels":{"k":"v"}},"spec":{"size":3}}`,
		`{"spec":{"count":0,"on":false,"mode":"fast","secret":"YWI=","limit":"0.1","port":"http","since":"2026-01-02T03:04:05Z"}}`,
		`{"spec":{"port":80,"labels":{"a":"b"},"labels2":null,"parts":[{"name":"x","sub":[{"name":"y"}]}],"spare":[null,{"name":"z"}]}}`,
		`{"spec":{"free":{"a":[1,"b",null]},"raw":{"b":true},"Plain":"p","Hidden":"h"}}`,
		`{"spec":{"template":{"metadata":{"name":"t"},"spec":{"containers":[{"name":"c","image":"i"}]}}}}`,
		`{"status":{"conditions":[{"type":"Ready","status":"True","lastTransitionTime":"2026-01-02T03:04:05Z","reason":"R","message":""}]}}`,
	} {
		var typed gadget
		if err := json.Unmarshal([]byte(body), &typed); err != nil {
			t.Fatal(err)
		}
		want, err := json.Marshal(typed)
		if err != nil {
			t.Fatal(err)
		}
		decoded, err := s.DecodeJSON([]byte(body))
		if err != nil {
			t.Errorf("%s: %v", body, err)
			continue
		}
		got, err := json.Marshal(decoded.Object)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(loose(t, want), loose(t, got)); diff != "" {
			t.Errorf("%s: -encoding/json +schema:\n%s", body, diff)
		}
	}
}

func loose(t *testing.T, text []byte) (v any) {
	t.Helper()
	if err := json.Unmarshal(text, &v); err != nil {
		t.Fatal(err)
	}
	return v
}

// TestOfGoFindsMistakes checks what is said about bodies, and how lists merge.
func TestOfGoFindsMistakes(t *testing.T) {
	s := schema.OfGo("dev.example.v1.Gadget", gadget{})
	decoded, err := s.DecodeJSON([]byte(`{"spec":{"sizee":3,"parts":[{"nam":"x"}]}}`))
	want := []string{`unknown field "spec.sizee"`, `unknown field "spec.parts[0].nam"`}
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, decoded.Findings); diff != "" {
		t.Errorf("findings (-want +got):\n%s", diff)
	}
	if _, err := s.DecodeJSON([]byte(`{"spec":{"size":"big"}}`)); err == nil || !strings.Contains(err.Error(), "spec.size") {
		t.Errorf("a string for a number: %v, want an error that names the field", err)
	}
	parts := s.Root().Field("spec").Type.Field("parts")
	if got := fmt.Sprintln(parts.PatchStrategy, parts.PatchMergeKey, parts.Type.ListType, parts.Type.ListKeys); got != "[merge] name map [name]\n" {
		t.Errorf("parts merge as %s", got)
	}
}

// TestOfGoRefusesWhatJSONCannotCarry has it panic where the record is made.
func TestOfGoRefusesWhatJSONCannotCarry(t *testing.T) {
	for _, v := range []any{
		struct{ C chan int }{}, struct{ M map[int]string }{}, 3,
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%T has a schema", v)
				}
			}()
			schema.OfGo("x.Y", v)
		}()
	}
}
