package builtin_test

import (
	"encoding/base64"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/setpoint-dev/setpoint/kinds"
	"github.com/setpoint-dev/setpoint/kinds/builtin"
	"github.com/setpoint-dev/setpoint/kinds/tree"
)

func TestRecordsAreWhole(t *testing.T) {
	seen := map[string]bool{}
	for _, k := range builtin.All() {
		name := k.GVR().String()
		if seen[name] {
			t.Errorf("%s is there twice", name)
		}
		seen[name] = true
		if k.Schema == nil {
			t.Errorf("%s has no schema", name)
		}
		if k.Singular != strings.ToLower(k.Kind) || k.DefaultPropagation == "" {
			t.Errorf("%s: singular %q, propagation %q", name, k.Singular, k.DefaultPropagation)
		}
		for i, c := range k.Columns {
			described := c.Description != "" || k.Kind == "RuntimeClass" // Kubernetes says nothing of its handler
			if c.Name == "" || c.Type == "" || !described || c.Cell == nil {
				t.Errorf("%s: column %d is not whole: %+v", name, i, c)
			}
			c.Cell(kinds.Object{}, tableNow) // must bear an object with nothing in it
		}
		for label, field := range k.Fields {
			if got := field(kinds.Object{}); got != "" && got != "false" && got != "0" {
				t.Errorf("%s: %s of nothing is %q", name, label, got)
			}
		}
	}
	if len(seen) < 30 {
		t.Errorf("there are %d records", len(seen))
	}
}

// TestHooksBearNothing runs every rule over objects that say nothing, or nothing right: what has passed
// a schema may still lack all that is not required.
func TestHooksBearNothing(t *testing.T) {
	odd := func() kinds.Object {
		return kinds.Object{
			"spec": map[string]any{"containers": []any{nil, "x", map[string]any{}}, "ports": []any{int64(1)}, "template": nil},
			"data": map[string]any{"k": nil}, "endpoints": []any{map[string]any{}}, "status": nil,
		}
	}
	for _, k := range builtin.All() {
		for _, obj := range []kinds.Object{{}, odd(), {"spec": map[string]any{}, "status": map[string]any{}}} {
			s := k.Strategy
			if s.Default != nil {
				s.Default(obj)
			}
			for _, rules := range []func(kinds.Object) []error{
				errorsOf(s.Validate), errorsOf(s.ValidateCreate),
			} {
				rules(obj)
			}
			if s.PrepareForUpdate != nil {
				_ = s.PrepareForUpdate(newWorld().env(), obj, odd())
			}
			if s.ValidateUpdate != nil {
				s.ValidateUpdate(obj, odd())
			}
			if s.PrepareForStatusUpdate != nil {
				s.PrepareForStatusUpdate(newWorld().env(), obj, odd())
			}
			if s.ValidateStatusUpdate != nil {
				s.ValidateStatusUpdate(obj, odd())
			}
			if s.Warnings != nil {
				s.Warnings(obj, nil)
			}
		}
	}
}

func errorsOf[L ~[]E, E error](rules func(kinds.Object) L) func(kinds.Object) []error {
	return func(obj kinds.Object) (out []error) {
		if rules != nil {
			for _, err := range rules(obj) {
				out = append(out, err)
			}
		}
		return out
	}
}

func TestDataMayNotBeTooMuch(t *testing.T) {
	const most = 1 << 20
	encoded := func(n int) string { return base64.StdEncoding.EncodeToString(make([]byte, n)) }
	for _, c := range []struct {
		resource, field string
		make            func(n int) string
	}{
		{"configmaps", "data", func(n int) string { return strings.Repeat("v", n) }},
		{"configmaps", "binaryData", encoded},
		{"secrets", "data", encoded},
	} {
		rules := kindOf(t, c.resource).Strategy.Validate
		for _, n := range []int{most, most + 1, most + 2} {
			errs := rules(kinds.Object{c.field: map[string]any{"k": c.make(n)}})
			if got := len(errs) == 0; got != (n <= most) {
				t.Errorf("%s: %d bytes of %s: %v", c.resource, n, c.field, errs)
			}
		}
	}
}

func TestFields(t *testing.T) {
	for _, c := range []struct {
		resource, label, want string
		obj                   kinds.Object
	}{
		{"pods", "spec.nodeName", "n1", kinds.Object{"spec": map[string]any{"nodeName": "n1"}}},
		{"pods", "spec.host", "n1", kinds.Object{"spec": map[string]any{"nodeName": "n1"}}},
		{"pods", "spec.hostNetwork", "true", kinds.Object{"spec": map[string]any{"hostNetwork": true}}},
		{"pods", "status.phase", "Running", kinds.Object{"status": map[string]any{"phase": "Running"}}},
		{"nodes", "spec.unschedulable", "true", kinds.Object{"spec": map[string]any{"unschedulable": true}}},
		{"namespaces", "status.phase", "Active", kinds.Object{"status": map[string]any{"phase": "Active"}}},
		{"secrets", "type", "Opaque", kinds.Object{"type": "Opaque"}},
		{"services", "spec.type", "ClusterIP", kinds.Object{"spec": map[string]any{"type": "ClusterIP"}}},
		{"events", "involvedObject.name", "p", kinds.Object{"involvedObject": map[string]any{"name": "p"}}},
		{"certificatesigningrequests.certificates.k8s.io", "spec.signerName", "a.b/c", kinds.Object{"spec": map[string]any{"signerName": "a.b/c"}}},
		{"resourceslices.resource.k8s.io", "spec.pool.name", "p", kinds.Object{"spec": map[string]any{"pool": map[string]any{"name": "p"}}}},
		{"events", "source", "c", kinds.Object{"source": map[string]any{}, "reportingComponent": "c"}},
		{"events.events.k8s.io", "regarding.kind", "Pod", kinds.Object{"regarding": map[string]any{"kind": "Pod"}}},
		{"events.events.k8s.io", "reportingController", "c", kinds.Object{"reportingController": "c"}},
	} {
		field := kindOf(t, c.resource).Fields[c.label]
		if field == nil {
			t.Errorf("%s cannot be selected by %s", c.resource, c.label)
		} else if got := field(c.obj); got != c.want {
			t.Errorf("%s of %s is %q, want %q", c.label, c.resource, got, c.want)
		}
	}
	if kindOf(t, "replicasets.apps").Fields != nil {
		t.Error("ReplicaSets can be selected by more than their name")
	}
}

