package cache

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apimachinery/pkg/types"
	crcache "sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache/cacheapi"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// OwnerField is a field that every kind can be listed by: the uid of an owner.
//
//	reader.List(ctx, &pods, client.MatchingFields{cache.OwnerField: string(owner.UID)})
const OwnerField = "metadata.ownerReferences.uid"

// ControllerField is a field that every kind can be listed by: the uid of the one owner that is the
// controller, or "" for what has none.
const ControllerField = "metadata.ownerReferences.controller"

// labelIndexesMax bounds the labels of a kind that get an index when a List first selects by them.
const labelIndexesMax = 8

// Get reads an object. The first Get of a kind waits for its first list.
func (c *Cache) Get(ctx context.Context, key client.ObjectKey, out client.Object, opts ...client.GetOption) error {
	f, err := c.readable(ctx, out)
	if err != nil {
		return err
	}
	f.mu.RLock()
	obj, ok := f.table.objects[key]
	f.mu.RUnlock()
	if !ok {
		// The message names the kind where a server names the resource.
		gr := schema.GroupResource{Group: f.id.gvk.Group, Resource: f.id.gvk.Kind}
		return apierrors.NewNotFound(gr, key.Name)
	}
	var o client.GetOptions
	o.ApplyOptions(opts)
	share := o.UnsafeDisableDeepCopy != nil && *o.UnsafeDisableDeepCopy
	if !share {
		obj = obj.DeepCopyObject().(client.Object)
	}
	if have, want := reflect.TypeOf(obj), reflect.TypeOf(out); have != want {
		return fmt.Errorf("cache: %s is held as %s, and %s was asked for", f, have, want)
	}
	reflect.ValueOf(out).Elem().Set(reflect.ValueOf(obj).Elem())
	if !share {
		out.GetObjectKind().SetGroupVersionKind(f.id.gvk)
	}
	return nil
}

// readable returns the synced feed of objects like this one.
func (c *Cache) readable(ctx context.Context, obj runtime.Object) (*feed, error) {
	if !c.isStarted() {
		return nil, &crcache.ErrCacheNotStarted{}
	}
	id, err := c.identify(obj)
	if err != nil {
		return nil, err
	}
	f, err := c.feed(id)
	if err != nil {
		return nil, err
	}
	return f, f.waitSynced(ctx)
}

// List reads the objects that the options select, in order of namespace and name. A field selector
// can name metadata.name, metadata.namespace, OwnerField, ControllerField and what IndexField has
// indexed, and only by equality. Selecting by the value of a label is a look-up too.
func (c *Cache) List(ctx context.Context, out client.ObjectList, opts ...client.ListOption) error {
	var o client.ListOptions
	o.ApplyOptions(opts)
	if o.Continue != "" {
		return errors.New("cache: lists are not paged, and have no continue token")
	}
	f, err := c.readable(ctx, out)
	if err != nil {
		return err
	}
	objects, revision, err := f.selectObjects(&o)
	if err != nil {
		return fmt.Errorf("cache: list %s: %w", f, err)
	}
	share := o.UnsafeDisableDeepCopy != nil && *o.UnsafeDisableDeepCopy
	items := make([]runtime.Object, len(objects))
	for i, obj := range objects {
		if share {
			items[i] = obj
			continue
		}
		items[i] = obj.DeepCopyObject()
		items[i].GetObjectKind().SetGroupVersionKind(f.id.gvk)
	}
	if err := meta.SetList(out, items); err != nil {
		return fmt.Errorf("cache: list %s: %w", f, err)
	}
	out.SetResourceVersion(fmt.Sprint(revision))
	return nil
}

// selectObjects finds what a list asks for.
func (f *feed) selectObjects(o *client.ListOptions) ([]client.Object, int64, error) {
	lookups, err := f.lookups(o)
	if err != nil {
		return nil, 0, err
	}
	f.mu.RLock()
	defer f.mu.RUnlock()
	candidates := f.table.objects
	for _, l := range lookups {
		if set := l.index.sets[l.value]; len(set) < len(candidates) {
			candidates = set
		}
	}
	var found []types.NamespacedName
	for key, obj := range candidates {
		if matches(key, obj, o, lookups) {
			found = append(found, key)
		}
	}
	slices.SortFunc(found, compareKeys)
	if o.Limit > 0 && int64(len(found)) > o.Limit {
		found = found[:o.Limit]
	}
	objects := make([]client.Object, len(found))
	for i, key := range found {
		objects[i] = candidates[key]
	}
	return objects, f.table.revision, nil
}

func matches(key types.NamespacedName, obj client.Object, o *client.ListOptions, lookups []lookup) bool {
	if o.Namespace != "" && key.Namespace != o.Namespace {
		return false
	}
	for _, l := range lookups {
		if _, ok := l.index.sets[l.value][key]; !ok {
			return false
		}
	}
	return o.LabelSelector == nil || o.LabelSelector.Matches(labels.Set(obj.GetLabels()))
}

