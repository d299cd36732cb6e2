// Package core is the store in memory: it decides commits, keeps the current state as
// copy-on-write trees and the recent history as logs of events, and serves both to readers.
//
// It has two sides. The Core is the writer's: a passive structure that one goroutine at a time
// steps through Decide, then Publish or Rollback. It has no clock and starts nothing. What is
// decided is invisible until it is published, so an engine can make it durable in between. The
// Reader is everybody's: its methods may be called concurrently, and none waits for the writer.
//
// What orders the two is one number, the published revision. The writer adds events to the logs
// and the state first and raises the number last; readers load it first and ignore what is newer.
package core

import (
	"fmt"
	"iter"
	"time"

	"github.com/setpoint-dev/setpoint/store"
	"github.com/setpoint-dev/setpoint/store/internal/btree"
)

// Change is what a commit did to one key: what an engine has to keep.
type Change struct {
	Revision store.Revision
	Type     store.EventType
	Key      store.Key
	Value    []byte // as stamped
	Origin   string
}

// Core is the writer's side.
type Core struct {
	reader  *Reader
	options Options

	// The working state: what is published and what was decided since.
	revision store.Revision
	trees    []btree.Tree[*store.Entry] // by resource.id

	// Decided and not yet published.
	pending      []decided
	pendingBytes int64  // as cost counts them
	touched      []bool // by resource.id

	marks       []mark
	publishedAt time.Time // when something was last published
	bytes       int64     // all that was ever published, as cost counts it
}

type decided struct {
	resource *resource
	event    *store.Event
}

// New returns an empty core whose history starts at the revision.
func New(options Options, at store.Revision) *Core {
	if options.HistoryAge == 0 {
		options.HistoryAge = DefaultHistoryAge
	}
	if options.HistoryBytes == 0 {
		options.HistoryBytes = DefaultHistoryBytes
	}
	c := &Core{reader: newReader(at), options: options, revision: at}
	return c
}

// Reader returns the readers' side.
func (c *Core) Reader() *Reader { return c.reader }

// Fork returns a core with the published state and no history before it. It takes constant time
// per resource, may be called beside the writer, and neither sees what the other writes.
func (r *Reader) Fork(options Options) *Core {
	s := r.state.Load()
	c := New(options, s.revision)
	for name, res := range *r.resources.Load() {
		if res.id < len(s.trees) {
			id := c.resource(name).id
			c.trees[id] = s.trees[res.id].Clone()
		}
	}
	c.publishState()
	return c
}

// Decide applies a commit to the working state. Possible errors: *store.ConflictError, and one
// for a key that is named twice; after either nothing has changed.
func (c *Core) Decide(ops []store.Op) (store.Result, error) {
	if err := c.check(ops); err != nil {
		return store.Result{}, err
	}
	next := c.revision + 1
	result := store.Result{Revision: c.revision, Entries: make([]*store.Entry, len(ops))}
	for i := range ops {
		entry, changed := c.apply(&ops[i], next)
		result.Entries[i] = entry
		if changed {
			result.Changed, result.Revision = true, next
		}
	}
	c.revision = result.Revision
	return result, nil
}

func (c *Core) check(ops []store.Op) error {
	if err := CheckKeys(ops); err != nil {
		return err
	}
	for i := range ops {
		if err := CheckExpect(&ops[i], c.Lookup(ops[i].Key)); err != nil {
			return err
		}
	}
	return nil
}

func twice(ops []store.Op) (store.Key, bool) {
	if len(ops) <= 8 {
		for i := range ops {
			for j := range i {
				if ops[i].Key == ops[j].Key {
					return ops[i].Key, true
				}
			}
		}
		return store.Key{}, false
	}
	seen := make(map[store.Key]struct{}, len(ops))
	for i := range ops {
		if _, ok := seen[ops[i].Key]; ok {
			return ops[i].Key, true
		}
		seen[ops[i].Key] = struct{}{}
	}
	return store.Key{}, false
}

// apply does one op, whose condition holds.
func (c *Core) apply(op *store.Op, next store.Revision) (entry *store.Entry, changed bool) {
	prev := c.Lookup(op.Key)
	if !Changes(op, prev) {
		return prev, false
	}
	key := op.Key
	if prev != nil {
		key = prev.Key // the strings that are alive anyway
	}
	value := stamp(op.Value, op.RevisionAt, next)
	entry = &store.Entry{Key: key, Value: value, Revision: next, Created: next}
	if prev != nil {
		entry.Created = prev.Created
	}
	if op.Memo != nil {
		entry.Memo.Store(op.Memo)
	}
	c.record(&store.Event{Type: op.Type, Entry: entry, Prev: prev, Origin: op.Origin})
	return entry, true
}

