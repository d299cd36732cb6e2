package schema

const objectMetaName = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"

var stringType = &Type{Kind: String, GoName: "string"}

type (
	wire     struct{}
	defaults struct{}
	library  struct{}
)

var builtinTypes library

func (library) lookup(string) *Type { return nil }

func (t *Type) index()                                {}
func (t *Type) find(string) int                       { return -1 }
func compileDefaults(*Type, map[string]any) *defaults { return nil }

// Error says why a body could not be read. Error() is the text that the API server puts behind
// `X in version "v1" cannot be handled as a X: `, or, with Head, behind `couldn't get
// version/kind; json parse error: `.
type Error struct {
	// Head says that not even apiVersion and kind could be read: the body is not JSON, not an
	// object, or these two are not strings.
	Head bool
	// Path is the field concerned, "spec.containers[0].image", where there is one.
	Path string

	text string
}

func (e *Error) Error() string { return e.text }

// DecodeJSON reads a body. A missing or null value is its type's zero value; a null body is an
// empty object. The error, if any, is an *Error.
func (s *Schema) DecodeJSON(data []byte) (Decoded, error) { panic("schema: DecodeJSON") }

// DecodeProto reads the message inside an envelope. apiVersion and kind are not part of it: the
// caller sets them from the envelope. Unknown fields are skipped. The error, if any, is an *Error.
func (s *Schema) DecodeProto(raw []byte) (Decoded, error) { panic("schema: DecodeProto") }

// Envelope opens the envelope of a protobuf body: the bytes "k8s\0" and a message with the type
// and the object's own message, raw, which shares memory with data.
func Envelope(data []byte) (apiVersion, kind string, raw []byte, err error) {
	panic("schema: Envelope")
}

// Conform makes a tree canonical, in place, as DecodeJSON would have made it from the same
// content: it drops unknown fields (each a finding, in order of path), checks types, rewrites
// quantities and times, and fills in what is always written. The error, if any, is an *Error.
func (s *Schema) Conform(obj map[string]any) (findings []string, err error) { panic("schema: Conform") }

// Default sets the static defaults, in place, where the object holding the field is there and the
// field is not.
func (s *Schema) Default(obj map[string]any) { panic("schema: Default") }

// WithDefaults returns the schema with further static defaults. The keys are paths:
// "spec.template.spec.containers[*].terminationMessagePath" for all items of a list,
// "spec.selectors{*}.mode" for all values of a map. A path that the schema does not have panics: it is a
// mistake in the record. Values that hold a map or a list are copied for each object.
func (s *Schema) WithDefaults(values map[string]any) *Schema { panic("schema: WithDefaults") }

// Append appends a canonical tree as canonical JSON: fields in the order of the type, the keys of
// maps sorted, no white space, and characters escaped as encoding/json does. In an object with
// metadata the value of metadata.resourceVersion is left out: `"resourceVersion":""` stands there
// always, and revisionAt is the offset in out between its quotes, where the store stamps the
// revision in. Without metadata revisionAt is -1.
func (s *Schema) Append(dst []byte, obj map[string]any) (out []byte, revisionAt int) {
	panic("schema: Append")
}

// OpenAPIDefinitions returns the OpenAPI v3 definition of each named component, and of all that
// these refer to, as JSON, by name. Names that do not exist are left out.
func OpenAPIDefinitions(names ...string) (map[string][]byte, error) {
	panic("schema: OpenAPIDefinitions")
}
