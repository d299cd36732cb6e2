package check_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/setpoint-dev/setpoint/kinds/check"
)

func TestPaths(t *testing.T) {
	obj := map[string]any{"spec": map[string]any{"list": []any{"odd", map[string]any{"name": "b"}}}}
	spec := check.Root(obj).Child("spec")
	var item check.At
	for _, at := range spec.Each("list") {
		item = at
	}
	for _, c := range []struct {
		path check.Path
		want string
	}{
		{check.Root(obj).At("data"), "data"},
		{spec.Path, "spec"},
		{spec.Child("absent").Child("deeper").At("x"), "spec.absent.deeper.x"},
		{item.At("name"), "spec.list[1].name"},
		{item.Path.Child("limits").Key("cpu"), "spec.list[1].limits[cpu]"},
		{check.NewPath("a", "b").Index(2), "a.b[2]"},
	} {
		if got := c.path.String(); got != c.want {
			t.Errorf("got %s, want %s", got, c.want)
		}
	}
	if !spec.Exists() || spec.Child("absent").Exists() || spec.Child("list").Exists() {
		t.Error("what exists is wrong")
	}
	if item.Str("name") != "b" || spec.Len("list") != 2 {
		t.Errorf("read %q and %d", item.Str("name"), spec.Len("list"))
	}
}

func TestRules(t *testing.T) {
	a := check.Root(map[string]any{
		"n": int64(-1), "s": "Odd", "selector": map[string]any{"matchExpressions": []any{map[string]any{"key": "k", "operator": "In"}}},
		"labels": map[string]any{"a": "b c"},
	})
	for name, c := range map[string]struct {
		rule func(e *check.Errors)
		want []string
	}{
		"one of":         {func(e *check.Errors) { e.OneOf(a, "s", "A", "B") }, []string{`s: Unsupported value: "Odd": supported values: "A", "B"`}},
		"one of, absent": {func(e *check.Errors) { e.OneOf(a, "absent", "A") }, []string{"absent: Required value"}},
		"optional":       {func(e *check.Errors) { e.OptionalOneOf(a, "absent", "A") }, nil},
		"negative":       {func(e *check.Errors) { e.NotNegative(a, "n"); e.NotNegative(a, "absent") }, []string{"n: Invalid value: -1: must be greater than or equal to 0"}},
		"unchanged":      {func(e *check.Errors) { e.Unchanged(a, check.Root(nil), "s"); e.Unchanged(a, a, "s") }, []string{`s: Invalid value: "Odd": field is immutable`}},
		"port by name":   {func(e *check.Errors) { e.Port(a.At("p"), "http"); e.Port(a.At("p"), "80") }, []string{`p: Invalid value: "80": must contain at least one letter (a-z)`}},
		"port by number": {func(e *check.Errors) { e.Port(a.At("p"), int64(80)); e.Port(a.At("p"), nil) }, []string{"p: Invalid value: 0: must be between 1 and 65535, inclusive"}},
		"address":        {func(e *check.Errors) { e.IP(a.At("i"), "010.0.0.1") }, []string{`i: Invalid value: "010.0.0.1": must not have leading 0s`}},
		"block":          {func(e *check.Errors) { e.CIDR(a.At("c"), "10.0.0.1/24") }, []string{`c: Invalid value: "10.0.0.1/24": must not have bits set beyond the prefix length`}},
		"path":           {func(e *check.Errors) { e.LocalPath(a.At("f"), "/a/../b") }, []string{`f: Invalid value: "/a/../b": must be a relative path`, `f: Invalid value: "/a/../b": must not contain '..'`}},
		"selector":       {func(e *check.Errors) { e.LabelSelector(a, "selector"); e.LabelSelector(a, "absent") }, []string{"selector.matchExpressions[0].values: Required value: must be specified when `operator` is 'In' or 'NotIn'"}},
		"right": {func(e *check.Errors) {
			e.DNSLabel(a.At("d"), "a-b")
			e.DNSSubdomain(a.At("d"), "a.b")
			e.QualifiedName(a.At("q"), "a.b/c")
		}, nil},
		"nil is no error":  {func(e *check.Errors) { e.Add(nil, nil) }, nil},
		"several messages": {func(e *check.Errors) { e.Messages(a.At("x"), "v", []string{"one", "two"}) }, []string{`x: Invalid value: "v": one`, `x: Invalid value: "v": two`}},
	} {
		var e check.Errors
		c.rule(&e)
		var got []string
		for _, err := range e.List() {
			got = append(got, err.Error())
		}
		if d := cmp.Diff(c.want, got); d != "" {
			t.Errorf("%s: %s", name, d)
		}
		if e.OK() != (c.want == nil) {
			t.Errorf("%s: OK is %t", name, e.OK())
		}
	}
	var e check.Errors
	e.Labels(a, "labels")
	if len(e.List()) != 1 || !strings.HasPrefix(e.List()[0].Error(), `labels: Invalid value: "b c"`) {
		t.Errorf("got %v", e.List())
	}
}

func TestLaterErrorsComeLast(t *testing.T) {
	var e check.Errors
	if e.Later(); !e.OK() || e.List() != nil {
		t.Error("an empty list has errors")
	}
	e.Later().Required(check.NewPath("b"), "")
	if e.OK() {
		t.Error("errors that come later are none")
	}
	e.Required(check.NewPath("a"), "")
	if got := e.List(); len(got) != 2 || got[0].Field != "a" || got[1].Field != "b" {
		t.Errorf("got %v", got)
	}
}

func TestRightObjectsCostNothing(t *testing.T) {
	spec := check.Root(map[string]any{"spec": map[string]any{"name": "a", "port": int64(80)}}).Child("spec")
	allocs := testing.AllocsPerRun(100, func() {
		var e check.Errors
		e.OneOf(spec, "name", "a", "b")
		e.NotNegative(spec, "port")
		e.PortNumber(spec.At("port"), 80)
		if spec.Child("absent").Exists() || !e.OK() {
			t.Error("something is wrong")
		}
	})
	if allocs > 0 {
		t.Errorf("%.0f allocations", allocs)
	}
}
