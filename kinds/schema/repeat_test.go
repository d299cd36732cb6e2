package schema_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/setpoint-dev/setpoint/kinds/schema"
)

// What stands twice is read into what is there, as a Go value would be.
func TestDecodeJSON_ReadsRepeatedFieldsIntoTheFirst(t *testing.T) {
	pod := loadFixture(t, "core.v1.Pod")
	for _, body := range []string{
		`{"spec":{"nodeName":"a","hostname":"b"},"spec":{"nodeName":"","subdomain":"c"}}`,
		`{"spec":{"nodeName":"a"},"spec":null}`,
		`{"spec":{"priority":1,"priority":null}}`,
		`{"spec":{"hostNetwork":true,"hostNetwork":null}}`,
		`{"spec":{"securityContext":{"runAsUser":1},"securityContext":{"runAsGroup":2},"securityContext":{"runAsUser":null}}}`,
		`{"spec":{"nodeSelector":{"a":"1"},"nodeSelector":{"b":"2"},"nodeSelector":{}}}`,
		`{"spec":{"nodeSelector":{"a":"1"},"nodeSelector":null,"nodeSelector":{"b":"2"}}}`,
		`{"spec":{"containers":[{"name":"a","image":"i"},{"name":"b"}],"containers":[{"name":"c"}]}}`,
		`{"spec":{"containers":[{"name":"a","image":"i"}],"containers":[null,{"name":"c"}]}}`,
		`{"spec":{"containers":[{"name":"a","image":"i"}]},"spec":{"containers":[{"command":["x"],"image":""}]}}`,
	} {
		if diff := disagreement(pod, []byte(body)); diff != "" {
			t.Errorf("%s: %s", body, diff)
		}
	}
}

// In protobuf, too: two messages one after the other are one that has been merged.
func TestDecodeProto_MergesRepeatedFields(t *testing.T) {
	for _, f := range loadFixtures(t) {
		t.Run(f.name, func(t *testing.T) {
			_, _, raw, err := schema.Envelope(f.proto)
			if err != nil {
				t.Fatal(err)
			}
			twice := append(raw[:len(raw):len(raw)], raw...)
			typed := f.typed.DeepCopyObject()
			if err := typed.(interface{ Unmarshal([]byte) error }).Unmarshal(twice); err != nil {
				t.Fatal(err)
			}
			want, err := json.Marshal(typed)
			if err != nil {
				t.Fatal(err)
			}
			got, err := f.schema.DecodeProto(twice)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), string(appendStamped(f.schema, got.Object))); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// A list with a Go type of its own is a message in protobuf.
func TestDecodeProto_ListsThatAreMessages(t *testing.T) {
	typed := metav1.APIResourceList{APIResources: []metav1.APIResource{
		{Name: "pods", Verbs: metav1.Verbs{"get", "list"}}, {Name: "nodes", Verbs: metav1.Verbs{}}}}
	raw, err := typed.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	s := schema.Builtin("io.k8s.apimachinery.pkg.apis.meta.v1.APIResourceList")
	got, err := s.DecodeProto(raw)
	if err != nil {
		t.Fatal(err)
	}
	var back metav1.APIResourceList
	if err := back.Unmarshal(raw); err != nil {
		t.Fatal(err)
	}
	want, err := json.Marshal(back)
	if err != nil {
		t.Fatal(err)
	}
	if out, _ := s.Append(nil, got.Object); string(out) != string(want) {
		t.Error(cmp.Diff(string(want), string(out)))
	}
}

func TestDecodeJSON_DepthIsBounded(t *testing.T) {
	s := schema.Untyped("test")
	nested := func(depth int) []byte {
		return []byte(`{"a":` + strings.Repeat("[", depth-1) + strings.Repeat("]", depth-1) + `}`)
	}
	if _, err := s.DecodeJSON(nested(10000)); err != nil {
		t.Errorf("10000: %v", err)
	}
	if _, err := s.DecodeJSON(nested(10001)); err == nil || !strings.Contains(err.Error(), "exceeded max depth") {
		t.Errorf("10001: %v", err)
	}
}