// lookup is a value in an index.
type lookup struct {
	index *index
	value string
}

// lookups says which indexes answer a list, making those that can be made on demand.
func (f *feed) lookups(o *client.ListOptions) ([]lookup, error) {
	if o.Namespace == "" && o.FieldSelector == nil && o.LabelSelector == nil {
		return nil, nil
	}
	var found []lookup
	if o.Namespace != "" {
		found = append(found, lookup{f.indexed(fieldIndex("metadata.namespace")), o.Namespace})
	}
	if o.FieldSelector != nil {
		for _, r := range o.FieldSelector.Requirements() {
			l, err := f.lookupField(r)
			if err != nil {
				return nil, err
			}
			found = append(found, l)
		}
	}
	if o.LabelSelector != nil {
		requirements, _ := o.LabelSelector.Requirements()
		for _, r := range requirements {
			if l, ok := f.lookupLabel(r); ok {
				found = append(found, l)
			}
		}
	}
	return found, nil
}

func (f *feed) lookupField(r fields.Requirement) (lookup, error) {
	if r.Operator != selection.Equals && r.Operator != selection.DoubleEquals {
		return lookup{}, fmt.Errorf("field selector %s%s%s: only = is allowed", r.Field, r.Operator, r.Value)
	}
	ix := f.indexed(fieldIndex(r.Field))
	if ix == nil {
		return lookup{}, fmt.Errorf("field selector %s: allowed are metadata.name, metadata.namespace, %s, %s and what IndexField has indexed",
			r.Field, OwnerField, ControllerField)
	}
	return lookup{ix, r.Value}, nil
}

func (f *feed) lookupLabel(r labels.Requirement) (lookup, bool) {
	value, single := r.ValuesUnsorted(), r.Operator() == selection.Equals || r.Operator() == selection.DoubleEquals
	if r.Operator() == selection.In && len(value) == 1 {
		single = true
	}
	if !single || len(value) != 1 {
		return lookup{}, false
	}
	ix := f.indexed(labelIndex(r.Key()))
	return lookup{ix, value[0]}, ix != nil
}

func fieldIndex(field string) string { return "field:" + field }
func labelIndex(label string) string { return "label:" + label }

// indexed returns an index, made now if it is one of those that anybody may use; nil if there is
// none.
func (f *feed) indexed(name string) *index {
	f.mu.RLock()
	ix := f.table.indexes[name]
	f.mu.RUnlock()
	if ix != nil {
		return ix
	}
	values := f.valuesOf(name)
	if values == nil {
		return nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.table.addIndex(name, values)
}

func (f *feed) valuesOf(name string) func(client.Object) []string {
	if label, ok := strings.CutPrefix(name, labelIndex("")); ok {
		return f.labelValues(label)
	}
	switch name {
	case fieldIndex("metadata.name"):
		return func(obj client.Object) []string { return []string{obj.GetName()} }
	case fieldIndex("metadata.namespace"):
		return func(obj client.Object) []string { return []string{obj.GetNamespace()} }
	case fieldIndex(OwnerField):
		return func(obj client.Object) []string {
			var uids []string
			for _, ref := range obj.GetOwnerReferences() {
				uids = append(uids, string(ref.UID))
			}
			return uids
		}
	case fieldIndex(ControllerField):
		return ControllerUID
	}
	return nil
}

// ControllerUID returns what ControllerField is of an object.
func ControllerUID(obj client.Object) []string {
	if ref := metav1.GetControllerOfNoCopy(obj); ref != nil {
		return []string{string(ref.UID)}
	}
	return []string{""}
}

func (f *feed) labelValues(label string) func(client.Object) []string {
	f.mu.RLock()
	defer f.mu.RUnlock()
	n := 0
	for name := range maps.Keys(f.table.indexes) {
		if strings.HasPrefix(name, labelIndex("")) {
			n++
		}
	}
	if n >= labelIndexesMax {
		return nil
	}
	return func(obj client.Object) []string {
		if v, ok := obj.GetLabels()[label]; ok {
			return []string{v}
		}
		return nil
	}
}

func storeKey(key types.NamespacedName) string {
	if key.Namespace == "" {
		return key.Name
	}
	return key.Namespace + "/" + key.Name
}

func trimList(kind string) string { return strings.TrimSuffix(kind, "List") }

// blocks says whether the options want GetInformer to wait for the first list.
func blocks(opts []crcache.InformerGetOption) bool {
	var o cacheapi.InformerGetOptions
	for _, apply := range opts {
		apply(&o)
	}
	return o.BlockUntilSynced == nil || *o.BlockUntilSynced
}
