package schema

import (
	"fmt"
	"strings"
)

// defaults is what Default does to one object: a plan that names only fields that matter.
type defaults struct {
	set  []setting
	into []branch
}

// setting gives a field a value if it has none.
type setting struct {
	field *Field
	value any
}

// branch goes on with a field's value: the object itself, or each item or value in it.
type branch struct {
	name  string
	depth int // how many lists and maps are around the objects
	plan  *defaults
}

// Default sets the static defaults, in place, where the object that holds the field is there and
// the field has no value. The tree must be canonical, and is so afterwards.
func (s *Schema) Default(obj map[string]any) { s.defaults().apply(obj) }

// WithDefaults returns the schema with further static defaults. The keys are paths, with [*] for
// all items of a list and {*} for all values of a map:
// "spec.template.spec.containers[*].terminationMessagePath". They go before the type's own. A path
// that the schema does not have, or a value of the wrong type, panics: it is a mistake in the
// record. Values that hold a map or a list are copied for each object.
func (s *Schema) WithDefaults(values map[string]any) *Schema {
	static := make(map[string]any, len(s.static)+len(values))
	for path, v := range s.static {
		static[path] = v
	}
	for path, v := range values {
		static[path] = v
	}
	n := newSchema(s.Name, s.root, static)
	n.defaults() // panics here and not at the first request
	return n
}

func (d *defaults) apply(m map[string]any) {
	for i := range d.set {
		s := &d.set[i]
		if v, there := m[s.field.Name]; !there || v == nil && !s.field.Nullable || !s.field.Pointer && isEmpty(v) {
			m[s.field.Name] = copyTree(s.value)
		}
	}
	for i := range d.into {
		b := &d.into[i]
		b.plan.within(m[b.name], b.depth)
	}
}

// within applies the plan to the objects below so many lists and maps.
func (d *defaults) within(v any, depth int) {
	switch v := v.(type) {
	case map[string]any:
		if depth == 0 {
			d.apply(v)
			return
		}
		for _, v := range v {
			d.within(v, depth-1)
		}
	case []any:
		for i := 0; i < len(v) && depth > 0; i++ {
			d.within(v[i], depth-1)
		}
	}
}

func copyTree(v any) any {
	switch v := v.(type) {
	case map[string]any:
		m := make(map[string]any, len(v))
		for k, v := range v {
			m[k] = copyTree(v)
		}
		return m
	case []any:
		list := make([]any, len(v))
		for i, v := range v {
			list[i] = copyTree(v)
		}
		return list
	}
	return v
}

// overlay is the tree of the paths given to WithDefaults.
type overlay struct {
	value  any
	fields map[string]*overlay
}

// planner compiles plans. The plan of a type without an overlay is shared by all its places.
type planner struct{ shared map[*Type]*defaults }

func compileDefaults(root *Type, static map[string]any) *defaults {
	top := &overlay{}
	for path, v := range static {
		top.add(root, path, v)
	}
	p := planner{shared: map[*Type]*defaults{}}
	return p.compile(root, top)
}

// add puts a value into the overlay, checking the path against the type.
func (o *overlay) add(t *Type, path string, value any) {
	rest, f := path, (*Field)(nil)
	for rest != "" {
		var name string
		name, rest, _ = strings.Cut(rest, ".")
		bare := strings.TrimSuffix(strings.TrimSuffix(name, "[*]"), "{*}")
		if f = t.structField(bare); f == nil {
			panic(fmt.Sprintf("schema: default for %s: %s has no field %q", path, t.GoName, bare))
		}
		t = f.Type
		if want := map[Kind]string{List: "[*]", Map: "{*}"}[t.Kind]; rest != "" && bare+want != name {
			panic(fmt.Sprintf("schema: default for %s: %q must be written %q", path, name, bare+want))
		}
		if rest != "" && (t.Kind == List || t.Kind == Map) {
			t = t.Elem
		}
		if o.fields == nil {
			o.fields = map[string]*overlay{}
		}
		if o.fields[bare] == nil {
			o.fields[bare] = &overlay{}
		}
		o = o.fields[bare]
	}
	if f == nil {
		panic("schema: a default without a path")
	}
	o.value = checkedDefault(f, path, value)
}

func (t *Type) structField(name string) *Field {
	if t.Kind != Struct {
		return nil
	}
	return t.Field(name)
}

// checkedDefault returns the canonical form of a default.
func checkedDefault(f *Field, path string, value any) any {
	if n, ok := value.(int); ok {
		value = int64(n)
	}
	var c conformer
	v := c.value(f.Type, f.Pointer, copyTree(value))
	if err := c.err(); err != nil || len(c.findings) > 0 {
		panic(fmt.Sprintf("schema: default for %s: %v %v", path, err, c.findings))
	}
	return v
}

func (p *planner) compile(t *Type, o *overlay) *defaults {
	if o == nil {
		if d := p.shared[t]; d != nil {
			return d
		}
	}
	d := &defaults{}
	if o == nil {
		p.shared[t] = d
		o = &overlay{}
	}
	for i := range t.Fields {
		f := &t.Fields[i]
		own := o.fields[f.Name]
		switch {
		case own != nil && own.value != nil:
			d.set = append(d.set, setting{f, own.value})
		case f.Default != nil:
			d.set = append(d.set, setting{f, f.Default})
		}
		if plan, depth := p.below(f.Type, own); plan != nil {
			d.into = append(d.into, branch{f.Name, depth, plan})
		}
	}
	return d
}

// below compiles what stands inside a field, so many lists and maps deep, or returns nil if nothing
// there has a default.
func (p *planner) below(t *Type, o *overlay) (plan *defaults, depth int) {
	for ; t.Kind == List || t.Kind == Map; depth++ {
		t = t.Elem
	}
	if t.Kind != Struct {
		return nil, 0
	}
	if o != nil && o.fields == nil {
		o = nil
	}
	plan = p.compile(t, o)
	if len(plan.set) == 0 && len(plan.into) == 0 {
		return nil, 0
	}
	return plan, depth
}