// record puts an event into the working state.
func (c *Core) record(e *store.Event) {
	res := c.resource(e.Entry.Key.Resource)
	if e.Type == store.Put {
		c.trees[res.id].Set(e.Entry.Key.Path, e.Entry)
	} else {
		c.trees[res.id].Delete(e.Entry.Key.Path)
	}
	c.touched[res.id] = true
	c.pending = append(c.pending, decided{res, e})
	c.pendingBytes += cost(e)
}

// Pending goes through what was decided and not yet published, in order.
func (c *Core) Pending() iter.Seq[Change] {
	return func(yield func(Change) bool) {
		for _, d := range c.pending {
			e := d.event
			if !yield(Change{e.Entry.Revision, e.Type, e.Entry.Key, e.Entry.Value, e.Origin}) {
				return
			}
		}
	}
}

// Replay decides a change that was decided before, in another process. It fails if the revision
// goes back.
func (c *Core) Replay(ch Change) error {
	if ch.Revision < c.revision || ch.Revision == c.reader.Revision() {
		return fmt.Errorf("store: revision %d comes after %d", ch.Revision, c.revision)
	}
	c.revision = ch.Revision
	prev := c.Lookup(ch.Key)
	entry := &store.Entry{Key: ch.Key, Value: ch.Value, Revision: ch.Revision, Created: ch.Revision}
	if prev != nil {
		entry.Key, entry.Created = prev.Key, prev.Created
	}
	c.record(&store.Event{Type: ch.Type, Entry: entry, Prev: prev, Origin: ch.Origin})
	return nil
}

// Load puts an entry into an empty core, without an event: the state at a checkpoint. It is to be
// published before anything is decided.
func (c *Core) Load(entry *store.Entry) {
	res := c.resource(entry.Key.Resource)
	c.trees[res.id].Set(entry.Key.Path, entry)
	c.touched[res.id] = true
}

// Publish makes everything decided visible and wakes those who wait for it. It also compacts the
// history to its bounds.
func (c *Core) Publish(now time.Time) {
	for _, d := range c.pending {
		d.resource.append(d.event)
	}
	c.bytes += c.pendingBytes
	c.dropPending()
	c.publishState()
	c.publishedAt = now
	c.mark(now)
	c.bound(now)
}

func (c *Core) publishState() {
	trees := make([]btree.Tree[*store.Entry], len(c.trees))
	for i := range c.trees {
		trees[i] = c.trees[i].Clone()
		if c.touched[i] {
			c.trees[i].Seal()
		}
	}
	c.reader.publish(&state{revision: c.revision, trees: trees})
	for _, res := range *c.reader.resources.Load() {
		if res.id < len(c.touched) && c.touched[res.id] {
			c.touched[res.id] = false
			res.wake()
		}
	}
}

// Rollback forgets everything that was decided and not published.
func (c *Core) Rollback() {
	s := c.reader.state.Load()
	c.revision = s.revision
	for i := range c.trees {
		c.trees[i] = btree.Tree[*store.Entry]{}
		if i < len(s.trees) {
			c.trees[i] = s.trees[i].Clone()
		}
		c.touched[i] = false
	}
	c.dropPending()
}

func (c *Core) dropPending() {
	clear(c.pending)
	c.pending, c.pendingBytes = c.pending[:0], 0
}

// Compact forgets the history before a published revision. Possible errors: store.ErrFuture.
func (c *Core) Compact(before store.Revision) error {
	if before > c.reader.Revision() {
		return store.ErrFuture
	}
	c.reader.compact(before)
	c.weigh()
	return nil
}

// tree returns the working tree of a resource, empty if the resource was never written.
func (c *Core) tree(name string) *btree.Tree[*store.Entry] {
	if res := (*c.reader.resources.Load())[name]; res != nil && res.id < len(c.trees) {
		return &c.trees[res.id]
	}
	return &btree.Tree[*store.Entry]{}
}

func (c *Core) resource(name string) *resource {
	res := c.reader.resource(name)
	for len(c.trees) <= res.id {
		c.trees = append(c.trees, btree.Tree[*store.Entry]{})
		c.touched = append(c.touched, false)
	}
	return res
}
