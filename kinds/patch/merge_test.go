package patch_test

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	kjson "sigs.k8s.io/json"

	"github.com/setpoint-dev/setpoint/kinds/patch"
	"github.com/setpoint-dev/setpoint/kinds/schema"
)

// FuzzMerge holds merge patches against the library that upstream uses.
func FuzzMerge(f *testing.F) {
	f.Add(`{"a":{"b":[1,2],"c":1}}`, `{"a":{"b":null,"d":{"e":null}}}`)
	f.Add(`{"a":[{"x":1}]}`, `{"a":[{"x":null,"y":2}],"n":[{"x":null}]}`)
	f.Add(`{"a":{"x":1}}`, `{"a":[{"x":null}]}`)
	f.Add(`{"a":1}`, `{"a":{"x":null}}`)
	f.Fuzz(func(t *testing.T, doc, text string) {
		var obj, p map[string]any
		if kjson.UnmarshalCaseSensitivePreserveInts([]byte(doc), &obj) != nil || obj == nil || hasFloat(obj) ||
			kjson.UnmarshalCaseSensitivePreserveInts([]byte(text), &p) != nil || p == nil || hasFloat(p) {
			t.Skip()
		}
		canonicalDoc, _ := json.Marshal(obj)
		canonicalPatch, _ := json.Marshal(p)
		want, err := jsonpatch.MergePatch(canonicalDoc, canonicalPatch)
		if err != nil {
			t.Skip()
		}
		if diff := cmp.Diff(parse(t, string(want)), patch.Merge(obj, p)); diff != "" {
			t.Fatalf("%s on %s: (-library +got)\n%s", text, doc, diff)
		}
	})
}

func TestMerge(t *testing.T) {
	got := patch.Merge(
		parse(t, `{"keep":1,"gone":1,"deep":{"a":1,"b":{"c":1}},"list":[1,2]}`),
		parse(t, `{"gone":null,"deep":{"a":null,"b":{"d":2}},"list":[3],"new":{"x":null,"y":1}}`))
	want := parse(t, `{"keep":1,"deep":{"b":{"c":1,"d":2}},"list":[3],"new":{"y":1}}`)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

func podType(t testing.TB) *schema.Type {
	t.Helper()
	return schema.Builtin("io.k8s.api.core.v1.Pod").Root()
}

func TestStrategic(t *testing.T) {
	const pod = `{"metadata":{"labels":{"a":"1"},"finalizers":["x/a"]},"spec":{
		"containers":[{"name":"c","image":"i","env":[{"name":"A","value":"1"},{"name":"B","value":"2"}]},{"name":"d","image":"j"}],
		"tolerations":[{"key":"k"}]}}`
	tests := []struct{ name, patch, want string }{
		{"items are merged by key", `{"spec":{"containers":[{"name":"d","image":"new"}]}}`, `["c","d=new"]`},
		{"new items come first", `{"spec":{"containers":[{"name":"n","image":"new"}]}}`, `["n=new","c","d"]`},
		{"items are deleted", `{"spec":{"containers":[{"name":"c","$patch":"delete"}]}}`, `["d"]`},
		{"the list is replaced", `{"spec":{"containers":[{"$patch":"replace"},{"name":"o","image":"only"}]}}`, `["o=only"]`},
		{"the order is set", `{"spec":{"$setElementOrder/containers":[{"name":"d"},{"name":"c"}]}}`, `["d","c"]`},
		{"a list without a strategy is replaced", `{"spec":{"tolerations":[]}}`, `["c","d"]`},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			got, err := patch.Strategic(parse(t, pod), parse(t, test.patch), podType(t))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.want, containers(got)); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
}

// containers lists the containers of a pod, with the images that a test changed.
func containers(pod map[string]any) string {
	var names []string
	for _, c := range pod["spec"].(map[string]any)["containers"].([]any) {
		c := c.(map[string]any)
		name := c["name"].(string)
		if image := c["image"].(string); len(image) > 1 {
			name += "=" + image
		}
		names = append(names, name)
	}
	text, _ := json.Marshal(names)
	return string(text)
}

func TestStrategic_OrderOfItemsWithoutKeys(t *testing.T) {
	const pod = `{"spec":{"tolerations":[{"key":"a"},{"key":"b"}],"containers":[{"name":"c"},{"name":"d"}]}}`
	_, err := patch.Strategic(parse(t, pod),
		parse(t, `{"spec":{"$setElementOrder/tolerations":[{"key":"b"},{"key":"a"}]}}`), podType(t))
	if !errors.Is(err, patch.ErrUnordered) || !strings.Contains(err.Error(), "spec.$setElementOrder/tolerations") {
		t.Errorf("got error %v, want ErrUnordered that names the list", err)
	}
	_, err = patch.Strategic(parse(t, pod),
		parse(t, `{"spec":{"$setElementOrder/containers":[{"name":"d"},{"name":"c"}]}}`), podType(t))
	if err != nil {
		t.Error(err)
	}
}

func TestB026_DuplicateKeysAreNotMerged(t *testing.T) {
	const pod = `{"spec":{"containers":[{"name":"c","env":[
		{"name":"1","value":"a"},{"name":"2","value":"a"},{"name":"3","value":"a"},{"name":"2","value":"b"}]}]}}`
	for _, text := range []string{
		`{"spec":{"containers":[{"name":"c","env":[{"name":"2","value":"c"}]}]}}`,
		`{"spec":{"containers":[{"name":"c","env":[{"name":"2","$patch":"delete"}]}]}}`,
		`{"spec":{"containers":[{"name":"c","env":[{"name":"9","value":"x"},{"name":"9","value":"y"}]}]}}`,
	} {
		_, err := patch.Strategic(parse(t, pod), parse(t, text), podType(t))
		if !errors.Is(err, patch.ErrAmbiguous) || !strings.Contains(err.Error(), "spec.containers[name=c].env") {
			t.Errorf("%s: got error %v, want ErrAmbiguous that names the list", text, err)
		}
	}
	// A patch of other items loses none of them.
	got, err := patch.Strategic(parse(t, pod),
		parse(t, `{"spec":{"containers":[{"name":"c","env":[{"name":"1","value":"z"}]}]}}`), podType(t))
	if err != nil {
		t.Fatal(err)
	}
	container := got["spec"].(map[string]any)["containers"].([]any)[0].(map[string]any)
	for _, want := range []string{"1=z", "2=a", "2=b", "3=a"} {
		if !slices.ContainsFunc(container["env"].([]any), func(v any) bool {
			return v.(map[string]any)["name"].(string)+"="+v.(map[string]any)["value"].(string) == want
		}) {
			t.Errorf("%s is lost: %v", want, container["env"])
		}
	}
}
