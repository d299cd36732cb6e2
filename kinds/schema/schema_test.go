package schema_test

import (
	"encoding/json"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/setpoint-dev/setpoint/kinds/schema"
)

func TestBuiltin(t *testing.T) {
	if s := schema.Builtin("io.k8s.api.core.v1.Nosuch"); s != nil {
		t.Errorf("got %v for a type that does not exist", s)
	}
	if a, b := schema.Builtin("io.k8s.api.core.v1.Pod"), schema.Builtin("io.k8s.api.core.v1.Pod"); a != b {
		t.Error("the same name gave two schemas")
	}
	for kind, typed := range scheme.Scheme.AllKnownTypes() {
		named, ok := reflect.New(typed).Interface().(interface{ OpenAPIModelName() string })
		if !ok || kind.Version == runtime.APIVersionInternal {
			continue
		}
		if schema.Builtin(named.OpenAPIModelName()) == nil {
			t.Errorf("no schema for %v", typed)
		}
	}
}

// All types of the embedded data compile and can be walked.
func TestBuiltin_AllOfTheData(t *testing.T) {
	text, err := os.ReadFile("builtin.txt")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if line[0] == '\t' {
			continue
		}
		name, _, _ := strings.Cut(strings.TrimSpace(line), " ")
		root := schema.Builtin(name).Root()
		for i := range root.Fields {
			f := &root.Fields[i]
			if f.Type.Kind == 0 || f.Type.GoName == "" || root.Field(f.Name) != f {
				t.Errorf("%s: malformed field %s", name, f.Name)
			}
		}
	}
}

func TestRoot_IsWalkable(t *testing.T) {
	spec := schema.Builtin("io.k8s.api.core.v1.Pod").Root().Field("spec").Type
	containers := spec.Field("containers")
	if !containers.Required || containers.Optional || containers.Pointer {
		t.Errorf("containers: %+v", containers)
	}
	if containers.PatchMergeKey != "name" || !slices.Equal(containers.PatchStrategy, []string{"merge"}) {
		t.Errorf("containers: patch %v by %q", containers.PatchStrategy, containers.PatchMergeKey)
	}
	if l := containers.Type; l.Kind != schema.List || l.ListType != "map" || !slices.Equal(l.ListKeys, []string{"name"}) {
		t.Errorf("containers: list %q by %q", l.ListType, l.ListKeys)
	}
	if c := containers.Type.Elem; c.Name != "io.k8s.api.core.v1.Container" || c.GoName != "v1.Container" {
		t.Errorf("container: %q, %q", c.Name, c.GoName)
	}
	if volumes := spec.Field("volumes"); !slices.Equal(volumes.PatchStrategy, []string{"merge", "retainKeys"}) {
		t.Errorf("volumes: patch %v", volumes.PatchStrategy)
	}
	if policy := spec.Field("restartPolicy").Type; !slices.Equal(policy.Enum, []string{"Always", "Never", "OnFailure"}) {
		t.Errorf("restartPolicy: %q", policy.Enum)
	}
	if selector := spec.Field("nodeSelector").Type; !selector.Atomic {
		t.Error("nodeSelector is not atomic")
	}
	if selector := schema.Builtin("io.k8s.api.apps.v1.Deployment").Root().Field("spec").Type.Field("selector"); !selector.Type.Atomic || !selector.Pointer {
		t.Errorf("selector: %+v", selector)
	}
}

