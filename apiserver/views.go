package apiserver

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/setpoint-dev/setpoint/kinds"
	"github.com/setpoint-dev/setpoint/store"
)

// render returns an object, given as its stored bytes, in the form the client chose. What it
// returns may be the stored bytes themselves.
func (s *Server) render(media mediaType, r *request, value []byte) ([]byte, error) {
	own, err := s.ownForm(r, value)
	if err != nil {
		return nil, err
	}
	switch media.as {
	case "Table":
		return s.tableOfOne(media, r, own)
	case "PartialObjectMetadata":
		return appendPartial(nil, media.version, own), nil
	case "PartialObjectMetadataList":
		return nil, errShape(media.as, r.kind, false)
	}
	return own, nil
}

// ownForm returns stored bytes in the form of the request's kind: the bytes themselves, unless the
// kind is kept in another's form.
func (s *Server) ownForm(r *request, value []byte) ([]byte, error) {
	if err := readable(r.kind.GroupResource(), value); err != nil {
		return nil, err
	}
	if isOwnForm(r.kind, value) {
		return value, nil
	}
	obj, err := decodeStored(r.http.Context(), r.kinds, r.kind, value)
	if err != nil {
		return nil, err
	}
	return shownIn(r.kind, obj, value), nil
}

// shownIn returns an object in a kind's form, with the revision that its stored bytes have.
func shownIn(k *kinds.Kind, obj kinds.Object, value []byte) []byte {
	var op store.Op
	op.Value, op.RevisionAt = k.Schema.Append(make([]byte, 0, len(value)+256), obj)
	revision, _ := member(metadataOf(value), "resourceVersion")
	return stamped(op, string(bytes.Trim(revision, `"`)))
}

// isOwnForm says whether stored bytes are in the form of a kind, and can be served as they are.
func isOwnForm(k *kinds.Kind, value []byte) bool {
	switch {
	case k.Storage != nil:
		return false
	case k.Form == nil:
		return true
	case !k.Form.Begins(value):
		return false
	}
	return k.Form.Since == 0 || revisionOf(value) >= k.Form.Since
}

// isKeptForm says whether stored bytes are of the version in which the kind's objects are kept now.
func isKeptForm(k *kinds.Kind, value []byte) bool {
	return k.Form == nil || k.Form.Kept.Begins(value)
}

// revisionOf is the revision that stored bytes say they were written in.
func revisionOf(value []byte) int64 {
	text, _ := member(metadataOf(value), "resourceVersion")
	n, _ := strconv.ParseInt(string(bytes.Trim(text, `"`)), 10, 64)
	return n
}

// decodeStored returns the tree of an object, given as its stored bytes, in the form of a kind.
// The tree is the caller's.
func decodeStored(ctx context.Context, set *kinds.Set, k *kinds.Kind, value []byte) (kinds.Object, error) {
	if err := readable(k.GroupResource(), value); err != nil {
		return nil, err
	}
	if k.Form != nil {
		objs, err := k.Form.Read(ctx, value)
		if err != nil {
			return nil, err
		}
		return objs[0], nil
	}
	stored := k
	if at := k.Storage; at != nil {
		gvk := schema.GroupVersionKind{Group: at.Group, Version: at.Version, Kind: at.Kind}
		if stored = set.Kind(gvk); stored == nil {
			return nil, fmt.Errorf("%s is kept as %s, which is not served", k.Kind, gvk)
		}
	}
	decoded, err := stored.Schema.DecodeJSON(value)
	if err != nil {
		return nil, fmt.Errorf("a stored %s cannot be read: %w", stored.Kind, err)
	}
	if k.Storage != nil {
		k.Storage.FromStored(decoded.Object)
	}
	return decoded.Object, nil
}

// appendPartial appends an object as PartialObjectMetadata.
func appendPartial(dst []byte, version string, value []byte) []byte {
	dst = append(dst, `{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/`...)
	dst = append(dst, version...)
	dst = append(dst, `","metadata":`...)
	dst = append(dst, metadataOf(value)...)
	return append(dst, '}')
}

// errShape is for a client that asks for one object of a list, or the other way round.
func errShape(as string, k *kinds.Kind, list bool) error {
	group := internalPackage(k.Group)
	what := fmt.Sprintf("is not a list (*%s.%s)", group, k.Kind)
	if list {
		what = fmt.Sprintf("is a list (*%s.%sList)", group, k.Kind)
	}
	return status(http.StatusNotAcceptable, metav1.StatusReasonNotAcceptable,
		fmt.Sprintf("you requested %s, but the requested object %s", as, what))
}

// memo is what the server remembers of a stored object, so that selectors need not read it again.
// It is kept in store.Entry.Memo, and read-only.
type memo struct {
	labels map[string]string
	// fields are the values of the selectable fields of the kind in whose form the object is kept,
	// metadata.name and metadata.namespace left out: the key says those.
	fields map[string]string
	// of is the record whose fields they are: other versions of a kind may select by others.
	of *kinds.Kind
}

// newMemo makes the memo of a tree in its stored form.
func newMemo(k *kinds.Kind, obj kinds.Object) *memo {
	m := &memo{fields: fieldsOf(k, obj), of: k}
	if metadata, ok := obj["metadata"].(map[string]any); ok {
		if labels, ok := metadata["labels"].(map[string]any); ok && len(labels) > 0 {
			m.labels = make(map[string]string, len(labels))
			for key, value := range labels {
				m.labels[key], _ = value.(string)
			}
		}
	}
	return m
}

func fieldsOf(k *kinds.Kind, obj kinds.Object) map[string]string {
	if len(k.Fields) == 0 {
		return nil
	}
	fields := make(map[string]string, len(k.Fields))
	for name, read := range k.Fields {
		fields[name] = read(obj)
	}
	return fields
}

// memoOf returns the memo of an entry, and derives it if nobody has yet. A kind that is kept in
// another's form has fields of its own, which are read each time: the slot is the other's.
func memoOf(ctx context.Context, set *kinds.Set, k *kinds.Kind, e *store.Entry) (*memo, error) {
	if k.Storage != nil {
		return deriveMemo(ctx, set, k, e)
	}
	if m, ok := e.Memo.Load().(*memo); ok && m.of == k {
		return m, nil
	}
	m, err := deriveMemo(ctx, set, k, e)
	if err == nil {
		e.Memo.Store(m)
	}
	return m, err
}

func deriveMemo(ctx context.Context, set *kinds.Set, k *kinds.Kind, e *store.Entry) (*memo, error) {
	m := &memo{labels: labelsOf(e.Value), of: k}
	asks := k.Form != nil && k.Form.Asks && !isOwnForm(k, e.Value)
	if len(k.Fields) > 0 || asks {
		obj, err := decodeStored(ctx, set, k, e.Value)
		if err != nil {
			return nil, err
		}
		if asks {
			return newMemo(k, obj), nil // labels are what the conversion makes of them
		}
		m.fields = fieldsOf(k, obj)
	}
	return m, nil
}
