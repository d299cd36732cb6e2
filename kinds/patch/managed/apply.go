package managed

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
	"sigs.k8s.io/structured-merge-diff/v6/merge"
	"sigs.k8s.io/structured-merge-diff/v6/typed"

	"github.com/setpoint-dev/setpoint/kinds/tree"
)

// Apply merges config, what w's manager wishes, into live, and returns the object that comes of it
// with its managedFields; live is nil if there is none yet. What the manager wished for before and
// does not any more is removed, unless somebody else owns it too. The result is a tree like one
// that a patch made: it goes through Schema.Conform and the defaults next. Neither live nor config
// is changed, and the result shares nothing with them.
//
// Without force, a change to fields that others own is refused with a Conflict that names them all.
// Possible errors: Conflict; BadRequest for what config says of itself; and errors that are no Status if config
// or the stored object is not of the type, which Kubernetes answers with 500.
func Apply(t *Type, live, config map[string]any, w Write, force bool) (map[string]any, error) {
	if version := tree.Str(config, "apiVersion"); version != w.APIVersion {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("Incorrect version specified in apply patch. "+
			"Specified patch version: %s, expected: %s", version, w.APIVersion))
	}
	if tree.Get(config, "metadata", "managedFields") != nil {
		return nil, apierrors.NewBadRequest("metadata.managedFields must be nil")
	}
	a, err := newApplication(t, live, config, w)
	if err != nil {
		return nil, err
	}
	merged, managers, err := a.run(force)
	var conflicts merge.Conflicts
	if errors.As(err, &conflicts) {
		if w.Manager == kubectl {
			conflicts = a.withoutClientSide(conflicts)
		}
		if len(conflicts) > 0 {
			return nil, conflictError(conflicts)
		}
		merged, managers, err = a.run(true)
	}
	switch {
	case a.unconverted != nil:
		return nil, a.unconverted
	case err != nil:
		return nil, err
	}
	return a.result(merged, managers)
}

// application is one apply under way.
type application struct {
	t       *Type
	w       Write
	live    map[string]any // without managedFields
	config  map[string]any
	entries []entry

	liveTyped, configTyped *typed.TypedValue
	// unconverted is why an object could not be had in the version of one of the managers.
	unconverted error
}

func newApplication(t *Type, live, config map[string]any, w Write) (*application, error) {
	entries, err := parse(tree.List(live, "metadata", "managedFields"))
	if err != nil {
		return nil, fmt.Errorf("managed fields of the stored object: %w", err)
	}
	a := &application{t: t, w: w, config: config, entries: entries}
	if live == nil {
		live = t.empty()
	}
	a.live = withoutEntries(live)
	if len(entries) == 0 {
		// Nobody kept track until now: what is there is somebody's whom nobody knows.
		before := w
		before.Manager = "before-first-apply"
		if a.entries, err = record(t, t.empty(), a.live, nil, before); err != nil {
			return nil, unmergeable(err)
		}
	}
	parser := t.parser()
	if a.configTyped, err = parser.FromUnstructured(a.config); err != nil {
		return nil, fmt.Errorf("failed to create typed patch object (%s/%s; %s, Kind=%s): %w",
			tree.Str(config, "metadata", "namespace"), tree.Str(config, "metadata", "name"),
			groupVersion(w.APIVersion), tree.Str(config, "kind"), err)
	}
	if a.liveTyped, err = parser.FromUnstructured(a.live, typed.AllowDuplicates); err != nil {
		return nil, unmergeable(err)
	}
	return a, nil
}

// unmergeable is for a stored object that validation let pass and that nothing can be merged with, such
// as one with items that do not say what they are called.
func unmergeable(err error) error {
	return fmt.Errorf("the stored object cannot be applied to: %w", err)
}

// withoutEntries returns the object without managedFields. It shares everything else.
func withoutEntries(obj map[string]any) map[string]any {
	obj = maps.Clone(obj)
	if m, ok := obj["metadata"].(map[string]any); ok {
		m = maps.Clone(m)
		delete(m, "managedFields")
		obj["metadata"] = m
	}
	return obj
}

// groupVersion spells a version as Go's schema.GroupVersion does: the core group has a slash.
func groupVersion(apiVersion string) string {
	if !strings.Contains(apiVersion, "/") {
		return "/" + apiVersion
	}
	return apiVersion
}