// The texts are those of a real server; what it puts before them is the caller's.
func TestDecodeJSON_Errors(t *testing.T) {
	for _, c := range []struct {
		kind, body string
		want       schema.Error
		text       string
	}{
		{"ConfigMap", ``, schema.Error{Head: true}, "unexpected end of JSON input"},
		{"ConfigMap", `hello`, schema.Error{Head: true}, "invalid character 'h' looking for beginning of value"},
		{"ConfigMap", `{"data":{"k":"v"`, schema.Error{Head: true}, "unexpected end of JSON input"},
		{"ConfigMap", `{"data":{}} x`, schema.Error{Head: true}, "invalid character 'x' after top-level value"},
		{"ConfigMap", `{"data":{},}`, schema.Error{Head: true}, "invalid character '}' looking for beginning of object key string"},
		{"ConfigMap", strings.Repeat(`[`, 10001), schema.Error{Head: true}, "invalid character '[' exceeded max depth"},
		{"ConfigMap", `[]`, schema.Error{Head: true},
			`json: cannot unmarshal array into Go value of type struct { APIVersion string "json:\"apiVersion,omitempty\""; Kind string "json:\"kind,omitempty\"" }`},
		{"ConfigMap", `{"data":{"k":5},"kind":7}`, schema.Error{Head: true, Path: "kind"}, "json: cannot unmarshal number into Go struct field .kind of type string"},
		{"ConfigMap", `{"data":{"k":5}}`, schema.Error{Path: "data.k"}, "json: cannot unmarshal number into Go struct field ConfigMap.data of type string"},
		{"ConfigMap", `{"metadata":{"labels":[]}}`, schema.Error{Path: "metadata.labels"},
			"json: cannot unmarshal array into Go struct field ObjectMeta.metadata.labels of type map[string]string"},
		{"ConfigMap", `{"metadata":{"creationTimestamp":"now"}}`, schema.Error{Path: "metadata.creationTimestamp"},
			`parsing time "now" as "2006-01-02T15:04:05Z07:00": cannot parse "now" as "2006"`},
		{"Secret", `{"data":{"k":"YQ="}}`, schema.Error{Path: "data.k"}, "illegal base64 data at input byte 3"},
		{"Secret", `{"data":{"k":"!"}}`, schema.Error{Path: "data.k"}, "illegal base64 data at input byte 0"},
		{"Pod", `{"spec":{"containers":[{},{"resources":{"limits":{"cpu":"lots"}}}]}}`, schema.Error{Path: "spec.containers[1].resources.limits.cpu"},
			"quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"},
		{"Pod", `{"spec":{"overhead":{"cpu":"1e-9999999"}}}`, schema.Error{Path: "spec.overhead.cpu"},
			"quantities may have exponents from -99 to 99, and this one has -9999999"},
		{"Pod", `{"spec":{"overhead":{"cpu":"1E99999999999999999999"}}}`, schema.Error{Path: "spec.overhead.cpu"},
			"quantities may have exponents from -99 to 99, and this one has 99999999999999999999"},
		{"Pod", `{"spec":{"overhead":{"cpu":"` + strings.Repeat("9", 300_000) + `"}}}`, schema.Error{Path: "spec.overhead.cpu"},
			"quantities may have 256 characters at most, and this one has 300000"},
		{"Pod", `{"spec":{"volumes":[{"hostPath":"/"}]}}`, schema.Error{Path: "spec.volumes[0].hostPath"},
			"json: cannot unmarshal string into Go struct field Volume.spec.volumes.VolumeSource.hostPath of type v1.HostPathVolumeSource"},
		{"Pod", `{"spec":{"priority":3000000000}}`, schema.Error{Path: "spec.priority"},
			"json: cannot unmarshal number 3000000000 into Go struct field PodSpec.spec.priority of type int32"},
	} {
		t.Run(c.body[:min(len(c.body), 60)], func(t *testing.T) {
			_, err := schema.Builtin("io.k8s.api.core.v1." + c.kind).DecodeJSON([]byte(c.body))
			e, ok := err.(*schema.Error)
			if !ok {
				t.Fatalf("got %v", err)
			}
			if e.Error() != c.text || e.Head != c.want.Head || e.Path != c.want.Path {
				t.Errorf("got %q (head %v, path %q)\nwant %q (head %v, path %q)", e, e.Head, e.Path, c.text, c.want.Head, c.want.Path)
			}
		})
	}
}

