package cache

import (
	"fmt"
	"maps"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/setpoint-dev/setpoint/cache/wire"
)

// OwnerField is a field that every kind can be listed by: the uid of an owner.
//
//	reader.List(ctx, &pods, client.MatchingFields{cache.OwnerField: string(owner.UID)})
const OwnerField = "metadata.ownerReferences.uid"

// ControllerField is a field that every kind can be listed by: the uid of the one owner that is the
// controller, or "" for what has none.
const ControllerField = "metadata.ownerReferences.controller"

// ControllerUID returns what ControllerField is of an object.
func ControllerUID(obj client.Object) []string {
	if ref := metav1.GetControllerOfNoCopy(obj); ref != nil {
		return []string{string(ref.UID)}
	}
	return []string{""}
}

// labelIndexesMax bounds the labels of a kind that get an index when a List first selects by them.
const labelIndexesMax = 8

// lookup is a value in an index.
type lookup struct {
	index *index
	value string
}

// search returns the rows that a list asks for, in no order. It goes through the smallest set that
// has them all.
func (t *table) search(o *client.ListOptions, lookups []lookup) []*row {
	var smallest map[*row]struct{}
	for i, l := range lookups {
		if set := l.index.sets[l.value]; i == 0 || len(set) < len(smallest) {
			smallest = set
		}
	}
	var rows []*row
	take := func(at *row) {
		if at.matches(o, lookups) {
			rows = append(rows, at)
		}
	}
	if len(lookups) > 0 {
		for at := range smallest {
			take(at)
		}
		return rows
	}
	for _, at := range t.rows {
		take(at)
	}
	return rows
}

func (at *row) matches(o *client.ListOptions, lookups []lookup) bool {
	if o.Namespace != "" && at.Namespace != o.Namespace {
		return false
	}
	for _, l := range lookups {
		if _, ok := l.index.sets[l.value][at]; !ok {
			return false
		}
	}
	return o.LabelSelector == nil || o.LabelSelector.Empty() || o.LabelSelector.Matches(wire.Labels{Head: &at.Head})
}

// lookups says which indexes answer a list, making those that can be made on demand.
func (v *view) lookups(o *client.ListOptions) ([]lookup, error) {
	var found []lookup
	if o.Namespace != "" {
		found = append(found, lookup{v.feed.indexed(namespaceIndex), o.Namespace})
	}
	if o.FieldSelector != nil {
		for _, r := range o.FieldSelector.Requirements() {
			l, err := v.lookupField(r)
			if err != nil {
				return nil, err
			}
			found = append(found, l)
		}
	}
	if o.LabelSelector != nil {
		requirements, _ := o.LabelSelector.Requirements()
		for _, r := range requirements {
			if l, ok := v.feed.lookupLabel(r); ok {
				found = append(found, l)
			}
		}
	}
	return found, nil
}

func (v *view) lookupField(r fields.Requirement) (lookup, error) {
	if r.Operator != selection.Equals && r.Operator != selection.DoubleEquals {
		return lookup{}, fmt.Errorf("field selector %s%s%s: non-exact field matches are not supported by the cache",
			r.Field, r.Operator, r.Value)
	}
	if ix := v.given(fieldIndex(r.Field)); ix != nil {
		return lookup{ix, r.Value}, nil
	}
	if ix := v.feed.indexed(fieldIndex(r.Field)); ix != nil {
		return lookup{ix, r.Value}, nil
	}
	return lookup{}, fmt.Errorf("field selector %s: Index with name %s does not exist; allowed are "+
		"metadata.name, metadata.namespace, %s, %s and what IndexField has indexed",
		r.Field, fieldIndex(r.Field), OwnerField, ControllerField)
}

// given returns the index of a name by a function that reads the view's form, or another form.
func (v *view) given(name string) *index {
	f := v.feed
	f.mu.RLock()
	defer f.mu.RUnlock()
	for _, of := range []form{v.form, typed, loose, heads} {
		if ix := f.table.indexes[indexID{name, true, of}]; ix != nil {
			return ix
		}
	}
	return nil
}

func (f *feed) lookupLabel(r labels.Requirement) (lookup, bool) {
	single := r.Operator() == selection.Equals || r.Operator() == selection.DoubleEquals || r.Operator() == selection.In
	value := r.ValuesUnsorted()
	if !single || len(value) != 1 {
		return lookup{}, false
	}
	ix := f.indexed(labelIndex(r.Key()))
	return lookup{ix, value[0]}, ix != nil
}

func fieldIndex(field string) string { return "field:" + field }
func labelIndex(label string) string { return "label:" + label }

var namespaceIndex = fieldIndex("metadata.namespace")

// indexed returns an index of what every record says of itself, made now if it is the first time;
// nil if there is no such.
func (f *feed) indexed(name string) *index {
	id := indexID{name: name}
	f.mu.RLock()
	ix := f.table.indexes[id]
	f.mu.RUnlock()
	if ix != nil {
		return ix
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	values := f.table.valuesOf(name)
	if values == nil {
		return nil
	}
	return f.table.addIndex(id, newIndex(values))
}

func (t *table) valuesOf(name string) func(*record) []string {
	if label, ok := strings.CutPrefix(name, labelIndex("")); ok {
		return t.labelValues(label)
	}
	switch name {
	case fieldIndex("metadata.name"):
		return func(rec *record) []string { return []string{rec.Name} }
	case namespaceIndex:
		return func(rec *record) []string { return []string{rec.Namespace} }
	case fieldIndex(OwnerField):
		return func(rec *record) []string { return rec.Owners() }
	case fieldIndex(ControllerField):
		return func(rec *record) []string { return []string{rec.Controller} }
	}
	return nil
}

func (t *table) labelValues(label string) func(*record) []string {
	n := 0
	for id := range maps.Keys(t.indexes) {
		if strings.HasPrefix(id.name, labelIndex("")) {
			n++
		}
	}
	if n >= labelIndexesMax {
		return nil
	}
	return func(rec *record) []string {
		if v, ok := rec.Label(label); ok {
			return []string{v}
		}
		return nil
	}
}