// run merges and returns the merged object, nil if it is as it was, and the new field sets.
func (a *application) run(force bool) (*typed.TypedValue, fieldpath.ManagedFields, error) {
	managers := fieldpath.ManagedFields{}
	for _, e := range a.entries {
		fields, err := toSet(e.fields)
		if err != nil {
			return nil, nil, err
		}
		version := fieldpath.APIVersion(e.apiVersion)
		managers[key(e.id)] = fieldpath.NewVersionedSet(fields, version, e.operation == opApply)
	}
	var converter merge.Converter = sameForm{}
	if a.w.Convert != nil {
		converter = otherForms{a}
	}
	builder := merge.UpdaterBuilder{
		Converter:    converter,
		IgnoreFilter: map[fieldpath.APIVersion]fieldpath.Filter{fieldpath.APIVersion(a.w.APIVersion): ignoring(a.w.Ignored)},
	}
	version := fieldpath.APIVersion(a.w.APIVersion)
	return builder.BuildUpdater().Apply(a.liveTyped, a.configTyped, version, managers, key(a.w.id(opApply)), force)
}

// result makes the object and its managedFields of what came out.
func (a *application) result(merged *typed.TypedValue, managers fieldpath.ManagedFields) (map[string]any, error) {
	obj := a.live
	if merged != nil {
		var ok bool
		if obj, ok = merged.AsValue().Unstructured().(map[string]any); !ok {
			return nil, fmt.Errorf("merging made no object")
		}
	}
	obj = tree.CopyMap(obj)
	var entries []entry
	own := key(a.w.id(opApply))
	for manager, versioned := range managers {
		e, err := a.entry(manager, versioned)
		if err != nil {
			return nil, err
		}
		if manager == own {
			if e.fields = withoutUnowned(e.fields); merged != nil {
				e.time = a.w.Time
			}
		}
		entries = append(entries, e)
	}
	if a.w.Manager == kubectl {
		if err := a.updateLastApplied(obj); err != nil {
			return nil, err
		}
	}
	set(obj, entries)
	return obj, nil
}

// entry makes an entry of a field set; its time is the one it had.
func (a *application) entry(manager string, versioned fieldpath.VersionedSet) (entry, error) {
	e := entry{id: a.w.id(opApply)}
	for _, old := range a.entries {
		if key(old.id) == manager {
			e = old
		}
	}
	e.apiVersion = string(versioned.APIVersion())
	fields, err := fromSet(versioned.Set())
	e.fields = fields
	return e, err
}

func withoutUnowned(n node) node {
	for _, field := range unownedFields {
		n = without(n, "f:"+field)
	}
	for _, field := range unownedMetadata {
		n = without(n, "f:metadata", "f:"+field)
	}
	if meta, ok := n["f:metadata"].(node); ok && inSet(meta) {
		n = subtract(n, node{"f:metadata": leaf})
	}
	return n
}

func ignoring(ignored Ignored) fieldpath.Filter {
	fields := fieldpath.NewSet()
	for _, name := range ignored.Fields {
		fields.Insert(fieldpath.MakePathOrDie(name))
	}
	for _, name := range ignored.Metadata {
		fields.Insert(fieldpath.MakePathOrDie("metadata", name))
	}
	return fieldpath.NewExcludeSetFilter(fields)
}

// sameForm reads every version's fields as if they had the same names.
type sameForm struct{}

func (sameForm) Convert(v *typed.TypedValue, _ fieldpath.APIVersion) (*typed.TypedValue, error) {
	return v, nil
}
func (sameForm) IsMissingVersionError(error) bool { return false }

// otherForms reads every version's fields by that version's names.
type otherForms struct{ *application }

func (o otherForms) Convert(v *typed.TypedValue, version fieldpath.APIVersion) (*typed.TypedValue, error) {
	obj, ok := v.AsValue().Unstructured().(map[string]any)
	if said := tree.Str(obj, "apiVersion"); !ok || said == "" || said == string(version) {
		return v, nil // an object that says nothing says it in every version
	}
	converted, of, err := o.w.Convert(tree.CopyMap(obj), string(version))
	if err != nil {
		o.unconverted = err
		return nil, err
	}
	return of.parser().FromUnstructured(converted, typed.AllowDuplicates)
}

func (otherForms) IsMissingVersionError(error) bool { return false }

func toSet(n node) (*fieldpath.Set, error) {
	text, err := json.Marshal(n)
	if err != nil {
		return nil, err
	}
	s := fieldpath.NewSet()
	return s, s.FromJSON(bytes.NewReader(text))
}

func fromSet(s *fieldpath.Set) (node, error) {
	if s.Empty() {
		return nil, nil
	}
	text, err := s.ToJSON()
	if err != nil {
		return nil, err
	}
	var n node
	return n, json.Unmarshal(text, &n)
}
