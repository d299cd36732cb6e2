package cache

import "k8s.io/apimachinery/pkg/types"

// backlogMin is the length below which a backlog is not compacted: a handler that keeps up sees
// every change.
const backlogMin = 1024

// A backlog holds the changes that one handler has still to be told. It is bounded by the number of
// objects: when it grows beyond, what a slow handler would be told of one object is told as one
// change, from the state it knows to the newest.
type backlog struct {
	changes []change
	limit   int
}

func (b *backlog) push(changes ...change) {
	b.changes = append(b.changes, changes...)
	if len(b.changes) > max(b.limit, backlogMin) {
		b.changes = compact(b.changes)
		b.limit = 2 * len(b.changes)
	}
}

// take returns everything, and leaves spare for the next pushes.
func (b *backlog) take(spare []change) []change {
	taken := b.changes
	b.changes, b.limit = spare[:0], 0
	return taken
}

// compact merges the changes of each object into at most two, a deletion and an addition, in the
// place of its last one.
func compact(changes []change) []change {
	merged := make(map[types.NamespacedName][]change)
	last := make(map[types.NamespacedName]int)
	for i, c := range changes {
		if c.typ != synced {
			merged[c.key] = merge(merged[c.key], c)
			last[c.key] = i
		}
	}
	out := make([]change, 0, 2*len(merged)+1)
	for i, c := range changes {
		switch {
		case c.typ == synced:
			out = append(out, c)
		case last[c.key] == i:
			out = append(out, merged[c.key]...)
		}
	}
	return out
}

// merge adds a change of an object to what is to be told of it.
func merge(told []change, c change) []change {
	if len(told) == 0 {
		return []change{c}
	}
	prev := told[len(told)-1]
	switch {
	case c.typ == updated && prev.typ != deleted: // added or updated, then updated
		prev.new = c.new
		return append(told[:len(told)-1], prev)
	case c.typ == deleted && prev.typ == added: // it came and went
		return told[:len(told)-1]
	case c.typ == deleted && prev.typ == updated:
		return append(told[:len(told)-1], c)
	default: // deleted, then added
		return append(told, c)
	}
}
