package kinds

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"

	compiled "github.com/setpoint-dev/setpoint/kinds/schema"
	"github.com/setpoint-dev/setpoint/kinds/tree"
)

// Form is one version of the objects of a kind whose versions differ, or whose schema may change: what
// is stored may be in the form of another version, or of this one from before a change. All versions of
// a kind have a Form each, and know each other.
type Form struct {
	// APIVersion is what objects of the form say of themselves.
	APIVersion string
	Schema     *compiled.Schema
	// Since is the revision before which even bytes of this form may have been written under another
	// schema; zero if none was.
	Since int64
	// All are the forms of the kind by their APIVersion, this one among them, and Kept is the one in
	// which objects are stored.
	All  map[string]*Form
	Kept *Form
	// Convert brings objects of one other form into this one, in their order, all of them at once: it
	// may ask somebody's server. The objects are used up. Objects that come back are canonical.
	Convert func(ctx context.Context, from *Form, objs []Object) ([]Object, error)
	// Asks says that Convert asks somebody's server: it is slow, and it may fail.
	Asks bool
}

// Begins says whether stored bytes begin as those of this form do; where a field comes before the
// apiVersion, that is not known, and the answer is no.
func (f *Form) Begins(value []byte) bool {
	version, ok := begins(value)
	return ok && version == f.APIVersion
}

func begins(value []byte) (apiVersion string, ok bool) {
	rest, ok := bytes.CutPrefix(value, []byte(`{"apiVersion":"`))
	text, _, _ := bytes.Cut(rest, []byte{'"'})
	return string(text), ok
}

// apiVersionOf is what stored bytes say that they are.
func apiVersionOf(value []byte) (version string, err error) {
	if version, ok := begins(value); ok {
		return version, nil
	}
	var said map[string]json.RawMessage
	if err := json.Unmarshal(value, &said); err != nil {
		return "", err
	}
	return version, json.Unmarshal(said["apiVersion"], &version)
}

// Read brings stored objects into this form, as trees that are the caller's. Defaults are those of the
// version in which an object was written. Possible errors: what is stored cannot be read, or is of a
// version that the kind does not have any more; and those of Convert.
func (f *Form) Read(ctx context.Context, values ...[]byte) ([]Object, error) {
	objs := make([]Object, len(values))
	for i, value := range values {
		version, err := apiVersionOf(value)
		if err != nil {
			return nil, fmt.Errorf("a stored object cannot be read: %w", err)
		}
		written := f.All[version]
		if written == nil {
			return nil, fmt.Errorf("request to convert CR from an invalid group/version: %s", version)
		}
		decoded, err := written.Schema.DecodeJSON(value)
		if err != nil {
			return nil, fmt.Errorf("an object that is stored as %s cannot be read: %w", version, err)
		}
		written.Schema.Default(decoded.Object)
		decoded.Object["apiVersion"] = version
		objs[i] = decoded.Object
	}
	return f.From(ctx, objs)
}

// From brings objects of any of the kind's forms into this one. They are used up, but for those that
// are of this form already: they come back as they are.
func (f *Form) From(ctx context.Context, objs []Object) ([]Object, error) {
	out := make([]Object, len(objs))
	others := map[string][]int{} // indices by the version they have
	for i, obj := range objs {
		version := tree.Str(obj, "apiVersion")
		if version == f.APIVersion {
			out[i] = obj
			continue
		}
		if f.All[version] == nil {
			return nil, fmt.Errorf("request to convert CR from an invalid group/version: %s", version)
		}
		others[version] = append(others[version], i)
	}
	for version, at := range others {
		batch := make([]Object, len(at))
		for i, j := range at {
			batch[i] = objs[j]
		}
		converted, err := f.Convert(ctx, f.All[version], batch)
		if err != nil {
			return nil, err
		}
		for i, j := range at {
			out[j] = converted[i]
		}
	}
	return out, nil
}
