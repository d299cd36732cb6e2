package apiserver

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/setpoint-dev/setpoint/kinds"
	compiled "github.com/setpoint-dev/setpoint/kinds/schema"
)

// form is how protobuf has a document: the message it is, and what its envelope says it is.
type form struct {
	schema           *compiled.Schema
	apiVersion, kind string
}

// hasProto says whether there is a protobuf form; the form may be nil.
func (f *form) hasProto() bool { return f != nil && f.schema != nil && f.schema.HasProto() }

// appendProto appends a document, given as canonical JSON, as protobuf in its envelope.
func (f *form) appendProto(dst, body []byte) ([]byte, error) {
	message, err := f.schema.AppendProto(make([]byte, 0, len(body)), body)
	if err != nil {
		return nil, fmt.Errorf("writing a %s as protobuf: %w", f.kind, err)
	}
	dst = slices.Grow(dst, len(message)+envelopeRoom)
	return compiled.AppendEnvelope(dst, f.apiVersion, f.kind, message), nil
}

// envelopeRoom is what an envelope takes beside its message, long names included.
const envelopeRoom = 128

const metaTypes = "io.k8s.apimachinery.pkg.apis.meta.v1."

// formOf is the form of the objects of the request's kind, as they are or transformed.
func formOf(r *request, media mediaType) *form {
	if media.as != "" {
		return &form{compiled.Builtin(metaTypes + media.as), "meta.k8s.io/" + media.version, media.as}
	}
	return &form{r.kind.Schema, r.kind.GVK().GroupVersion().String(), r.kind.Kind}
}

// formOfMeta is the form of a structure of meta.k8s.io that belongs to no group.
func formOfMeta(kind string) *form { return &form{compiled.Builtin(metaTypes + kind), "v1", kind} }

// modelled is a structure of the API.
type modelled interface {
	OpenAPIModelName() string
	GetObjectKind() schema.ObjectKind
}

// formOfDocument is the form of a document that is no object of the request's kind: a structure of
// the API, or the tree of a Scale. It is nil for Setpoint's own documents.
func formOfDocument(doc any) *form {
	switch doc := doc.(type) {
	case kinds.Object:
		return &form{scaleSchema(), scaleGVK.GroupVersion().String(), scaleGVK.Kind}
	case modelled:
		apiVersion, kind := doc.GetObjectKind().GroupVersionKind().ToAPIVersionAndKind()
		return &form{compiled.Builtin(doc.OpenAPIModelName()), apiVersion, kind}
	}
	return nil
}
