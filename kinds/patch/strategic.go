package patch

import (
	"errors"
	"fmt"
	"reflect"
	"strings"

	"k8s.io/apimachinery/pkg/util/strategicpatch"

	"github.com/setpoint-dev/setpoint/kinds/schema"
)

// Strategic applies a strategic merge patch: lists are merged by key where the type says so, and
// the directives $patch, $retainKeys, $setElementOrder and $deleteFromPrimitiveList are obeyed.
// Possible errors: ErrAmbiguous, ErrUnordered, and those of apimachinery's strategicpatch and mergepatch.
func Strategic(obj, patch map[string]any, t *schema.Type) (map[string]any, error) {
	if err := checkKeys(obj, patch, t, ""); err != nil {
		return nil, err
	}
	return strategicpatch.StrategicMergeMapPatchUsingLookupPatchMeta(obj, patch, typeMeta{t})
}

// typeMeta tells strategicpatch what a type says about merging. Where nothing is known, inside of
// fields that hold anything, maps are merged and lists replaced.
type typeMeta struct{ t *schema.Type }

var _ strategicpatch.LookupPatchMeta = typeMeta{}

// Name is the Go kind of the type, as upstream's messages have it.
func (m typeMeta) Name() string {
	switch m.t.Kind {
	case schema.Struct:
		return "struct"
	case schema.Map:
		return "map"
	case schema.List:
		return "slice"
	}
	return m.t.GoName
}

func (m typeMeta) LookupPatchMetadataForStruct(key string) (strategicpatch.LookupPatchMeta, strategicpatch.PatchMeta, error) {
	var meta strategicpatch.PatchMeta
	child, f := m.child(key)
	if f != nil {
		meta.SetPatchStrategies(f.PatchStrategy)
		meta.SetPatchMergeKey(f.PatchMergeKey)
	}
	return typeMeta{child}, meta, nil
}

func (m typeMeta) LookupPatchMetadataForSlice(key string) (strategicpatch.LookupPatchMeta, strategicpatch.PatchMeta, error) {
	list, meta, err := m.LookupPatchMetadataForStruct(key)
	if err != nil {
		return nil, meta, err
	}
	switch t := list.(typeMeta).t; {
	case t.Kind == schema.List && t.Elem.Kind == schema.List:
		return nil, meta, errors.New("unexpected list of lists")
	case t.Kind == schema.List:
		return typeMeta{t.Elem}, meta, nil
	case t.Kind == schema.Any:
		return list, meta, nil
	default:
		return nil, meta, fmt.Errorf("expected a list for %q, but its type is %s", key, t.GoName)
	}
}

var anything = &schema.Type{Kind: schema.Any, GoName: "interface {}"}

// child returns the type of a member, and the field that declares it, if one does.
func (m typeMeta) child(key string) (*schema.Type, *schema.Field) {
	switch m.t.Kind {
	case schema.Struct:
		if f := m.t.Field(key); f != nil {
			return f.Type, f
		}
	case schema.Map:
		return m.t.Elem, nil
	}
	return anything, nil
}

const setElementOrder = "$setElementOrder/"

// unordered says whether a member is a list of structs that no key tells apart.
func (m typeMeta) unordered(key string) bool {
	list, f := m.child(key)
	return list.Kind == schema.List && list.Elem.Kind == schema.Struct && (f == nil || f.PatchMergeKey == "")
}

// checkKeys refuses a patch that names a list item by a key that several items have: to change one
// of them, or all, would lose what the others say. It refuses an order of items without keys, too, of
// which strategicpatch would look for keys where there are none.
func checkKeys(obj, patch map[string]any, t *schema.Type, path string) error {
	m := typeMeta{t}
	for key, p := range patch {
		childPath := path + "." + key
		child, f := m.child(key)
		if list, ok := strings.CutPrefix(key, setElementOrder); ok && m.unordered(list) {
			return fmt.Errorf("%w: %s", ErrUnordered, childPath[1:])
		}
		switch p := p.(type) {
		case map[string]any:
			old, _ := obj[key].(map[string]any)
			if err := checkKeys(old, p, child, childPath); err != nil {
				return err
			}
		case []any:
			old, ok := obj[key].([]any)
			if !ok || f == nil || f.PatchMergeKey == "" || child.Kind != schema.List {
				continue
			}
			if err := checkItems(old, p, f.PatchMergeKey, child.Elem, childPath); err != nil {
				return err
			}
		}
	}
	return nil
}

func checkItems(old, patch []any, mergeKey string, elem *schema.Type, path string) error {
	for _, p := range patch {
		item, ok := p.(map[string]any)
		if !ok {
			continue // strategicpatch says what is wrong
		}
		if item["$patch"] == "replace" && item[mergeKey] == nil {
			return nil // the whole list is replaced
		}
		key, ok := item[mergeKey]
		if !ok {
			continue
		}
		same := withKey(old, mergeKey, key)
		if len(same) > 1 || len(withKey(patch, mergeKey, key)) > 1 {
			return fmt.Errorf("%w: %s has several items whose %s is %v; replace the list, or give them different keys",
				ErrAmbiguous, path[1:], mergeKey, key)
		}
		if len(same) == 1 {
			if err := checkKeys(same[0], item, elem, fmt.Sprintf("%s[%s=%v]", path, mergeKey, key)); err != nil {
				return err
			}
		}
	}
	return nil
}

func withKey(list []any, mergeKey string, value any) (same []map[string]any) {
	for _, v := range list {
		if item, ok := v.(map[string]any); ok && reflect.DeepEqual(item[mergeKey], value) {
			same = append(same, item)
		}
	}
	return same
}
