package checker

import (
	"cmp"
	"errors"
	"slices"
	"strings"

	"github.com/setpoint-dev/setpoint/store"
)

// judge says whether a record keeps the promises.
func judge(rec *record) error {
	resolve(rec)
	past, err := newTimeline(rec.operations)
	if err != nil {
		return err
	}
	for i := range rec.watches {
		if err := past.judgeWatch(&rec.watches[i]); err != nil {
			return err
		}
	}
	for i := range rec.operations {
		if err := past.judgePast(&rec.operations[i]); err != nil {
			return err
		}
	}
	return linearizable(rec.operations)
}

// resolve finds out which of the commits without an answer have happened: somebody saw what they
// wrote. The witnesses see everything.
func resolve(rec *record) {
	seen := map[string]store.Revision{} // where each value was written first
	for i := range rec.watches {
		for _, call := range rec.watches[i].calls {
			for _, ev := range call.events {
				if at := seen[ev.now.value]; at == 0 || ev.now.revision < at {
					seen[ev.now.value] = ev.now.revision
				}
			}
		}
	}
	kept := rec.operations[:0]
	for _, o := range rec.operations {
		if o.lost {
			happened := slices.IndexFunc(o.fresh, func(value string) bool { return seen[value] > 0 })
			if happened < 0 {
				continue
			}
			o.result = store.Result{Revision: seen[o.fresh[happened]], Changed: true}
		}
		kept = append(kept, o)
	}
	rec.operations = kept
}

// timeline is every state there was, by what the commits say.
type timeline struct {
	states []world    // in order of revision; the first is the empty one
	events []observed // all, in order
}

func newTimeline(operations []operation) (*timeline, error) {
	var commits []*operation
	for i := range operations {
		if o := &operations[i]; o.ops != nil && o.err == nil && o.result.Changed || o.lost {
			commits = append(commits, o)
		}
	}
	slices.SortFunc(commits, func(a, b *operation) int { return cmp.Compare(a.result.Revision, b.result.Revision) })
	t := &timeline{states: []world{{}}}
	for _, o := range commits {
		was, revision := t.states[len(t.states)-1], o.result.Revision
		if revision <= was.revision {
			return nil, violation("one order", "two commits have revision %d", revision)
		}
		now, changed, conflict := was.apply(o.ops, revision)
		if conflict || !changed {
			return nil, violation("linearizable",
				"a commit of revision %d: conflict %v, change %v, on the state %v", revision, conflict, changed, was)
		}
		t.states = append(t.states, now)
		for i := range o.ops {
			if op := &o.ops[i]; now.cells[keyIndex(op.Key)] != was.cells[keyIndex(op.Key)] {
				t.events = append(t.events, expected(op, was.cells[keyIndex(op.Key)], revision))
			}
		}
	}
	return t, nil
}

// expected is the event that an op makes.
func expected(op *store.Op, prev cell, revision store.Revision) observed {
	now := cell{valueOf(op), revision, revision}
	if prev != (cell{}) {
		now.created = prev.created
	}
	return observed{op.Type, op.Key, now, prev}
}

// at returns the state as of a revision.
func (t *timeline) at(revision store.Revision) world {
	i, found := slices.BinarySearchFunc(t.states, revision, func(w world, r store.Revision) int {
		return cmp.Compare(w.revision, r)
	})
	if !found {
		i--
	}
	return t.states[i]
}

// judgePast judges a read of the past.
func (t *timeline) judgePast(o *operation) error {
	if o.ops != nil || o.at == 0 {
		return nil
	}
	switch {
	case errors.Is(o.err, store.ErrCompacted) && o.compacting > o.at:
		return nil
	case o.err != nil:
		return violation("past", "a read at %d, which is there and was not compacted: %v", o.at, o.err)
	case o.seen.revision != o.at || o.seen.cells != t.at(o.at).cells:
		return violation("past", "a read at %d shows the state %v, not %v", o.at, o.seen, t.at(o.at))
	}
	return nil
}

// judgeWatch walks through what a watch showed beside what there was to show.
func (t *timeline) judgeWatch(w *watchRecord) error {
	var due []observed
	for _, ev := range t.events {
		if ev.now.revision > w.after && ev.key.Resource == w.resource && strings.HasPrefix(ev.key.Path, w.prefix) {
			due = append(due, ev)
		}
	}
	told, last := w.after, w.after
	shown := map[store.Key]store.Revision{}
	for _, call := range w.calls {
		for i, ev := range call.events {
			revision := ev.now.revision
			switch {
			case ev.key.Resource != w.resource || !strings.HasPrefix(ev.key.Path, w.prefix):
				return violation("filtered", "%s of %s/%s shows %s", w.name, w.resource, w.prefix, ev.key)
			case shown[ev.key] == revision:
				return violation("unique", "%s shows %s at %d twice", w.name, ev.key, revision)
			case revision < last || revision <= w.after:
				return violation("ordered", "%s shows %d after %d", w.name, revision, last)
			case revision == last && i == 0:
				return violation("atomic", "%s shows the events of %d in two calls", w.name, revision)
			case revision <= told:
				return violation("bookmarks", "%s shows an event of %d and had said that it is at %d", w.name, revision, told)
			case len(due) == 0 || due[0].now.revision != revision || due[0].key != ev.key:
				return t.missing(w, due, ev, last)
			case due[0] != ev:
				return violation("faithful", "%s shows %+v, which was %+v", w.name, ev, due[0])
			}
			shown[ev.key], last, due = revision, revision, due[1:]
		}
		if told = call.told; told < last {
			return violation("bookmarks", "%s says that it is at %d and has shown %d", w.name, told, last)
		}
		if len(due) > 0 && due[0].now.revision == last {
			return violation("atomic", "%s shows a part of revision %d, without %s", w.name, last, due[0].key)
		}
		if len(due) > 0 && due[0].now.revision <= told {
			if len(call.events) > 0 && told == last {
				return violation("gap-free", "%s shows %d and not %s at %d", w.name, last, due[0].key, due[0].now.revision)
			}
			return violation("bookmarks", "%s says that it is at %d and has not shown %s at %d",
				w.name, told, due[0].key, due[0].now.revision)
		}
	}
	if w.err != nil && !(errors.Is(w.err, store.ErrCompacted) && w.compacting > told) {
		return violation("resumable", "%s ends at %d, and nothing after that was compacted: %v", w.name, told, w.err)
	}
	if w.complete && len(due) > 0 {
		return violation("gap-free", "%s does not show %s at %d", w.name, due[0].key, due[0].now.revision)
	}
	return nil
}

// missing says what is wrong with an event that is not the next one.
func (t *timeline) missing(w *watchRecord, due []observed, ev observed, last store.Revision) error {
	for _, d := range due {
		if d.now.revision != ev.now.revision || d.key != ev.key {
			continue
		}
		if due[0].now.revision == last || due[0].now.revision == ev.now.revision {
			return violation("atomic", "%s shows a part of revision %d, without %s", w.name, due[0].now.revision, due[0].key)
		}
		return violation("gap-free", "%s shows %d after %d, without %s at %d",
			w.name, ev.now.revision, last, due[0].key, due[0].now.revision)
	}
	return violation("faithful", "%s shows %+v, which no commit made", w.name, ev)
}
