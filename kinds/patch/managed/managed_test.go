package managed_test

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	runtimeschema "k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/client-go/applyconfigurations"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/setpoint-dev/setpoint/kinds/patch/managed"
	"github.com/setpoint-dev/setpoint/kinds/schema"
	"github.com/setpoint-dev/setpoint/kinds/tree"
)

const now = "2026-01-02T03:04:05Z"

// subject is a kind under test, with the package that upstream uses as the reference.
type subject struct {
	gvk       runtimeschema.GroupVersionKind
	schema    *schema.Schema
	typ       *managed.Type
	reference *managedfields.FieldManager
}

var converter = applyconfigurations.NewTypeConverter(scheme.Scheme)

func newSubject(t testing.TB, group, version, kind, name string) *subject {
	t.Helper()
	gvk := runtimeschema.GroupVersionKind{Group: group, Version: version, Kind: kind}
	reference, err := managedfields.NewDefaultFieldManager(converter, scheme.Scheme, noDefaults{}, scheme.Scheme,
		gvk, gvk.GroupVersion(), "", nil)
	if err != nil {
		t.Fatal(err)
	}
	s := schema.Builtin(name)
	return &subject{gvk, s, managed.NewType(s), reference}
}

type noDefaults struct{}

func (noDefaults) Default(runtime.Object) {}

func pods(t testing.TB) *subject { return newSubject(t, "", "v1", "Pod", "io.k8s.api.core.v1.Pod") }
func deployments(t testing.TB) *subject {
	return newSubject(t, "apps", "v1", "Deployment", "io.k8s.api.apps.v1.Deployment")
}
func configMaps(t testing.TB) *subject {
	return newSubject(t, "", "v1", "ConfigMap", "io.k8s.api.core.v1.ConfigMap")
}

// decode returns the canonical tree of a text.
func (s *subject) decode(t testing.TB, text string) map[string]any {
	t.Helper()
	decoded, err := s.schema.DecodeJSON([]byte(text))
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	decoded.Object["apiVersion"], decoded.Object["kind"] = s.gvk.GroupVersion().String(), s.gvk.Kind
	return decoded.Object
}

// typed returns a tree as the Go object that the reference works on.
func (s *subject) typed(t testing.TB, obj map[string]any) runtime.Object {
	t.Helper()
	text, err := json.Marshal(obj)
	if err != nil {
		t.Fatal(err)
	}
	out, err := runtime.Decode(scheme.Codecs.UniversalDeserializer(), text)
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return out
}

// fields returns an object's managedFields by manager and operation, times left out.
func fields(t testing.TB, obj map[string]any) map[string]any {
	t.Helper()
	out := map[string]any{}
	for _, e := range tree.Maps(obj, "metadata", "managedFields") {
		key := fmt.Sprintf("%v/%v/%v/%v", e["manager"], e["operation"], e["apiVersion"], e["subresource"])
		out[key] = e["fieldsV1"]
	}
	return out
}

func (s *subject) referenceFields(t testing.TB, obj runtime.Object) map[string]any {
	t.Helper()
	accessor, err := meta.Accessor(obj)
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(map[string]any{"metadata": map[string]any{"managedFields": accessor.GetManagedFields()}})
	if err != nil {
		t.Fatal(err)
	}
	var out map[string]any
	if err := json.Unmarshal(text, &out); err != nil {
		t.Fatal(err)
	}
	return fields(t, out)
}

func (s *subject) write(manager string) managed.Write {
	return managed.Write{Manager: manager, APIVersion: s.gvk.GroupVersion().String(), Time: now}
}

