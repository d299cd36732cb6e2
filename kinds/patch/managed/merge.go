package managed

import (
	"fmt"
	"strings"

	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
	smd "sigs.k8s.io/structured-merge-diff/v6/schema"
	"sigs.k8s.io/structured-merge-diff/v6/typed"
	smdvalue "sigs.k8s.io/structured-merge-diff/v6/value"

	"github.com/setpoint-dev/setpoint/kinds/tree"
)

// Merge lays the fields of config over an object, as Apply does, and records nobody as their owner.
// What is owned as a whole cannot be changed so: somebody would lose what he did not look at. It
// changes neither, and the result shares nothing with them; it goes through Schema.Conform next.
func Merge(t *Type, obj, config map[string]any) (map[string]any, error) {
	parser := t.parser()
	over, err := parser.FromUnstructured(config)
	if err != nil {
		return nil, fmt.Errorf("failed to convert patch object to typed object: %w", err)
	}
	if whole := atomics(nil, over.Schema(), over.TypeRef(), over.AsValue()); len(whole) > 0 {
		return nil, fmt.Errorf("invalid ApplyConfiguration: may not mutate atomic arrays, maps or structs: %s",
			strings.Join(whole, ", "))
	}
	under, err := parser.FromUnstructured(obj, typed.AllowDuplicates)
	if err != nil {
		return nil, fmt.Errorf("failed to convert original object to typed object: %w", err)
	}
	merged, err := under.Merge(over)
	if err != nil {
		return nil, fmt.Errorf("failed to merge patch: %w", err)
	}
	out, ok := merged.AsValue().Unstructured().(map[string]any)
	if !ok {
		return nil, fmt.Errorf("failed to merge patch: it made no object")
	}
	return tree.CopyMap(out), nil
}

// atomics returns the paths of what is owned as a whole in a value.
func atomics(path fieldpath.Path, s *smd.Schema, ref smd.TypeRef, v smdvalue.Value) (found []string) {
	atom, ok := s.Resolve(ref)
	if !ok {
		return nil
	}
	switch {
	case v.IsMap() && atom.Map != nil:
		if atom.Map.ElementRelationship == smd.Atomic {
			found = append(found, path.String())
		}
		v.AsMap().Iterate(func(name string, member smdvalue.Value) bool {
			of := atom.Map.ElementType
			if f, ok := atom.Map.FindField(name); ok {
				of = f.Type
			}
			at := append(path.Copy(), fieldpath.PathElement{FieldName: &name})
			found = append(found, atomics(at, s, of, member)...)
			return true
		})
	case v.IsList() && atom.List != nil:
		if atom.List.ElementRelationship == smd.Atomic {
			found = append(found, path.String())
		}
		list := v.AsList()
		for i := range list.Length() {
			at := append(path.Copy(), fieldpath.PathElement{Index: &i})
			found = append(found, atomics(at, s, atom.List.ElementType, list.At(i))...)
		}
	}
	return found
}
