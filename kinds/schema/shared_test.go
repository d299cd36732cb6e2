package schema_test

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/setpoint-dev/setpoint/kinds/schema"
	"github.com/setpoint-dev/setpoint/kinds/tree"
)

// fieldsOf decodes a config map whose one entry of managedFields has the fields, and returns them.
func fieldsOf(t *testing.T, fields string) any {
	t.Helper()
	text := `{"metadata":{"name":"c","managedFields":[{"manager":"m","fieldsV1":` + fields + `}]}}`
	decoded, err := schema.Builtin("io.k8s.api.core.v1.ConfigMap").DecodeJSON([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	entry, _ := tree.List(decoded.Object, "metadata", "managedFields")[0].(map[string]any)
	return entry["fieldsV1"]
}

func TestFieldSetsAreShared(t *testing.T) {
	const text = `{"f:data":{".":{},"f:k":{}}}`
	one, other := fieldsOf(t, text), fieldsOf(t, text)
	want := map[string]any{"f:data": map[string]any{".": map[string]any{}, "f:k": map[string]any{}}}
	if diff := cmp.Diff(any(want), one); diff != "" {
		t.Errorf("fields (-want +got):\n%s", diff)
	}
	if reflect.ValueOf(one).Pointer() != reflect.ValueOf(other).Pointer() {
		t.Error("the same fields of two objects are two trees, want one")
	}
}

// However many sets there are, each object has its own; what is no set is as it would be elsewhere.
func TestFieldSetsAreNotMixedUp(t *testing.T) {
	for i := range 3000 {
		name := fmt.Sprint("f:k", i)
		want := map[string]any{name: map[string]any{}}
		if diff := cmp.Diff(any(want), fieldsOf(t, `{"`+name+`":{}}`)); diff != "" {
			t.Fatalf("fields (-want +got):\n%s", diff)
		}
	}
	long := strings.Repeat("k", 10_000)
	for text, want := range map[string]any{
		`{"f:` + long + `":{}}`:     map[string]any{"f:" + long: map[string]any{}},
		`{"f:a":{},"f:a":{".":{}}}`: map[string]any{"f:a": map[string]any{".": map[string]any{}}},
		`"text"`:                    "text",
		`[1]`:                       []any{int64(1)},
	} {
		for range 2 {
			if diff := cmp.Diff(want, fieldsOf(t, text)); diff != "" {
				t.Errorf("%.30s (-want +got):\n%s", text, diff)
			}
		}
	}
}