func TestDecodeJSON_Findings(t *testing.T) {
	got, err := schema.Builtin("io.k8s.api.core.v1.Pod").DecodeJSON([]byte(`{"nosuch":{"a":1,"a":2},"metadata":{"labels":{"a":"1","a":"2"}},
		"spec":{"containers":[{"name":"a","image":"x"},{"name":"b","Name":"B","name":"c"}],"hostNetwork":true,"hostNetwork":false}}`))
	if err != nil {
		t.Fatal(err)
	}
	want := []string{`unknown field "nosuch"`, `duplicate field "metadata.labels.a"`, `unknown field "spec.containers[1].Name"`,
		`duplicate field "spec.containers[1].name"`, `duplicate field "spec.hostNetwork"`}
	if diff := cmp.Diff(want, got.Findings); diff != "" {
		t.Error(diff)
	}
	spec := got.Object["spec"].(object)
	if name := spec["containers"].([]any)[1].(object)["name"]; name != "c" {
		t.Errorf("name: got %v, want the last one", name)
	}
	if _, there := spec["hostNetwork"]; there {
		t.Error("hostNetwork: the last one was false")
	}
}

// A hostile body cannot make the answer grow without bound.
func TestDecodeJSON_FindingsAreBounded(t *testing.T) {
	var body strings.Builder
	for i := range 5000 {
		body.WriteString(`,"x` + strings.Repeat("y", i%500) + `":1`)
	}
	got, err := schema.Builtin("io.k8s.api.core.v1.ConfigMap").DecodeJSON([]byte("{" + body.String()[1:] + "}"))
	if err != nil || len(got.Findings) != 100 {
		t.Errorf("got %d findings, %v", len(got.Findings), err)
	}
}

