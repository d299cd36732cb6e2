package tree_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/setpoint-dev/setpoint/kinds/tree"
)

func sample() map[string]any {
	return map[string]any{
		"s": "text",
		"m": map[string]any{
			"n": int64(7), "b": true,
			"l":      []any{map[string]any{"name": "a"}, "odd", map[string]any{"name": "b"}},
			"ss":     []any{"x", "y"},
			"labels": map[string]any{"k": "v"},
		},
	}
}

func TestReadsGiveZeroValuesForWhatIsNotThere(t *testing.T) {
	obj := sample()
	for _, path := range [][]string{{"none"}, {"s", "deeper"}, {"m", "l", "name"}, {"m", "none", "x"}} {
		if tree.Has(obj, path...) || tree.Str(obj, path...) != "" || tree.Int(obj, path...) != 0 ||
			tree.Bool(obj, path...) || tree.Map(obj, path...) != nil || tree.List(obj, path...) != nil ||
			tree.Strings(obj, path...) != nil || tree.StringMap(obj, path...) != nil {
			t.Errorf("%v: something was read", path)
		}
	}
	if tree.Str(nil, "a") != "" || tree.Map(nil) != nil {
		t.Error("something was read from nil")
	}
}

func TestReads(t *testing.T) {
	obj := sample()
	got := []any{
		tree.Str(obj, "s"), tree.Int(obj, "m", "n"), tree.Bool(obj, "m", "b"),
		tree.Strings(obj, "m", "ss"), tree.StringMap(obj, "m", "labels"),
		tree.Find(tree.List(obj, "m", "l"), "name", "b"), tree.Str(obj, "m", "n"),
	}
	want := []any{
		"text", int64(7), true, []string{"x", "y"}, map[string]string{"k": "v"},
		map[string]any{"name": "b"}, "",
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	var indexes []int
	for i, m := range tree.Maps(obj, "m", "l") {
		indexes = append(indexes, i)
		if m["name"] == "b" {
			break
		}
	}
	if d := cmp.Diff([]int{0, 2}, indexes); d != "" {
		t.Error(d)
	}
}

func TestChanges(t *testing.T) {
	obj := map[string]any{"kept": "1", "odd": "not a map", "null": nil}
	tree.Set(obj, int64(1), "a", "b", "c")
	tree.Set(obj, "x", "odd", "y")
	tree.Default(obj, "2", "kept")
	tree.Default(obj, "3", "null")
	tree.Default(obj, int64(9), "a", "b", "c")
	tree.Ensure(obj, "e", "f")
	tree.Delete(obj, "none", "g")
	want := map[string]any{
		"kept": "1", "odd": map[string]any{"y": "x"}, "null": "3",
		"a": map[string]any{"b": map[string]any{"c": int64(1)}},
		"e": map[string]any{"f": map[string]any{}},
	}
	if d := cmp.Diff(want, obj); d != "" {
		t.Error(d)
	}
	tree.Delete(obj, "a", "b")
	tree.Move("kept", obj, tree.Map(obj, "e"))
	tree.Move("nothing", obj, tree.Map(obj, "odd"))
	if tree.Has(obj, "a", "b") || tree.Str(obj, "e", "kept") != "1" {
		t.Errorf("got %v", obj)
	}
}

func TestCopyIsDeep(t *testing.T) {
	obj := sample()
	out := tree.CopyMap(obj)
	tree.Set(out, "changed", "m", "labels", "k")
	tree.List(out, "m", "ss")[0] = "changed"
	if d := cmp.Diff(sample(), obj); d != "" {
		t.Error(d)
	}
	if tree.CopyMap(nil) != nil || tree.Copy([]any(nil)).([]any) != nil {
		t.Error("a copy of nil is not nil")
	}
}

func TestEqualAndDiff(t *testing.T) {
	type obj = map[string]any
	for name, c := range map[string]struct {
		a, b any
		want []string
	}{
		"same":               {obj{"a": int64(1)}, obj{"a": int64(1)}, nil},
		"absent is empty":    {obj{"a": nil, "l": []any{}}, obj{}, nil},
		"empty map counts":   {obj{"emptyDir": obj{}}, obj{}, []string{"spec.emptyDir"}},
		"value":              {obj{"a": obj{"b": "1", "c": "2"}}, obj{"a": obj{"b": "1", "c": "3"}}, []string{"spec.a.c"}},
		"item":               {obj{"l": []any{"a", "b"}}, obj{"l": []any{"a", "c"}}, []string{"spec.l[1]"}},
		"length":             {obj{"l": []any{"a"}}, obj{"l": []any{"a", "b"}}, []string{"spec.l"}},
		"type":               {obj{"a": "1"}, obj{"a": int64(1)}, []string{"spec.a"}},
		"only on the right":  {obj{}, obj{"x.y/z": "1"}, []string{"spec[x.y/z]"}},
		"no more than limit": {obj{"a": "1", "b": "1", "c": "1"}, obj{"a": "2", "b": "2", "c": "2"}, []string{"spec.a", "spec.b"}},
	} {
		if got, want := tree.Equal(c.a, c.b), c.want == nil; got != want {
			t.Errorf("%s: Equal is %t", name, got)
		}
		if tree.Equal(c.a, c.b) != tree.Equal(c.b, c.a) {
			t.Errorf("%s: Equal is not symmetric", name)
		}
		if d := cmp.Diff(c.want, tree.Diff(c.a, c.b, "spec", 2)); d != "" {
			t.Errorf("%s: %s", name, d)
		}
	}
}
