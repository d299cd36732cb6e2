package schema_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/setpoint-dev/setpoint/kinds/schema"
)

// declared is a schema as a definition makes one: what has a type that does not fit stays as it is.
func declared() *schema.Schema {
	return schema.Declared("com.example.v1.Widget", func() *schema.Type {
		scalar := &schema.Type{Kind: schema.Any, Loose: true}
		object := func(fields ...schema.Field) *schema.Type {
			for i := range fields {
				fields[i].Pointer, fields[i].Optional = true, true
			}
			return &schema.Type{Kind: schema.Struct, Loose: true, Fields: fields}
		}
		meta := schema.Builtin("io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta").Root()
		item := object(schema.Field{Name: "name", Type: scalar}, schema.Field{Name: "size", Type: scalar, Default: int64(1)})
		lists := &schema.Type{Kind: schema.Map, Loose: true, Elem: &schema.Type{
			Kind: schema.List, Loose: true, Elem: item, NullableElem: true}}
		root := object(schema.Field{Name: "spec", Type: object(
			schema.Field{Name: "a", Type: scalar, Default: int64(5)},
			schema.Field{Name: "b", Type: scalar, Default: int64(5), Nullable: true},
			schema.Field{Name: "c", Type: scalar},
			schema.Field{Name: "lists", Type: lists},
			schema.Field{Name: "inner", Type: object(schema.Field{Name: "deep", Type: scalar, Default: "d"}), Default: map[string]any{}},
		)})
		root.Fields = append(root.Fields, schema.Field{Name: "metadata", Type: meta, Optional: true})
		return root
	})
}

func TestDeclared(t *testing.T) {
	for name, c := range map[string]struct {
		in, want string
		findings []string
	}{
		"defaults": {
			in:   `{"metadata":{"name":"x"},"spec":{}}`,
			want: `{"metadata":{"name":"x","resourceVersion":""},"spec":{"a":5,"b":5,"inner":{"deep":"d"}}}`,
		},
		"null is a value only where it may be one": {
			in:   `{"spec":{"a":null,"b":null,"c":null,"inner":null}}`,
			want: `{"metadata":{"resourceVersion":""},"spec":{"a":5,"b":null,"inner":{"deep":"d"}}}`,
		},
		"defaults below lists in maps": {
			in:   `{"spec":{"a":1,"b":1,"inner":{"deep":1},"lists":{"x":[{"name":"n"},null,7]}}}`,
			want: `{"metadata":{"resourceVersion":""},"spec":{"a":1,"b":1,"inner":{"deep":1},"lists":{"x":[{"name":"n","size":1},null,7]}}}`,
		},
		"wrong types stay": {
			in:   `{"spec":{"a":"text","b":2.5,"inner":[{"deep":null}],"lists":[{}]}}`,
			want: `{"metadata":{"resourceVersion":""},"spec":{"a":"text","b":2.5,"inner":[{"deep":null}],"lists":[{}]}}`,
		},
		"unknown fields go, and are told in order of name": {
			in:   `{"z":1,"spec":{"z":1,"a":1,"a":2,"b":1,"inner":{"deep":1,"y":1}},"metadata":{"nosuch":1}}`,
			want: `{"metadata":{"resourceVersion":""},"spec":{"a":2,"b":1,"inner":{"deep":1}}}`,
			findings: []string{`duplicate field "spec.a"`, `unknown field "metadata.nosuch"`, `unknown field "spec.inner.y"`,
				`unknown field "spec.z"`, `unknown field "z"`},
		},
	} {
		s := declared()
		decoded, err := s.DecodeJSON([]byte(c.in))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if d := cmp.Diff(c.findings, decoded.Findings); d != "" {
			t.Errorf("%s: findings: %s", name, d)
		}
		s.Default(decoded.Object)
		text, _ := s.Append(nil, decoded.Object)
		if string(text) != c.want {
			t.Errorf("%s:\n got %s\nwant %s", name, text, c.want)
		}
		if findings, err := s.Conform(decoded.Object); err != nil || len(findings) > 0 {
			t.Errorf("%s: the result is not canonical: %v %v", name, findings, err)
		}
		s.Default(decoded.Object)
		if again, _ := s.Append(nil, decoded.Object); string(again) != string(text) {
			t.Errorf("%s: a second pass changes it: %s", name, again)
		}
	}
}

func TestDeclared_MetadataIsTyped(t *testing.T) {
	_, err := declared().DecodeJSON([]byte(`{"metadata":{"labels":5}}`))
	const want = "json: cannot unmarshal number into Go struct field ObjectMeta.labels of type map[string]string"
	if err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}
