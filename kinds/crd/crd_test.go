package crd_test

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/setpoint-dev/setpoint/kinds"
	"github.com/setpoint-dev/setpoint/kinds/crd"
)

// stored is a definition as the store has it, with a number of its own and so many properties.
func stored(n, properties int) []byte {
	var fields strings.Builder
	for i := range properties {
		fmt.Fprintf(&fields, `"p%d":{"type":"string","maxLength":20,"description":"What the property is for, in a few words."},`, i)
	}
	return fmt.Appendf(nil, `{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition",
		"metadata":{"name":"w%[1]ds.example.com","uid":"u"},"spec":{"group":"example.com","scope":"Namespaced",
		"names":{"plural":"w%[1]ds","singular":"w%[1]d","kind":"W%[1]d","listKind":"W%[1]dList"},"versions":[
		{"name":"v1","served":true,"storage":true,"subresources":{"status":{}},
		 "additionalPrinterColumns":[{"name":"Ready","type":"string","jsonPath":".status.conditions[?(@.type==\"Ready\")].status"}],
		 "selectableFields":[{"jsonPath":".spec.size"}],
		 "schema":{"openAPIV3Schema":{"type":"object","properties":{"spec":{"type":"object","properties":{%[2]s
		  "size":{"type":"integer","default":1}},"x-kubernetes-validations":[{"rule":"self.size < 10"}]}}}}},
		{"name":"v1beta1","served":true,"storage":false,"deprecated":true,"schema":{"openAPIV3Schema":{"type":"object",
		  "properties":{"spec":{"type":"object","properties":{"size":{"type":"integer"}}}}}}}]},
		"status":{"acceptedNames":{"plural":"w%[1]ds","singular":"w%[1]d","kind":"W%[1]d","listKind":"W%[1]dList"},
		 "conditions":[{"type":"Established","status":"True"}],"storedVersions":["v1"]}}`, n, fields.String())
}

func read(t testing.TB, n, properties int) *crd.Definition {
	t.Helper()
	d, err := crd.Read(stored(n, properties), 7)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func TestKinds(t *testing.T) {
	served, kept := read(t, 1, 1).Kinds(0, crd.Converters{}, nil)
	if len(served) != 2 {
		t.Fatalf("%d kinds", len(served))
	}
	v1, beta := served[0], served[1]
	if kept != v1 {
		t.Errorf("objects are kept as %s", kept.Version)
	}
	if want := "example.com/v1beta1 W1 is deprecated; use example.com/v1 W1"; beta.Deprecated != want || v1.Deprecated != "" {
		t.Errorf("warnings are %q and %q", v1.Deprecated, beta.Deprecated)
	}
	obj := kinds.Object{"apiVersion": "example.com/v1", "kind": "W1", "metadata": map[string]any{"name": "a"},
		"spec": map[string]any{"size": int64(12), "p0": "x"},
		"status": map[string]any{"conditions": []any{map[string]any{"type": "Other", "status": "?"},
			map[string]any{"type": "Ready", "status": "True"}}}}
	if got := v1.Columns[1].Cell(obj, time.Time{}); got != "True" {
		t.Errorf("the column shows %v", got)
	}
	if got := v1.Fields["spec.size"](obj); got != "12" {
		t.Errorf("the field reads %q", got)
	}
	errs := v1.Strategy.ValidateCreate(obj)
	if want := `spec: Invalid value: failed rule: self.size < 10`; len(errs) != 1 || errs[0].Error() != want {
		t.Errorf("errors are %v", errs)
	}
	text, _ := v1.Schema.Append(nil, obj)
	all, err := beta.Form.Read(t.Context(), text, text)
	if err != nil || len(all) != 2 {
		t.Fatal(all, err)
	}
	got := all[1]
	if d := cmp.Diff(map[string]any{"size": int64(12)}, got["spec"]); d != "" || got["apiVersion"] != "example.com/v1beta1" {
		t.Errorf("as v1beta1: %v %s", got["apiVersion"], d)
	}
}

// A thousand definitions that nobody uses must cost a start no more than reading them.
func BenchmarkRead(b *testing.B) {
	value := stored(1, 200)
	b.SetBytes(int64(len(value)))
	for b.Loop() {
		d, err := crd.Read(value, 7)
		if err != nil {
			b.Fatal(err)
		}
		if served, _ := d.Kinds(0, crd.Converters{}, nil); len(served) != 2 {
			b.Fatal(len(served), "kinds")
		}
	}
}

// BenchmarkUse is a definition read and used for the first time: schema, rules and columns compiled.
// It reports what one keeps in memory.
func BenchmarkUse(b *testing.B) {
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	var kept [][]*kinds.Kind
	for i := 0; b.Loop(); i++ {
		served, _ := read(b, i, 200).Kinds(0, crd.Converters{}, nil)
		decoded, err := served[0].Schema.DecodeJSON([]byte(`{"metadata":{"name":"a"},"spec":{"p1":"x"}}`))
		if err != nil {
			b.Fatal(err)
		}
		served[0].Schema.Default(decoded.Object)
		if errs := served[0].Strategy.ValidateCreate(decoded.Object); len(errs) > 0 {
			b.Fatal(errs)
		}
		kept = append(kept, served)
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/float64(len(kept)), "kept-B/op")
	runtime.KeepAlive(kept)
}