const (
	podText = `{"metadata":{"name":"p","uid":"u","labels":{"a":"1","b":"2"},"finalizers":["x/a","x/b"],
		"ownerReferences":[{"apiVersion":"v1","kind":"K","name":"o","uid":"o1"}]},
		"spec":{"nodeSelector":{"n":"1"},"containers":[
		{"name":"c","image":"i","args":["x"],"env":[{"name":"A","value":"1"},{"name":"B","value":"2"}],
		 "ports":[{"containerPort":80},{"containerPort":80,"protocol":"UDP","name":"u"}],"resources":{"limits":{"cpu":"1"}}},
		{"name":"d","image":"j","volumeMounts":[{"name":"v","mountPath":"/v"}]}],
		"volumes":[{"name":"v","emptyDir":{}}],"tolerations":[{"key":"k"}],"imagePullSecrets":[{"name":"s"}]},
		"status":{"conditions":[{"type":"Ready","status":"True"}],"podIPs":[{"ip":"10.1.1.1"}]}}`
	deploymentText = `{"metadata":{"name":"d","uid":"u"},"spec":{"replicas":2,"selector":{"matchLabels":{"a":"b"}},
		"strategy":{"rollingUpdate":{"maxSurge":"25%"}},
		"template":{"metadata":{"labels":{"a":"b"}},"spec":{"containers":[{"name":"c","image":"i"}]}}}}`
	configMapText = `{"metadata":{"name":"c","uid":"u","annotations":{"x":"y"}},"data":{"k":"v","l":"w"},"binaryData":{"b":"aGk="}}`
)

// TestUpdate_IsTheReference makes random changes by several managers, and compares the entries that
// come of each with those of apimachinery's package.
func TestUpdate_IsTheReference(t *testing.T) {
	for name, s := range map[string]*subject{podText: pods(t), deploymentText: deployments(t), configMapText: configMaps(t)} {
		t.Run(s.gvk.Kind, func(t *testing.T) {
			for seed := range uint64(60) {
				s.updates(t, name, rand.New(rand.NewPCG(seed, 1)))
			}
		})
	}
}

func (s *subject) updates(t *testing.T, text string, r *rand.Rand) {
	t.Helper()
	var live map[string]any
	var reference runtime.Object
	empty, err := scheme.Scheme.New(s.gvk)
	if err != nil {
		t.Fatal(err)
	}
	reference = empty
	for step := range 6 {
		manager := fmt.Sprintf("m%d", r.IntN(3))
		obj := s.decode(t, text)
		if live != nil {
			obj = tree.CopyMap(live)
			tree.Delete(obj, "metadata", "managedFields")
		}
		for range r.IntN(3) {
			mutate(r, obj)
		}
		tree.Set(obj, "u", "metadata", "uid")
		if _, err := s.schema.Conform(obj); err != nil {
			t.Fatalf("a random change made no object: %v", err)
		}
		want := s.reference.UpdateNoErrors(reference, s.typed(t, obj), manager)
		managed.Update(s.typ, live, obj, s.write(manager))
		if diff := gocmp.Diff(s.referenceFields(t, want), fields(t, obj)); diff != "" {
			text, _ := json.Marshal(obj)
			t.Fatalf("step %d: (-reference +got)\n%s\n%s", step, diff, text)
		}
		live, reference = obj, want
	}
}

// mutate changes, removes or adds something at a random place that has the right form.
func mutate(r *rand.Rand, obj map[string]any) {
	keys := sortedKeys(obj)
	keys = slices.DeleteFunc(keys, func(k string) bool { return k == "apiVersion" || k == "kind" || k == "name" || k == "uid" })
	if len(keys) == 0 {
		return
	}
	key := keys[r.IntN(len(keys))]
	switch v := obj[key].(type) {
	case map[string]any:
		if r.IntN(6) == 0 && key != "metadata" && key != "spec" {
			delete(obj, key)
			return
		}
		mutate(r, v)
	case []any:
		mutateList(r, obj, key, v)
	case string:
		if key == "image" || key == "value" || key == "a" || key == "k" {
			obj[key] = fmt.Sprintf("v%d", r.IntN(3))
		}
	case int64:
		obj[key] = int64(r.IntN(3) + 80)
	}
}

