package apiserver

import (
	"context"
	"maps"
	"slices"
	"strings"

	"github.com/setpoint-dev/setpoint/store"
)

// committer is what a write stands on: the store, or a batch that goes into the store as a whole.
type committer interface {
	Snapshot(context.Context) (store.Snapshot, error)
	Commit(context.Context, ...store.Op) (store.Result, error)
}

// batch gathers what several writes do to one state, and does it in one commit. A write sees what
// those before it did, as if it had happened in the revision after the state. It belongs to one
// goroutine.
type batch struct {
	server *Server
	base   store.Snapshot
	next   store.Revision
	ops    map[store.Key]*staged
	order  []store.Key // of ops, as first written
	checks map[store.Key]store.Revision
	last   store.Key // of the object that was written last
}

// staged is what becomes of a key.
type staged struct {
	op    store.Op
	entry *store.Entry // as later writes see it; nil if it is deleted
	last  *store.Entry
}

func (s *Server) newBatch(r *request) (*batch, error) {
	base, err := s.store.Snapshot(r.http.Context())
	if err != nil {
		return nil, storeError(err)
	}
	return &batch{
		server: s, base: base, next: base.Revision() + 1,
		ops: map[store.Key]*staged{}, checks: map[store.Key]store.Revision{},
	}, nil
}

// Snapshot returns the state with what was done to it so far.
func (b *batch) Snapshot(context.Context) (store.Snapshot, error) { return &overlay{b}, nil }

// Commit adds changes to the batch; the first is of the object that all this is about.
func (b *batch) Commit(_ context.Context, ops ...store.Op) (store.Result, error) {
	now := overlay{b}
	for i := range ops {
		found := now.Get(ops[i].Key)
		if is := entryRevision(found); ops[i].Expect != store.Any && ops[i].Expect != is {
			return store.Result{}, &store.ConflictError{Key: ops[i].Key, Expected: ops[i].Expect, Found: found}
		}
	}
	result := store.Result{Revision: b.next, Changed: true, Entries: make([]*store.Entry, len(ops))}
	for i, op := range ops {
		if result.Entries[i] = now.Get(op.Key); op.Type == 0 {
			if b.ops[op.Key] == nil {
				b.checks[op.Key] = op.Expect
			}
			continue
		}
		result.Entries[i] = b.stage(op)
	}
	if ops[0].Type != 0 {
		b.last = ops[0].Key
	}
	return result, nil
}

func (b *batch) stage(op store.Op) *store.Entry {
	before := (&overlay{b}).Get(op.Key)
	entry := &store.Entry{
		Key: op.Key, Value: stamped(op, revisionText(b.next)), Revision: b.next, Created: b.next,
	}
	if before != nil {
		entry.Created = before.Created
	}
	if b.ops[op.Key] == nil {
		b.order = append(b.order, op.Key)
	}
	op.Expect = entryRevision(b.base.Get(op.Key))
	delete(b.checks, op.Key)
	s := &staged{op: op, entry: entry, last: entry}
	if op.Type == store.Delete {
		s.entry = nil
	}
	b.ops[op.Key] = s
	return entry
}

func entryRevision(e *store.Entry) store.Revision {
	if e == nil {
		return 0
	}
	return e.Revision
}

// commit does it all, and returns what became of each key. Possible errors: *store.ConflictError
// if the state is not what the batch was made on, and what storeError makes.
func (b *batch) commit(ctx context.Context) (store.Revision, map[store.Key]*store.Entry, error) {
	var ops []store.Op
	for _, key := range b.order {
		op := b.ops[key].op
		if op.Type == store.Delete && op.Expect == 0 {
			op.Type = 0 // made and deleted by the batch
		}
		ops = append(ops, op)
	}
	for _, key := range slices.SortedFunc(maps.Keys(b.checks), compareKeys) {
		ops = append(ops, store.Op{Key: key, Expect: b.checks[key]})
	}
	result, err := b.server.store.Commit(ctx, ops...)
	if err != nil {
		return 0, nil, commitError(err)
	}
	entries := map[store.Key]*store.Entry{}
	for i, e := range result.Entries[:len(b.order)] {
		entries[ops[i].Key] = e
	}
	return result.Revision, entries, nil
}

func compareKeys(a, b store.Key) int { return strings.Compare(a.String(), b.String()) }

// overlay is the state of a batch's base with what it did.
type overlay struct{ batch *batch }

func (o *overlay) Revision() store.Revision { return o.batch.base.Revision() }

func (o *overlay) Get(key store.Key) *store.Entry {
	if s := o.batch.ops[key]; s != nil {
		return s.entry
	}
	return o.batch.base.Get(key)
}

// List merges the two. A write that asks for it asks for all of a small part.
func (o *overlay) List(resource string, opts store.ListOptions) ([]*store.Entry, bool) {
	all := opts
	all.Limit = 0
	entries, _ := o.batch.base.List(resource, all)
	entries = slices.DeleteFunc(slices.Clone(entries), func(e *store.Entry) bool { return o.batch.ops[e.Key] != nil })
	for key, s := range o.batch.ops {
		if s.entry != nil && key.Resource == resource && strings.HasPrefix(key.Path, opts.Prefix) && key.Path > opts.After {
			entries = append(entries, s.entry)
		}
	}
	slices.SortFunc(entries, func(a, b *store.Entry) int { return strings.Compare(a.Key.Path, b.Key.Path) })
	if opts.Limit > 0 && len(entries) > opts.Limit {
		return entries[:opts.Limit], true
	}
	return entries, false
}

func (o *overlay) Count(resource string, opts store.ListOptions) int {
	opts.Limit = 0
	entries, _ := o.List(resource, opts)
	return len(entries)
}