func TestGracePeriod(t *testing.T) {
	pod := func(node, phase string) kinds.Object {
		return kinds.Object{
			"spec":   map[string]any{"nodeName": node, "terminationGracePeriodSeconds": int64(30)},
			"status": map[string]any{"phase": phase},
		}
	}
	seconds := func(n int64) *int64 { return &n }
	for _, c := range []struct {
		obj   kinds.Object
		asked *int64
		want  int64
	}{
		{pod("n", "Running"), nil, 30},
		{pod("n", "Running"), seconds(5), 5},
		{pod("n", "Running"), seconds(0), 0},
		{pod("n", "Running"), seconds(-3), 1},
		{pod("", "Pending"), nil, 0},
		{pod("", "Pending"), seconds(5), 0},
		{pod("n", "Succeeded"), nil, 0},
		{pod("n", "Failed"), seconds(5), 0},
	} {
		if got := kindOf(t, "pods").GracePeriod(c.obj, c.asked); got != c.want {
			t.Errorf("%v, asked %v: %d, want %d", c.obj, c.asked, got, c.want)
		}
	}
}

func TestBumps(t *testing.T) {
	with := func(field, value string) kinds.Object {
		return kinds.Object{"metadata": map[string]any{field: map[string]any{"k": value}}}
	}
	for _, c := range []struct {
		resource, field string
		want            bool
	}{
		{"deployments.apps", "annotations", true},
		{"deployments.apps", "labels", false},
		{"endpointslices.discovery.k8s.io", "labels", true},
		{"endpointslices.discovery.k8s.io", "annotations", false},
	} {
		k := kindOf(t, c.resource)
		if got := k.Bumps(with(c.field, "a"), with(c.field, "b")); got != c.want {
			t.Errorf("%s: a change of %s bumps: %t", c.resource, c.field, got)
		}
		if k.Bumps(with(c.field, "a"), with(c.field, "a")) {
			t.Errorf("%s: no change bumps", c.resource)
		}
	}
}

func TestEventsKeepTheirMeaningInTheOtherForm(t *testing.T) {
	core, other := kindOf(t, "events"), kindOf(t, "events.events.k8s.io")
	const text = `{"apiVersion":"v1","kind":"Event","metadata":{"name":"e","namespace":"ns"},
		"involvedObject":{"kind":"Pod","name":"p"},"reason":"R","message":"m","type":"Normal","count":3,
		"firstTimestamp":"2020-01-01T00:00:00Z","source":{"component":"c"},"series":{"count":2},
		"reportingComponent":"","reportingInstance":"i","related":{"kind":"Node"}}`
	stored, err := core.Schema.DecodeJSON([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	obj := tree.CopyMap(stored.Object)
	other.Storage.FromStored(obj)
	if findings, err := other.Schema.Conform(obj); err != nil || len(findings) > 0 {
		t.Fatalf("not an event of events.k8s.io: %v %v", findings, err)
	}
	want := []any{"m", "c", int64(3), "2020-01-01T00:00:00Z", "p", "events.k8s.io/v1"}
	got := []any{
		obj["note"], tree.Str(obj, "deprecatedSource", "component"), obj["deprecatedCount"],
		obj["deprecatedFirstTimestamp"], tree.Str(obj, "regarding", "name"), obj["apiVersion"],
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	other.Storage.ToStored(obj)
	if d := cmp.Diff(stored.Object, obj); d != "" {
		t.Errorf("there and back (-before +after):\n%s", d)
	}
}

func BenchmarkCreate(b *testing.B) {
	for resource, text := range map[string]string{
		"configmaps": `{"metadata":{"name":"x","namespace":"ns"},"data":{"k":"` + strings.Repeat("v", 1000) + `"}}`,
		"pods": `{"metadata":{"name":"x","namespace":"ns","labels":{"app":"web"}},"spec":{"volumes":[{"name":"v","emptyDir":{}}],
			"containers":[{"name":"c","image":"x:1","ports":[{"containerPort":80}],"env":[{"name":"A","value":"b"},{"name":"B","value":"c"}],
			"volumeMounts":[{"name":"v","mountPath":"/v"}],"resources":{"requests":{"cpu":"100m"},"limits":{"memory":"1Gi"}},
			"livenessProbe":{"httpGet":{"port":80}},"readinessProbe":{"httpGet":{"port":80}}}]}}`,
	} {
		b.Run(resource, func(b *testing.B) {
			k := kindOf(b, resource)
			decoded, err := k.Schema.DecodeJSON([]byte(text))
			if err != nil {
				b.Fatal(err)
			}
			env := newWorld().env()
			obj, s := decoded.Object, &k.Strategy
			b.ReportAllocs()
			for b.Loop() { // from the second time on the defaults are there
				if s.Default != nil {
					s.Default(obj)
				}
				if s.PrepareForCreate != nil {
					if err := s.PrepareForCreate(env, obj); err != nil {
						b.Fatal(err)
					}
				}
				if errs := s.Validate(obj); len(errs) > 0 {
					b.Fatal(fmt.Sprint(errs))
				}
			}
		})
	}
}