func TestAppend_LeavesTheRevisionToTheStore(t *testing.T) {
	for _, c := range []struct{ name, kind, body, want string }{
		{"in a full object", "core.v1.ConfigMap", `{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"a","resourceVersion":"7","uid":"u"},"data":{"b":"<","a":""}}`,
			`{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"a","uid":"u","resourceVersion":"42"},"data":{"a":"","b":"\u003c"}}`},
		{"in an empty one", "core.v1.ConfigMap", `null`, `{"metadata":{"resourceVersion":"42"}}`},
		{"not in a template's metadata", "apps.v1.ReplicaSet", `{"spec":{"template":{"metadata":{"resourceVersion":"1"}}}}`,
			`{"metadata":{"resourceVersion":"42"},"spec":{"selector":null,"template":{"metadata":{"resourceVersion":"1"},"spec":{"containers":null}}},"status":{"replicas":0}}`},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := schema.Builtin("io.k8s.api." + c.kind)
			out, at := s.Append([]byte("before"), decode(t, s, c.body))
			got := string(out[:at]) + "42" + string(out[at:])
			if diff := cmp.Diff("before"+c.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
	status := schema.Builtin("io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions")
	if out, at := status.Append(nil, decode(t, status, `{"gracePeriodSeconds":0}`)); at != -1 || string(out) != `{"gracePeriodSeconds":0}` {
		t.Errorf("without metadata: %s, %d", out, at)
	}
}

func TestUntyped_KeepsWhatItDoesNotKnow(t *testing.T) {
	s := schema.Untyped("example.com.v1.Widget")
	got, err := s.DecodeJSON([]byte(`{"kind":"Widget","spec":{"b":1,"a":[1.5,null,{"x":1,"x":2}],"big":1e3},"apiVersion":"example.com/v1",
		"metadata":{"name":"w","nosuch":1,"creationTimestamp":null},"top":true,"top":false}`))
	if err != nil {
		t.Fatal(err)
	}
	findings := []string{`duplicate field "spec.a[2].x"`, `unknown field "metadata.nosuch"`, `duplicate field "top"`}
	if diff := cmp.Diff(findings, got.Findings); diff != "" {
		t.Error(diff)
	}
	out, at := s.Append(nil, got.Object)
	const want = `{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"w","resourceVersion":""},"spec":{"a":[1.5,null,{"x":2}],"b":1,"big":1000},"top":false}`
	if diff := cmp.Diff(want, string(out)); diff != "" {
		t.Error(diff)
	}
	if !strings.HasSuffix(string(out[:at]), `"resourceVersion":"`) {
		t.Errorf("revisionAt %d", at)
	}
	if findings, err := s.Conform(got.Object); err != nil || findings != nil {
		t.Errorf("conform: %v, %q", err, findings)
	}
	_, err = s.DecodeJSON([]byte(`{"metadata":{"labels":{"a":1}}}`))
	if err == nil || !strings.Contains(err.Error(), "cannot unmarshal number into Go struct field ObjectMeta.metadata.labels of type string") {
		t.Errorf("labels: %v", err)
	}
}

func TestEnvelope_RefusesOtherBytes(t *testing.T) {
	for _, body := range []string{"", "{}", "k8s\x00\xff", "k8s\x00\x0a\x7f"} {
		if _, _, _, err := schema.Envelope([]byte(body)); err == nil || !err.(*schema.Error).Head {
			t.Errorf("%q: got %v", body, err)
		}
	}
}

func TestDecodeProto_RefusesDamage(t *testing.T) {
	pod := loadFixture(t, "core.v1.Pod")
	_, _, raw, err := schema.Envelope(pod.proto)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := pod.schema.DecodeProto(raw[:len(raw)-3]); err == nil || !strings.Contains(err.Error(), "unexpected EOF") {
		t.Errorf("truncated: %v", err)
	}
	if _, err := pod.schema.DecodeProto([]byte{0x08, 0x01}); err == nil || !strings.Contains(err.Error(), "metadata: proto: wrong wireType = 0") {
		t.Errorf("a number for a message: %v", err)
	}
	if got, err := pod.schema.DecodeProto([]byte{0xf8, 0x07, 0x01}); err != nil || len(got.Findings) > 0 {
		t.Errorf("an unknown field: %v", err)
	}
}

func TestOpenAPIDefinitions(t *testing.T) {
	got, err := schema.OpenAPIDefinitions("io.k8s.api.core.v1.ConfigMap", "io.k8s.api.core.v1.Nosuch")
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"io.k8s.api.core.v1.ConfigMap", "io.k8s.apimachinery.pkg.apis.meta.v1.FieldsV1", "io.k8s.apimachinery.pkg.apis.meta.v1.ManagedFieldsEntry",
		"io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta", "io.k8s.apimachinery.pkg.apis.meta.v1.OwnerReference", "io.k8s.apimachinery.pkg.apis.meta.v1.Time"}
	var names []string
	for name := range got {
		names = append(names, name)
	}
	slices.Sort(names)
	if diff := cmp.Diff(want, names); diff != "" {
		t.Error(diff)
	}
	var cm struct {
		Description string
		Properties  map[string]object
		Kinds       []object `json:"x-kubernetes-group-version-kind"`
	}
	if err := json.Unmarshal(got["io.k8s.api.core.v1.ConfigMap"], &cm); err != nil {
		t.Fatal(err)
	}
	if cm.Description == "" || cm.Properties["data"]["type"] != "object" || len(cm.Kinds) != 1 {
		t.Errorf("got %+v", cm)
	}
	all, err := schema.OpenAPIDefinitions()
	if err != nil || len(all) < 1000 {
		t.Errorf("got %d definitions, %v", len(all), err)
	}
}

// Reading must not become costly unnoticed. Half of what is allowed is maps and lists of the tree.
func TestDecodeJSON_Allocations(t *testing.T) {
	if raceEnabled {
		t.Skip("allocations differ under the race detector")
	}
	bounds := map[string]float64{"ConfigMap1K": 25, "Pod3K": 260}
	for _, s := range samples() {
		got := testing.AllocsPerRun(100, func() {
			if _, err := s.schema.DecodeJSON(s.body); err != nil {
				t.Fatal(err)
			}
		})
		if got > bounds[s.name] {
			t.Errorf("%s: %v allocations, allowed are %v", s.name, got, bounds[s.name])
		}
		obj := decode(t, s.schema, string(s.body))
		buf := make([]byte, 0, 2*len(s.body))
		if got := testing.AllocsPerRun(100, func() { s.schema.Append(buf, obj) }); got > 0 {
			t.Errorf("%s: Append allocates %v times", s.name, got)
		}
	}
}

// The data is generated from the versions that the module uses.
func TestBuiltin_IsOfThePinnedVersion(t *testing.T) {
	pins := func(file string) []string {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		pins := regexp.MustCompile(`k8s\.io/(api|apimachinery|kube-openapi) v\S+`).FindAllString(string(text), -1)
		slices.Sort(pins)
		return pins
	}
	if diff := cmp.Diff(pins("../../go.mod"), pins("../../tools/schemagen/go.mod")); diff != "" {
		t.Errorf("run go generate ./kinds/schema after setting the same versions: %s", diff)
	}
}

// APIService is declared outside of k8s.io/api.
func TestBuiltin_HasAPIServices(t *testing.T) {
	got, err := schema.Builtin("io.k8s.kube-aggregator.pkg.apis.apiregistration.v1.APIService").DecodeJSON([]byte(
		`{"spec":{"group":"a.b","version":"v1","groupPriorityMinimum":1,"versionPriority":2,"caBundle":"eA=="}}`))
	if err != nil || len(got.Findings) > 0 {
		t.Error(err, got.Findings)
	}
}

// Schemas are compiled and used by many at once.
func TestBuiltin_Concurrently(t *testing.T) {
	names := []string{"io.k8s.api.batch.v1.CronJob", "io.k8s.api.apps.v1.StatefulSet", "io.k8s.api.core.v1.Pod"}
	var wg sync.WaitGroup
	for i := range 16 {
		wg.Go(func() {
			s := schema.Builtin(names[i%len(names)])
			got, err := s.DecodeJSON([]byte(`{"metadata":{"name":"a"}}`))
			if err != nil {
				t.Error(err)
				return
			}
			s.Default(got.Object)
			s.Append(nil, got.Object)
		})
	}
	wg.Wait()
}

// TestEmptyListsAreKeptAsNull: where a list is written even if it is not there, an empty one is the same as none.
// Lists inside of free-form JSON stay as they are.
func TestEmptyListsAreKeptAsNull(t *testing.T) {
	for _, c := range []struct{ of, body, want string }{
		{"io.k8s.api.rbac.v1.Role", `{"rules":[]}`, `"rules":null`},
		{"io.k8s.api.rbac.v1.Role", `{"rules":[{"verbs":[]}]}`, `"verbs":null`},
		{"io.k8s.api.core.v1.ConfigMap", `{"metadata":{"finalizers":[]}}`, `"metadata":{"resourceVersion"`},
		{"io.k8s.api.apps.v1.ControllerRevision", `{"data":{"a":[]}}`, `"a":[]`},
	} {
		s := schema.Builtin(c.of)
		decoded, err := s.DecodeJSON([]byte(c.body))
		if err != nil {
			t.Fatal(err)
		}
		var tree map[string]any
		if err := json.Unmarshal([]byte(c.body), &tree); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Conform(tree); err != nil {
			t.Fatal(err)
		}
		for way, obj := range map[string]map[string]any{"decoded": decoded.Object, "conformed": tree} {
			if out, _ := s.AppendKept(nil, obj); !strings.Contains(string(out), c.want) {
				t.Errorf("%s, %s: %s; want %s in it", c.body, way, out, c.want)
			}
		}
	}
}
