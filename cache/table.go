package cache

import (
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
)

// A table holds the objects of one kind, with indexes, and says what each step changed. It has no
// locks and knows no time: a feed steps it.
type table struct {
	rows    map[types.NamespacedName]*row
	indexes map[indexID]*index
}

// A row is the place of one object. Indexes point to it, whatever revision stands in it.
type row struct{ *record }

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
	old, new *record
	bulk     bool // told of because it is there, not because something happened
	missed   bool // the deletion itself was not seen, so old may not be the last state
}

func newTable() *table {
	return &table{
		rows:    make(map[types.NamespacedName]*row),
		indexes: make(map[indexID]*index),
	}
}

// parseRevision returns zero, "no revision", for what is not one.
func parseRevision(s string) int64 {
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// apply takes in one event of a watch. What is older than what is held changes nothing.
func (t *table) apply(typ watch.EventType, rec *record) []change {
	if typ != watch.Deleted {
		return t.put(rec)
	}
	row := t.rows[rec.key]
	switch {
	case row == nil, rec.revision < row.revision:
		return nil
	case row.UID != rec.UID:
		return []change{t.remove(row, true)}
	}
	c := t.remove(row, false)
	c.old = rec // the last state, as the event has it
	return []change{c}
}

// put takes in the state of one object. An object of another uid is another object: the one that
// was held has been deleted, whether that was seen or not.
func (t *table) put(rec *record) []change {
	at := t.rows[rec.key]
	var changes []change
	switch {
	case at == nil:
	case at.UID != rec.UID:
		if rec.revision < at.revision {
			return nil
		}
		changes = append(changes, t.remove(at, true))
	case rec.Version == at.Version:
		if rec.whole && !at.whole {
			t.set(at, rec) // the same, with more of it
		}
		return nil
	case rec.revision < at.revision:
		return nil
	default:
		old := t.set(at, rec)
		return []change{{typ: updated, key: rec.key, old: old, new: rec}}
	}
	t.set(&row{}, rec)
	return append(changes, change{typ: added, key: rec.key, new: rec})
}

// replace takes in a whole list of a part of what is held. What is held of the part, and is not in
// the list, has been deleted unseen.
func (t *table) replace(records []*record, part func(namespace string) bool) []change {
	listed := make(map[types.NamespacedName]bool, len(records))
	for _, rec := range records {
		listed[rec.key] = true
	}
	var gone []*row
	for key, row := range t.rows {
		if !listed[key] && part(key.Namespace) {
			gone = append(gone, row)
		}
	}
	slices.SortFunc(gone, compareRows)
	var changes []change
	for _, row := range gone {
		changes = append(changes, t.remove(row, true))
	}
	for _, rec := range records {
		changes = append(changes, t.put(rec)...)
	}
	return changes
}

// set puts a record into a row, and returns what was in it.
func (t *table) set(at *row, rec *record) (old *record) {
	old, at.record = at.record, rec
	t.rows[rec.key] = at
	for _, ix := range t.indexes {
		ix.change(at, old, rec)
	}
	return old
}

func (t *table) remove(at *row, missed bool) change {
	held := at.record
	delete(t.rows, held.key)
	for _, ix := range t.indexes {
		ix.change(at, held, nil)
	}
	return change{typ: deleted, key: held.key, old: held, missed: missed}
}

// records returns what is held, in order.
func (t *table) records() []*record {
	all := make([]*record, 0, len(t.rows))
	for _, row := range t.rows {
		all = append(all, row.record)
	}
	slices.SortFunc(all, func(a, b *record) int { return compareKeys(a.key, b.key) })
	return all
}

// indexID names an index: by a function that was given and reads a form, or of something that every
// record says of itself.
type indexID struct {
	name  string
	given bool
	of    form // what a given function reads
}

// addIndex makes an index, unless there is one of the name.
func (t *table) addIndex(id indexID, ix *index) *index {
	if known := t.indexes[id]; known != nil {
		return known
	}
	for _, row := range t.rows {
		ix.change(row, nil, row.record)
	}
	t.indexes[id] = ix
	return ix
}

// index finds objects by values that are read from them.
type index struct {
	values func(*record) []string
	sets   map[string]map[*row]struct{}
	// told are the values of each row, where it costs too much to read them again.
	told map[*row][]string
}

func newIndex(values func(*record) []string) *index {
	return &index{values: values, sets: make(map[string]map[*row]struct{})}
}

// newCostlyIndex returns an index whose values are read from an object's decoded form.
func newCostlyIndex(values func(*record) []string) *index {
	ix := newIndex(values)
	ix.told = make(map[*row][]string)
	return ix
}

// change moves a row from the values that old has to those that rec has; either may be nil.
func (ix *index) change(at *row, old, rec *record) {
	var before, after []string
	if old != nil {
		if ix.told != nil {
			before = ix.told[at]
		} else {
			before = ix.values(old)
		}
	}
	if rec != nil {
		after = ix.values(rec)
	}
	for _, v := range before {
		if set := ix.sets[v]; !slices.Contains(after, v) && set != nil {
			if delete(set, at); len(set) == 0 {
				delete(ix.sets, v)
			}
		}
	}
	for _, v := range after {
		set := ix.sets[v]
		if set == nil {
			set = make(map[*row]struct{})
			ix.sets[v] = set
		}
		set[at] = struct{}{}
	}
	switch {
	case ix.told == nil:
	case len(after) > 0:
		ix.told[at] = after
	default:
		delete(ix.told, at)
	}
}

func compareRows(a, b *row) int { return compareKeys(a.key, b.key) }

func compareKeys(a, b types.NamespacedName) int {
	if c := strings.Compare(a.Namespace, b.Namespace); c != 0 {
		return c
	}
	return strings.Compare(a.Name, b.Name)
}