func mutateList(r *rand.Rand, obj map[string]any, key string, v []any) {
	if len(v) == 0 {
		return
	}
	i := r.IntN(len(v))
	switch item := v[i].(type) {
	case map[string]any:
		switch r.IntN(5) {
		case 0:
			obj[key] = slices.Delete(slices.Clone(v), i, i+1)
		case 1:
			added := tree.CopyMap(item)
			for _, name := range []string{"name", "type"} {
				if _, ok := added[name].(string); ok {
					added[name] = fmt.Sprintf("n%d", r.IntN(4))
				}
			}
			obj[key] = append(slices.Clone(v), added)
		default:
			mutate(r, item)
		}
	case string:
		obj[key] = append(slices.Clone(v), fmt.Sprintf("x/n%d", r.IntN(3)))
	}
}

func sortedKeys(m map[string]any) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.SortFunc(keys, cmp.Compare[string])
	return keys
}

// TestApply_IsTheReference applies a sequence of wishes, some of which conflict.
func TestApply_IsTheReference(t *testing.T) {
	s := deployments(t)
	steps := []struct {
		manager string
		force   bool
		config  string
	}{
		{"one", false, `{"metadata":{"name":"d","labels":{"l":"1"}},"spec":{"replicas":2,"template":{"spec":{"containers":[{"name":"c","image":"x","env":[{"name":"A","value":"1"}],"ports":[{"containerPort":80}]}]}}}}`},
		{"one", false, `{"metadata":{"name":"d","labels":{"l":"1"}},"spec":{"replicas":2,"template":{"spec":{"containers":[{"name":"c","image":"x","env":[{"name":"A","value":"1"}],"ports":[{"containerPort":80}]}]}}}}`},
		{"two", false, `{"metadata":{"name":"d"},"spec":{"replicas":2,"template":{"spec":{"containers":[{"name":"c","env":[{"name":"B","value":"2"}]},{"name":"side","image":"z"}]}}}}`},
		{"three", false, `{"metadata":{"name":"d","labels":{"l":"3"}},"spec":{"replicas":5}}`},
		{"two", true, `{"metadata":{"name":"d"},"spec":{"replicas":3,"template":{"spec":{"containers":[{"name":"c","env":[{"name":"B","value":"2"}]}]}}}}`},
		{"one", false, `{"metadata":{"name":"d"},"spec":{"template":{"spec":{"containers":[{"name":"c","image":"x"}]}}}}`},
		{"one", false, `{"metadata":{"name":"d"}}`},
	}
	var live map[string]any
	reference, err := scheme.Scheme.New(s.gvk)
	if err != nil {
		t.Fatal(err)
	}
	for i, step := range steps {
		var config map[string]any
		if err := json.Unmarshal([]byte(step.config), &config); err != nil {
			t.Fatal(err)
		}
		config["apiVersion"], config["kind"] = "apps/v1", "Deployment"
		want, wantErr := s.reference.Apply(reference, &unstructured.Unstructured{Object: tree.CopyMap(config)}, step.manager, step.force)
		got, err := managed.Apply(s.typ, live, config, s.write(step.manager), step.force)
		if (err == nil) != (wantErr == nil) {
			t.Fatalf("step %d: got error %v, the reference's is %v", i, err, wantErr)
		}
		if err != nil {
			continue
		}
		if _, err := s.schema.Conform(got); err != nil {
			t.Fatal(err)
		}
		if diff := gocmp.Diff(s.referenceFields(t, want), fields(t, got)); diff != "" {
			t.Fatalf("step %d: (-reference +got)\n%s", i, diff)
		}
		live, reference = got, want
	}
}

func TestUpdate_CapsEntries(t *testing.T) {
	s := configMaps(t)
	var live map[string]any
	for i := range 15 {
		obj := s.decode(t, configMapText)
		for j := range i {
			tree.Set(obj, "x", "data", fmt.Sprintf("k%d", j))
		}
		managed.Update(s.typ, live, obj, s.write(fmt.Sprintf("m%02d", i)))
		live = obj
	}
	entries := tree.List(live, "metadata", "managedFields")
	if len(entries) != 10 || tree.Find(entries, "manager", "ancient-changes") == nil {
		t.Errorf("got %d entries, want 10 with ancient-changes among them", len(entries))
	}
}

