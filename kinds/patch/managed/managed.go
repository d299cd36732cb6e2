// Package managed keeps an object's metadata.managedFields: which manager set which field, by
// which operation, and when. Update records what a create, an update or a patch changed; Apply is
// server-side apply, which merges a manager's wishes into an object, removes what it no longer
// wishes, and refuses to take fields that others set.
//
// The result is what apimachinery's managedfields package computes, entry for entry, with three
// differences: the time comes from the caller; Update walks trees directly, which costs a create
// about what encoding the object costs, and a sixth of what the package does; and entries that other
// API versions of a kind wrote are read as if their fields had the names of this one, unless the
// caller knows how to convert.
//
// Field sets are trees as they stand in fieldsV1: {"f:data": {".": {}, "f:k": {}}} says that the
// map and one of its members are owned. Such trees are shared and never changed.
//
// Everything here is a pure function and may be called concurrently.
package managed

import (
	"sync"

	"sigs.k8s.io/structured-merge-diff/v6/typed"

	"github.com/setpoint-dev/setpoint/kinds/schema"
	"github.com/setpoint-dev/setpoint/kinds/tree"
)

// Type is what the package needs to know of a kind. Make it once with NewType and keep it.
type Type struct {
	root *schema.Type
	// empty is the canonical form of an object that says nothing: what a create is compared with.
	empty func() map[string]any
	// parser is compiled on the first apply.
	parser func() typed.ParseableType
}

// NewType prepares a kind's schema. It compiles nothing yet.
func NewType(s *schema.Schema) *Type {
	root := s.Root()
	return &Type{
		root: root,
		empty: sync.OnceValue(func() map[string]any {
			decoded, err := s.DecodeJSON([]byte("{}"))
			if err != nil {
				panic("managed: an empty " + s.Name + " does not decode: " + err.Error())
			}
			return decoded.Object
		}),
		parser: sync.OnceValue(func() typed.ParseableType { return compile(root) }),
	}
}

// Write is who writes, how and when.
type Write struct {
	Manager     string // "" is "unknown"
	APIVersion  string
	Subresource string
	Time        string // RFC 3339, in seconds
	// Ignored fields are those that this way of writing resets: nobody comes to own them by it.
	Ignored Ignored
	// Convert returns an object, which it may use up, in another version of the kind, and that version's
	// type; nil if the versions' fields have the same names.
	Convert func(obj map[string]any, apiVersion string) (map[string]any, *Type, error)
}

// Ignored names fields of the object, and of its metadata.
type Ignored struct{ Fields, Metadata []string }

func (w Write) id(op string) id {
	manager := w.Manager
	if manager == "" {
		manager = "unknown"
	}
	return id{manager: manager, operation: op, apiVersion: w.APIVersion, subresource: w.Subresource}
}

const (
	opApply  = "Apply"
	opUpdate = "Update"
)

// updatersMax bounds the entries of updates in one object, as upstream does; the oldest are merged.
const updatersMax = 10

// Update sets obj's managedFields after a write that made obj of live; live is nil for a create.
// What obj says about managedFields itself is taken, unless w is a subresource's write: valid
// entries replace those of live, an empty list or one empty entry forgets them all, and anything
// else leaves live's. An object that is not tracked any more stays so until it is applied to.
// Only obj is changed.
func Update(t *Type, live, obj map[string]any, w Write) {
	entries := startOf(live, obj, w.Subresource != "")
	if live == nil {
		live = t.empty()
	} else if len(entries) == 0 {
		tree.Delete(obj, "metadata", "managedFields")
		return
	}
	entries, err := record(t, live, obj, entries, w)
	if err != nil {
		// The object cannot be indexed by its list keys. Ownership stays as it was.
		tree.Move("managedFields", tree.Map(live, "metadata"), tree.Ensure(obj, "metadata"))
		return
	}
	set(obj, entries)
}

// startOf returns the entries that a write starts from.
func startOf(live, obj map[string]any, ignoreNew bool) []entry {
	if !ignoreNew {
		list, given := tree.Get(obj, "metadata", "managedFields").([]any)
		if given && isReset(list) {
			return nil
		}
		if entries, err := parse(list); err == nil && len(entries) > 0 {
			return entries
		}
	}
	entries, err := parse(tree.List(live, "metadata", "managedFields"))
	if err != nil {
		return nil
	}
	return entries
}

func isReset(list []any) bool {
	if len(list) == 1 {
		only, ok := list[0].(map[string]any)
		return ok && len(only) == 0
	}
	return len(list) == 0
}

// record takes what changed between live and obj from all entries, and gives what was set to w's.
func record(t *Type, live, obj map[string]any, entries []entry, w Write) ([]entry, error) {
	changed, removed, err := compare(t, live, obj, w.Ignored)
	if err != nil {
		return nil, err
	}
	if changed == nil && removed == nil {
		return entries, nil
	}
	writer := w.id(opUpdate)
	kept := make([]entry, 0, len(entries)+1)
	taken := func(string) (node, node, error) { return changed, removed, nil }
	if w.Convert != nil {
		taken = versions(t, live, obj, w)
	}
	for _, e := range entries {
		changed, removed, err := taken(e.apiVersion)
		if err != nil {
			return nil, err
		}
		if e.id != writer { // who writes keeps what it owned, and owns the more
			e.fields = subtract(e.fields, changed)
		}
		if e.fields = subtract(e.fields, removed); e.fields != nil {
			kept = append(kept, e)
		}
	}
	if changed != nil {
		kept = give(kept, writer, changed, w.Time)
	}
	return limit(kept), nil
}

// versions returns what changed between live and obj by the names that a version has for it.
func versions(t *Type, live, obj map[string]any, w Write) func(apiVersion string) (changed, removed node, err error) {
	type difference struct{ changed, removed node }
	known := map[string]difference{}
	return func(version string) (node, node, error) {
		if d, ok := known[version]; ok {
			return d.changed, d.removed, nil
		}
		of, before, after := t, live, obj
		if version != w.APIVersion {
			var err error
			if after, of, err = w.Convert(tree.CopyMap(obj), version); err != nil {
				return nil, nil, err
			}
			if before = of.empty(); tree.Str(live, "apiVersion") != "" { // else nothing is there yet
				if before, _, err = w.Convert(tree.CopyMap(live), version); err != nil {
					return nil, nil, err
				}
			}
		}
		var d difference
		var err error
		d.changed, d.removed, err = compare(of, before, after, w.Ignored)
		known[version] = d
		return d.changed, d.removed, err
	}
}

// give adds fields to the entry of an id, which it makes if there is none.
func give(entries []entry, to id, fields node, time string) []entry {
	for i := range entries {
		if entries[i].id == to {
			entries[i].fields = union(entries[i].fields, fields)
			entries[i].time = time
			return entries
		}
	}
	return append(entries, entry{id: to, time: time, fields: fields})
}
