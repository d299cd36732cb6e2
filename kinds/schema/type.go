package schema

// Kind says which values a Type has, and what their canonical form is.
type Kind uint8

const (
	Bool        Kind = iota + 1 // bool
	Int32                       // int64 in the range of an int32
	Int64                       // int64
	String                      // string
	Bytes                       // string in padded standard base64; nil is not there
	Quantity                    // string, as resource.Quantity spells it: "0.1" becomes "100m"
	IntOrString                 // int64 in the range of an int32, or string
	Time                        // string, RFC 3339 in UTC with whole seconds; nil is the zero time
	MicroTime                   // string, RFC 3339 in UTC with six digits; nil is the zero time
	Any                         // any tree; nothing in it is checked
	List                        // []any of Elem; nil is not there
	Map                         // map[string]any of Elem; nil is not there
	Struct                      // map[string]any with Fields
)

// Type is a node of a schema. Types are shared between the places that refer to them, and may
// refer to themselves; they are read-only.
type Type struct {
	Kind Kind
	// Name is the OpenAPI name of a struct, "io.k8s.api.core.v1.PodSpec"; "" for others.
	Name string
	// GoName is how messages name the type: "v1.PodSpec", "[]v1.Container", "int32".
	GoName string

	// Elem is the type of a list's items and a map's values, nil for other kinds. With
	// NullableElem they may be null; else a null is the zero value.
	Elem         *Type
	NullableElem bool

	// Fields of a struct, in the order in which they are written.
	Fields []Field
	// PreserveUnknown keeps a struct's unknown fields as they are.
	PreserveUnknown bool
	// Loose lets a value of any other type stand in the place of a struct, a map or a list, as it is:
	// whoever validates the object says what is wrong with it. Fields are written in order of name.
	Loose bool

	// Meant is what a scalar of a declared object should be: Bool, String or Number; zero if anything. The
	// type is Any then: the value is kept, unless it is a map or a list of maps, whose fields are unknown
	// ones, and whoever validates the object says what is wrong with it.
	Meant Meaning

	// EmptyIsNull says that a struct's list or map is kept as null where it has nothing in it and is not
	// left out. Upstream keeps the objects of most kinds as protobuf, which knows no empty list.
	EmptyIsNull bool

	// ListType is "atomic", "set" or "map" where the schema says so, with the ListKeys of a "map".
	ListType string
	ListKeys []string
	// Atomic says that a map or a struct is replaced as a whole by server-side apply.
	Atomic bool
	// Enum lists the strings allowed, if they are known. Decoding does not check it.
	Enum []string

	slots   []uint16 // hash table over the fields' names: index + 1
	written []uint16 // indexes of the fields that are written even if nothing was given
	message []wire   // the type as a protobuf message, by field number
	wrapped bool     // a list that is a message of its own in protobuf
	proto   protoForm
	shared  bool // its trees are shared by all objects that have the same
}

// Meaning is what a scalar should be that may be anything.
type Meaning uint8

// The scalars of declared objects.
const (
	MeantBool Meaning = iota + 1
	MeantNumber
	MeantString
)

// emptied and emptiedList are the types of what stands in the place of a scalar.
var (
	emptied     = &Type{Kind: Struct, Loose: true, slots: make([]uint16, 1)} // no fields: nothing is found
	emptiedList = &Type{Kind: List, Loose: true, Elem: emptied, NullableElem: true}
)

// protoForm says how protobuf has a value that it has not as JSON has it.
type protoForm uint8

const (
	protoDouble    protoForm = iota + 1 // a number as fixed64
	protoOrBool                         // a struct or a bool: {1: bool, 2: struct}
	protoOrArray                        // a struct or a list of them: {1: struct, 2: repeated struct}
	protoOrStrings                      // a struct or a list of strings: {1: struct, 2: repeated string}
)

// Field is a field of a struct.
type Field struct {
	Name string
	Type *Type

	// Optional leaves out zero values, as omitempty does: a struct, quantity, time or tree is
	// written all the same, unless OmitZero or Pointer says otherwise.
	Optional bool
	// OmitZero leaves out a zero time or scalar.
	OmitZero bool
	// Pointer tells "not there" from the zero value.
	Pointer bool
	// Nullable says that null is a value of its own, which is kept and not replaced by a default.
	Nullable bool
	// Required is what OpenAPI says; decoding does not check it.
	Required bool

	// Default is the static default, or nil.
	Default any

	// PatchStrategy and PatchMergeKey direct a strategic merge patch: "merge", "replace",
	// "retainKeys".
	PatchStrategy []string
	PatchMergeKey string

	embedded string // dotted Go names of the embedded structs the field comes from
}

