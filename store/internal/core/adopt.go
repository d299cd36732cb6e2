package core

import (
	"fmt"

	"github.com/setpoint-dev/setpoint/store"
	"github.com/setpoint-dev/setpoint/store/internal/btree"
)

// This file is for engines that are not the only writer: what they publish was decided elsewhere.

// CheckKeys refuses ops of which two have the same key.
func CheckKeys(ops []store.Op) error {
	if key, ok := twice(ops); ok {
		return fmt.Errorf("store: a commit names %s twice, it may name a key once", key)
	}
	return nil
}

// CheckExpect returns a *store.ConflictError if what is found is not what an op expects.
func CheckExpect(op *store.Op, found *store.Entry) error {
	if op.Expect == store.Any {
		return nil
	}
	if (found == nil && op.Expect != 0) || (found != nil && found.Revision != op.Expect) {
		return &store.ConflictError{Key: op.Key, Expected: op.Expect, Found: found}
	}
	return nil
}

// Changes says whether an op would change what is found.
func Changes(op *store.Op, found *store.Entry) bool {
	return op.Type == store.Put && (found == nil || !unchanged(found, op)) ||
		op.Type == store.Delete && found != nil
}

// Lookup returns what a key has in the working state, or nil.
func (c *Core) Lookup(key store.Key) *store.Entry {
	entry, _ := c.tree(key.Resource).Get(key.Path)
	return entry
}

// Adopt is Replay of a change whose Value is not stamped yet, and returns the new entry.
func (c *Core) Adopt(ch Change, revisionAt int) (*store.Entry, error) {
	ch.Value = stamp(ch.Value, revisionAt, ch.Revision)
	if err := c.Replay(ch); err != nil {
		return nil, err
	}
	return c.pending[len(c.pending)-1].event.Entry, nil
}

// Stored returns the entry of a value that is not stamped yet, for Reset.
func Stored(key store.Key, value []byte, revisionAt int, revision, created store.Revision) *store.Entry {
	return &store.Entry{Key: key, Value: stamp(value, revisionAt, revision), Revision: revision, Created: created}
}

// Reset replaces the state by that of a revision, between which and the published one nobody knows
// what happened. It is published at once: the history begins there, every watch is told that it has
// missed something, and what was decided is forgotten.
func (c *Core) Reset(at store.Revision, entries []*store.Entry) {
	c.Rollback()
	r := c.reader
	r.compacted.Store(int64(at))
	for _, res := range *r.resources.Load() {
		res.skip()
	}
	for i := range c.trees {
		c.trees[i], c.touched[i] = btree.Tree[*store.Entry]{}, true
	}
	for _, entry := range entries {
		c.Load(entry)
	}
	c.revision = at
	c.publishState()
	r.past.compact(at)
	c.marks = c.marks[:0]
	c.weigh()
}

// skip empties the log and leaves out a number, which no watch has come past.
func (res *resource) skip() {
	end := res.log.Load().end() + 1
	res.log.Store(&eventLog{base: end, first: end})
}
