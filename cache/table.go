package cache

import (
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// A table holds the objects of one kind as of one revision, with indexes, and says what each step
// changed. It has no locks and knows no time: a feed steps it.
type table struct {
	objects  map[types.NamespacedName]client.Object
	indexes  map[string]*index
	revision int64
}

type changeType uint8

const (
	added changeType = iota + 1
	updated
	deleted
	synced // not a change: what was there at first has been told
)

// change is what handlers are told of one object.
type change struct {
	typ      changeType
	key      types.NamespacedName
	old, new client.Object
	initial  bool // added by the first list
	missed   bool // the deletion itself was not seen, so old may not be the last state
}

func newTable() *table {
	return &table{
		objects: make(map[types.NamespacedName]client.Object),
		indexes: make(map[string]*index),
	}
}

func revisionOf(obj client.Object) int64 { return parseRevision(obj.GetResourceVersion()) }

// parseRevision returns zero, "no revision", for what is not one.
func parseRevision(s string) int64 {
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// apply takes in one event of a watch. What is older than what is held changes nothing.
func (t *table) apply(typ watch.EventType, obj client.Object) []change {
	rev := revisionOf(obj)
	t.revision = max(t.revision, rev)
	if typ != watch.Deleted {
		return t.put(obj, false)
	}
	key := client.ObjectKeyFromObject(obj)
	held, ok := t.objects[key]
	switch {
	case !ok, rev < revisionOf(held):
		return nil
	case held.GetUID() != obj.GetUID():
		return []change{t.remove(key, held, true)}
	}
	c := t.remove(key, held, false)
	c.old = obj // the last state, as the event has it
	return []change{c}
}

// put takes in the state of one object. An object of another uid is another object: the one that
// was held has been deleted, whether that was seen or not.
func (t *table) put(obj client.Object, initial bool) []change {
	key := client.ObjectKeyFromObject(obj)
	held, ok := t.objects[key]
	var changes []change
	switch {
	case !ok:
	case held.GetUID() != obj.GetUID():
		if revisionOf(obj) < revisionOf(held) {
			return nil
		}
		changes = append(changes, t.remove(key, held, true))
	case obj.GetResourceVersion() == held.GetResourceVersion(), revisionOf(obj) < revisionOf(held):
		return nil
	default:
		t.set(key, held, obj)
		return []change{{typ: updated, key: key, old: held, new: obj}}
	}
	t.set(key, nil, obj)
	return append(changes, change{typ: added, key: key, new: obj, initial: initial})
}

// replace takes in a whole list. What is held and not in it has been deleted unseen.
func (t *table) replace(objects []client.Object, revision int64, initial bool) []change {
	listed := make(map[types.NamespacedName]bool, len(objects))
	for _, obj := range objects {
		listed[client.ObjectKeyFromObject(obj)] = true
	}
	var gone []types.NamespacedName
	for key := range t.objects {
		if !listed[key] {
			gone = append(gone, key)
		}
	}
	slices.SortFunc(gone, compareKeys)
	var changes []change
	for _, key := range gone {
		changes = append(changes, t.remove(key, t.objects[key], true))
	}
	for _, obj := range objects {
		changes = append(changes, t.put(obj, initial)...)
	}
	t.revision = max(t.revision, revision)
	return changes
}

func (t *table) set(key types.NamespacedName, old, obj client.Object) {
	t.objects[key] = obj
	for _, ix := range t.indexes {
		ix.change(key, old, obj)
	}
}

func (t *table) remove(key types.NamespacedName, held client.Object, missed bool) change {
	delete(t.objects, key)
	for _, ix := range t.indexes {
		ix.change(key, held, nil)
	}
	return change{typ: deleted, key: key, old: held, missed: missed}
}

// addIndex makes an index, unless there is one of the name.
func (t *table) addIndex(name string, values func(client.Object) []string) *index {
	if ix := t.indexes[name]; ix != nil {
		return ix
	}
	ix := &index{values: values, sets: make(map[string]map[types.NamespacedName]client.Object)}
	for key, obj := range t.objects {
		ix.change(key, nil, obj)
	}
	t.indexes[name] = ix
	return ix
}

// index finds objects by the values that a function reads from them.
type index struct {
	values func(client.Object) []string
	sets   map[string]map[types.NamespacedName]client.Object
}

// change moves an object from the values that old has to those that obj has; either may be nil.
func (ix *index) change(key types.NamespacedName, old, obj client.Object) {
	var before, after []string
	if old != nil {
		before = ix.values(old)
	}
	if obj != nil {
		after = ix.values(obj)
	}
	for _, v := range before {
		if set := ix.sets[v]; !slices.Contains(after, v) && set != nil {
			if delete(set, key); len(set) == 0 {
				delete(ix.sets, v)
			}
		}
	}
	for _, v := range after {
		set := ix.sets[v]
		if set == nil {
			set = make(map[types.NamespacedName]client.Object)
			ix.sets[v] = set
		}
		set[key] = obj
	}
}

func compareKeys(a, b types.NamespacedName) int {
	if c := strings.Compare(a.Namespace, b.Namespace); c != 0 {
		return c
	}
	return strings.Compare(a.Name, b.Name)
}