// Field returns the field of a struct by its name, or nil.
func (t *Type) Field(name string) *Field {
	if i := t.find(name); i >= 0 {
		return &t.Fields[i]
	}
	return nil
}

// index prepares a struct for find and fill, once its fields are complete.
func (t *Type) index() {
	size := 4
	for size < 2*len(t.Fields) {
		size *= 2
	}
	t.slots = make([]uint16, size)
	for i := range t.Fields {
		f := &t.Fields[i]
		at := hash(f.Name) & (size - 1)
		for t.slots[at] != 0 {
			at = (at + 1) & (size - 1)
		}
		t.slots[at] = uint16(i + 1)
		if f.alwaysWritten() && !(t.Loose && f.Pointer) {
			t.written = append(t.written, uint16(i))
		}
	}
}

// prepare indexes a type made outside of the package, and all it refers to.
func (t *Type) prepare() {
	if t.Elem != nil {
		t.Elem.prepare()
	}
	if t.Kind != Struct || t.slots != nil {
		return
	}
	t.index()
	for i := range t.Fields {
		t.Fields[i].Type.prepare()
	}
}

// find returns the index of a field, or -1.
func (t *Type) find(name string) int {
	mask := len(t.slots) - 1
	for at := hash(name) & mask; ; at = (at + 1) & mask {
		i := int(t.slots[at]) - 1
		if i < 0 || t.Fields[i].Name == name {
			return i
		}
	}
}

// hash looks at the length and three letters, which tell the fields of a struct apart well enough.
func hash(name string) int {
	n := len(name)
	if n == 0 {
		return 0
	}
	return n + 7*int(name[0]) + 31*int(name[n/2]) + 131*int(name[n-1])
}

// alwaysWritten says that the field has a canonical value even if nothing was given.
func (f *Field) alwaysWritten() bool {
	switch {
	case f.Pointer:
		return !f.Optional
	case f.OmitZero:
		return false
	case f.Type.Kind.hasEmpty():
		return !f.Optional
	}
	return true
}

// omits says that the canonical form has no such field if this is its value.
func (f *Field) omits(v any) bool {
	if f.Pointer {
		return v == nil && f.Optional && !f.Nullable
	}
	return (f.Optional && f.Type.Kind.hasEmpty() || f.OmitZero) && isEmpty(v)
}

// writesNull says that a list or map is kept as null, in a type with EmptyIsNull.
func (f *Field) writesNull(v any) bool {
	return !f.Pointer && (f.Type.Kind == List || f.Type.Kind == Map) && isEmpty(v)
}

// hasEmpty says that omitempty knows an empty value of the kind.
func (k Kind) hasEmpty() bool {
	switch k {
	case Bool, Int32, Int64, String, Bytes, List, Map:
		return true
	}
	return false
}

func isEmpty(v any) bool {
	switch v := v.(type) {
	case nil:
		return true
	case bool:
		return !v
	case int64:
		return v == 0
	case string:
		return v == ""
	case []any:
		return len(v) == 0
	case map[string]any:
		return len(v) == 0
	}
	return false
}

// zero is the canonical value of a type when nothing, or null, was given. Each call returns a tree
// of its own.
func (t *Type) zero() any {
	switch t.Kind {
	case Bool:
		return false
	case Int32, Int64, IntOrString:
		return int64(0)
	case String:
		return ""
	case Quantity:
		return "0"
	case Struct:
		m := make(map[string]any, len(t.written))
		t.fill(m)
		return m
	}
	return nil
}

// zero is the canonical value of a field that is always written.
func (f *Field) zero() any {
	if f.Pointer {
		return nil
	}
	return f.Type.zero()
}

// fill adds the fields that are always written and not there.
func (t *Type) fill(m map[string]any) {
	for _, i := range t.written {
		f := &t.Fields[i]
		if _, there := m[f.Name]; !there {
			m[f.Name] = f.zero()
		}
	}
}
