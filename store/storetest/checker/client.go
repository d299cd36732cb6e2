package checker

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/setpoint-dev/setpoint/store"
)

// operation is one call of a client and its answer.
type operation struct {
	client    int
	call, end int64 // by the run's clock

	ops []store.Op     // of a commit; nil for a read
	at  store.Revision // of a read of the past; zero for the newest state

	result store.Result // of a commit
	seen   world        // of a read
	err    error
	// lost says that nobody knows whether the commit has happened; its fresh values, which nobody
	// else ever wrote, may tell.
	lost  bool
	fresh []string
	// compacting is how far anybody had asked to compact when the answer came.
	compacting store.Revision
}

// client makes one call after the other.
type client struct {
	run   *run
	id    int
	rand  *rand.Rand
	count int   // of values written
	told  int   // of those, how many earlier commits had
	known world // the newest state it has seen
	done  []operation
	err   error
}

func (r *run) newClient(id int) client {
	return client{run: r, id: id, rand: rand.New(rand.NewPCG(r.opts.Seed, uint64(id)))}
}

func (c *client) work(ctx context.Context) {
	for range c.run.opts.Steps {
		if c.err != nil || ctx.Err() != nil {
			return
		}
		if c.run.opts.Pace != nil {
			c.run.opts.Pace(ctx)
		}
		switch n := c.rand.IntN(20); {
		case n < 5:
			c.read(ctx, 0)
		case n < 7 && c.known.revision > 1:
			c.read(ctx, 1+store.Revision(c.rand.Int64N(int64(c.known.revision))))
		case n < 8:
			c.compact(ctx)
		default:
			c.commit(ctx, c.someOps())
		}
	}
}

// someOps makes a commit of one to three keys, half of them conditional on what the client knows.
func (c *client) someOps() []store.Op {
	var ops []store.Op
	for _, key := range c.rand.Perm(keyCount)[:1+c.rand.IntN(3)] {
		expect := store.Any
		if c.rand.IntN(2) == 0 {
			expect = c.known.cells[key].revision
		}
		op := c.put(key, expect)
		switch c.rand.IntN(8) {
		case 0, 1:
			op.Type = store.Delete
		case 2:
			op.Type = 0
		case 3: // changes nothing, if the client is up to date
			was := c.known.cells[key]
			if was != (cell{}) && (!c.run.opts.Faults || slices.ContainsFunc(ops, isPut)) {
				op.Value, op.RevisionAt = encode(was.value)
			}
		}
		ops = append(ops, op)
	}
	return ops
}

// isPut says whether an op shows, whatever it finds, that its commit has happened: it is the first
// of its commit.
func isPut(op store.Op) bool { return op.Type == store.Put }

func (c *client) put(key int, expect store.Revision) store.Op {
	c.count++
	value, at := encode(c.value(c.count))
	return store.Op{Key: keys[key], Type: store.Put, Expect: expect, Value: value, RevisionAt: at}
}

func (c *client) value(n int) string { return fmt.Sprintf("%d-%d", c.id, n) }

func (c *client) commit(ctx context.Context, ops []store.Op) {
	o := operation{client: c.id, call: c.run.clock.Add(1), ops: ops}
	for ; c.told < c.count; c.told++ {
		o.fresh = append(o.fresh, c.value(c.told+1))
	}
	o.result, o.err = c.run.store.Commit(ctx, ops...)
	o.end = c.run.clock.Add(1)
	var conflict *store.ConflictError
	if o.err != nil && !errors.As(o.err, &conflict) {
		if o.lost = true; !c.run.opts.Faults {
			c.err = fmt.Errorf("a commit: %w", o.err)
		}
	}
	c.done = append(c.done, o)
}

func (c *client) read(ctx context.Context, at store.Revision) {
	o := operation{client: c.id, call: c.run.clock.Add(1), at: at}
	var s store.Snapshot
	if at == 0 {
		s, o.err = c.run.store.Snapshot(ctx)
	} else {
		s, o.err = c.run.store.SnapshotAt(ctx, at)
	}
	o.compacting = store.Revision(c.run.compacted.Load())
	o.end = c.run.clock.Add(1)
	switch {
	case o.err == nil:
		if o.seen, c.err = observe(s); at == 0 && c.err == nil {
			c.known = o.seen
		}
	case c.run.opts.Faults && !errors.Is(o.err, store.ErrCompacted) && !errors.Is(o.err, store.ErrFuture):
		return // it says nothing
	case at == 0:
		c.err = fmt.Errorf("a read: %w", o.err)
	}
	c.done = append(c.done, o)
}

// compact forgets what the witnesses have seen, up to a random place.
func (c *client) compact(ctx context.Context) {
	most := int64(c.run.store.Revision())
	for i := range c.run.witnessed {
		most = min(most, c.run.witnessed[i].Load())
	}
	if most < 1 {
		return
	}
	to := 1 + c.rand.Int64N(most)
	for old := c.run.compacted.Load(); old < to; old = c.run.compacted.Load() {
		if c.run.compacted.CompareAndSwap(old, to) {
			break
		}
	}
	if err := c.run.store.Compact(ctx, store.Revision(to)); err != nil && !c.run.opts.Faults {
		c.err = fmt.Errorf("a compaction: %w", err)
	}
}
