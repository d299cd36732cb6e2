package schema

// Kind says which values a Type has, and what their canonical form is.
type Kind uint8

const (
	Invalid     Kind = iota
	Bool             // bool
	Int32            // int64 in the range of an int32
	Int64            // int64
	Float64          // float64, or int64 where a number without a fraction was given to Any
	String           // string
	Bytes            // string, in padded standard base64
	Quantity         // string, as resource.Quantity spells it: "0.1" becomes "100m"
	IntOrString      // int64 in the range of an int32, or string
	Time             // string, RFC 3339 in UTC with whole seconds; nil is the zero time
	MicroTime        // string, RFC 3339 in UTC with six digits; nil is the zero time
	Duration         // string, as time.Duration spells it
	Any              // any tree; nothing in it is checked
	List             // []any of Elem
	Map              // map[string]any of Elem
	Struct           // map[string]any with Fields
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

	// ListType is "atomic", "set" or "map" where the schema says so, with the ListKeys of a "map".
	ListType string
	ListKeys []string
	// Atomic says that a map or a struct is replaced as a whole by server-side apply.
	Atomic bool
	// Enum lists the strings allowed, if they are known. Decoding does not check it.
	Enum []string

	table   []uint16 // see Field
	fill    []uint16 // fields that are never left out
	message []wire   // see DecodeProto
	wrapped bool     // in protobuf, a list that is a message of its own
}

// Field is a field of a struct.
type Field struct {
	Name string
	Type *Type

	// Optional leaves out zero values (omitempty). Structs, quantities and times are written all
	// the same, unless OmitZero or Pointer says otherwise.
	Optional bool
	OmitZero bool
	// Pointer tells "not there" from the zero value.
	Pointer bool
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