func TestUpdate_Forgets(t *testing.T) {
	s := configMaps(t)
	live := s.decode(t, configMapText)
	managed.Update(s.typ, nil, live, s.write("m"))
	for name, list := range map[string][]any{"empty list": {}, "empty entry": {map[string]any{}}} {
		t.Run(name, func(t *testing.T) {
			obj := s.decode(t, configMapText)
			tree.Set(obj, list, "metadata", "managedFields")
			managed.Update(s.typ, live, obj, s.write("m"))
			if tree.Has(obj, "metadata", "managedFields") {
				t.Errorf("still there: %v", tree.List(obj, "metadata", "managedFields"))
			}
		})
	}
}

func TestUpdate_KeepsWhatIsInvalid(t *testing.T) {
	s := configMaps(t)
	live := s.decode(t, configMapText)
	managed.Update(s.typ, nil, live, s.write("m"))
	for _, entry := range []string{
		`{"manager":"x","operation":"Guess","apiVersion":"v1","fieldsType":"FieldsV1","fieldsV1":{"f:data":{}}}`,
		`{"manager":"x","operation":"Update","fieldsType":"FieldsV1","fieldsV1":{"f:data":{}}}`,
		`{"manager":"x","operation":"Update","apiVersion":"v1","fieldsType":"FieldsV9","fieldsV1":{"f:data":{}}}`,
		`{"manager":"x","operation":"Update","apiVersion":"v1","fieldsType":"FieldsV1","fieldsV1":{"data":{}}}`,
		`{"manager":"x","operation":"Update","apiVersion":"v1","fieldsType":"FieldsV1","fieldsV1":{"k:{":{}}}`,
		`{"manager":"x","operation":"Update","apiVersion":"v1","fieldsType":"FieldsV1","fieldsV1":{"f:data":7}}`,
	} {
		obj := s.decode(t, configMapText)
		var parsed any
		if err := json.Unmarshal([]byte(entry), &parsed); err != nil {
			t.Fatal(err)
		}
		tree.Set(obj, []any{parsed}, "metadata", "managedFields")
		managed.Update(s.typ, live, obj, s.write("m"))
		if diff := gocmp.Diff(fields(t, live), fields(t, obj)); diff != "" {
			t.Errorf("%s: (-want +got)\n%s", entry, diff)
		}
	}
}

func BenchmarkUpdate_Create(b *testing.B) {
	s := pods(b)
	obj := s.decode(b, podText)
	b.ReportAllocs()
	for b.Loop() {
		managed.Update(s.typ, nil, obj, s.write("m"))
	}
}

func BenchmarkUpdate_CreateByReference(b *testing.B) {
	s := pods(b)
	obj := s.typed(b, s.decode(b, podText))
	empty, _ := scheme.Scheme.New(s.gvk)
	b.ReportAllocs()
	for b.Loop() {
		s.reference.UpdateNoErrors(empty, obj.DeepCopyObject(), "m")
	}
}

// An object that was created with an item that lacks its key cannot be applied to; that is the client's
// doing. The error says so, and is no Status: Kubernetes answers 500 without a reason.
func TestApply_ToWhatCannotBeMerged(t *testing.T) {
	s := pods(t)
	live := s.decode(t, `{"metadata":{"name":"p"},"spec":{"imagePullSecrets":[{}],"containers":[{"name":"c"}]}}`)
	config := map[string]any{"apiVersion": "v1", "kind": "Pod", "metadata": map[string]any{"name": "p"}}
	_, err := managed.Apply(s.typ, live, config, managed.Write{Manager: "m", APIVersion: "v1", Time: now}, false)
	if want := "the stored object cannot be applied to"; err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("got %v, want %q", err, want)
	}
}
