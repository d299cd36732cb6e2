package managed

import (
	"strconv"

	smd "sigs.k8s.io/structured-merge-diff/v6/schema"
	"sigs.k8s.io/structured-merge-diff/v6/typed"

	"github.com/setpoint-dev/setpoint/kinds/schema"
)

// compile turns a type and all it refers to into a schema of structured-merge-diff.
func compile(root *schema.Type) typed.ParseableType {
	c := compiler{names: map[*schema.Type]string{}, taken: map[string]bool{}}
	ref := c.ref(root)
	c.types = append(c.types, smd.TypeDef{Name: untypedName, Atom: untyped}, smd.TypeDef{Name: deducedName, Atom: deduced})
	return typed.ParseableType{TypeRef: ref, Schema: &smd.Schema{Types: c.types}}
}

// untypedName is the type of what may be anything and is owned as a whole.
const untypedName = "untyped"

var untyped = smd.Atom{
	Scalar: scalar(smd.Untyped),
	List:   &smd.List{ElementType: named(untypedName), ElementRelationship: smd.Atomic},
	Map:    &smd.Map{ElementType: named(untypedName), ElementRelationship: smd.Atomic},
}

// deducedName is the type of what a declared object keeps without knowing it: its maps are merged, and
// everything else is owned as a whole.
const deducedName = "deduced"

var deduced = smd.Atom{
	Scalar: scalar(smd.Untyped),
	List:   &smd.List{ElementType: named(untypedName), ElementRelationship: smd.Atomic},
	Map:    &smd.Map{ElementType: named(deducedName), ElementRelationship: smd.Separable},
}

func scalar(s smd.Scalar) *smd.Scalar { return &s }

func named(name string) smd.TypeRef { return smd.TypeRef{NamedType: &name} }

// compiler names structs, which may refer to themselves, and inlines everything else.
type compiler struct {
	names map[*schema.Type]string
	taken map[string]bool
	types []smd.TypeDef
}

func (c *compiler) ref(t *schema.Type) smd.TypeRef {
	switch t.Kind {
	case schema.Any:
		if s, ok := scalars[t.Meant]; ok {
			return inlined(s)
		}
		return named(untypedName)
	case schema.Struct:
		return named(c.structure(t))
	case schema.Map:
		m := &smd.Map{ElementType: c.elem(t), ElementRelationship: relationship(t.Atomic)}
		return smd.TypeRef{Inlined: smd.Atom{Map: m}}
	case schema.List:
		return smd.TypeRef{Inlined: smd.Atom{List: c.list(t)}}
	case schema.Bool:
		return inlined(smd.Boolean)
	case schema.Int32, schema.Int64:
		return inlined(smd.Numeric)
	case schema.String, schema.Bytes:
		return inlined(smd.String)
	default: // quantities, times and the like
		return inlined(smd.Untyped)
	}
}

// scalars are the types of what declared objects say they have.
var scalars = map[schema.Meaning]smd.Scalar{
	schema.MeantBool: smd.Boolean, schema.MeantNumber: smd.Numeric, schema.MeantString: smd.String,
}

func inlined(s smd.Scalar) smd.TypeRef { return smd.TypeRef{Inlined: smd.Atom{Scalar: scalar(s)}} }

func relationship(atomic bool) smd.ElementRelationship {
	if atomic {
		return smd.Atomic
	}
	return smd.Separable
}

func (c *compiler) list(t *schema.Type) *smd.List {
	list := &smd.List{ElementType: c.elem(t), ElementRelationship: smd.Atomic}
	switch t.ListType {
	case "set":
		list.ElementRelationship = smd.Associative
	case "map":
		list.ElementRelationship, list.Keys = smd.Associative, t.ListKeys
	}
	return list
}

func (c *compiler) elem(t *schema.Type) smd.TypeRef {
	ref := c.ref(t.Elem)
	ref.Nullable = t.NullableElem
	return ref
}

// absentKey is what a field that is not there counts as where it is one of a list's keys: its default,
// or the zero value of a scalar that is written even then. Nil: it has to be there.
func absentKey(f *schema.Field) any {
	switch {
	case f.Default != nil:
		return f.Default
	case f.Optional, f.OmitZero, f.Pointer:
		return nil
	}
	switch f.Type.Kind {
	case schema.String:
		return ""
	case schema.Int32, schema.Int64:
		return int64(0)
	}
	return nil
}

func (c *compiler) structure(t *schema.Type) string {
	if name, ok := c.names[t]; ok {
		return name
	}
	name := t.Name
	for n := 2; name == "" || c.taken[name]; n++ {
		name = t.Name + "#" + strconv.Itoa(n)
	}
	c.names[t], c.taken[name] = name, true
	m := &smd.Map{ElementRelationship: relationship(t.Atomic), Fields: make([]smd.StructField, len(t.Fields))}
	for i := range t.Fields {
		f := &t.Fields[i]
		m.Fields[i] = smd.StructField{Name: f.Name, Type: c.ref(f.Type), Default: absentKey(f)}
	}
	switch {
	case t.PreserveUnknown && t.Loose:
		m.ElementType = named(deducedName)
	case t.PreserveUnknown:
		m.ElementType = named(untypedName)
	}
	c.types = append(c.types, smd.TypeDef{Name: name, Atom: smd.Atom{Map: m}})
	return name
}
