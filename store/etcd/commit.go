package etcd

import (
	"context"
	"slices"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/setpoint-dev/setpoint/store"
	"github.com/setpoint-dev/setpoint/store/internal/core"
)

// commit is one that somebody waits for.
type commit struct {
	ctx   context.Context // of the one who waits
	ops   []store.Op
	asked uint64 // when, as Store.asked counts
	// alone says that it shares no transaction any more: it was what one failed for, or one with
	// others was too large.
	alone     bool
	overtaken int  // how often others were faster than its transaction, if it is large
	unsure    bool // what memory says is no answer, because it may be old
	done      chan outcome
}

// outcome is what became of a commit.
type outcome struct {
	result store.Result
	err    error
}

// answer tells the one who waits, unless that was done before.
func (c *commit) answer(o outcome) {
	select {
	case c.done <- o:
	default:
	}
}

func (c *commit) large() bool { return len(c.ops) > guardedMax }

// Commit implements store.Store. Etcd takes 1.5 MB in a commit unless it is set otherwise.
func (s *Store) Commit(ctx context.Context, ops ...store.Op) (store.Result, error) {
	if err := ctx.Err(); err != nil {
		return store.Result{}, err
	}
	if err := core.CheckKeys(ops); err != nil {
		return store.Result{}, err
	}
	ctx, end := s.during(ctx)
	defer end()
	c := &commit{ctx: ctx, ops: ops, done: make(chan outcome, 1)}
	s.mu.Lock()
	s.asked++
	c.asked = s.asked
	s.queue = append(s.queue, c)
	s.mu.Unlock()
	s.poke()
	select {
	case o := <-c.done:
		return o.result, s.explain(ctx, o.err)
	case <-ctx.Done():
		return store.Result{}, s.explain(ctx, ctx.Err())
	}
}

// view is what is in memory at a moment.
type view struct {
	store.Snapshot
	epoch, head int64
}

// view returns what is in memory. It is called with the lock.
func (s *Store) view() view {
	snap, _ := s.Reader.Snapshot(s.ctx) // nil only when closed
	return view{snap, s.epoch, s.head.revision}
}

const (
	// opsMax is how many operations etcd lets stand side by side in a transaction, unless it is set
	// to take more.
	opsMax = 128
	// guardedMax is how many keys are guarded each by itself, beside the epoch and the head.
	guardedMax = opsMax - 2
	// nestedMax is how many changes of a large commit are put into one nested transaction. Etcd counts
	// the operations of a level and the levels above it together, so there can be as many of those.
	nestedMax = opsMax / 2
	// sharedBytesMax is how large a transaction becomes by taking in another commit: a third of what
	// etcd takes, which it writes in a millisecond.
	sharedBytesMax = 512 << 10
)

// batch is some commits in one transaction of etcd, each with a revision of its own. It goes through
// only where every key is as in the view that it was planned on, in the epoch of that, and on no older
// head, as a cluster would have that has lost commits.
type batch struct {
	token   token
	now     view
	commits []*commit
	keys    map[store.Key]bool // that are named; true are those that are written
	guards  []clientv3.Cmp
	writes  []clientv3.Op
	notes   []byte
	last    *store.Op // of the changes
	bytes   int
	large   bool   // it has one commit, which is
	sent    uint64 // when, as Store.asked counts

	// Guarded by the store's lock:
	came     bool // back, as it does that went through
	released bool // its turn is over
}

// full says that a batch cannot take in a commit that has not been planned yet.
func (b *batch) full(c *commit) bool {
	if len(b.commits) == 0 {
		return false
	}
	bytes := b.bytes
	for i := range c.ops {
		bytes += len(c.ops[i].Value) + len(c.ops[i].Origin)
	}
	return c.alone || c.large() || b.commits[0].alone || b.large || bytes > sharedBytesMax ||
		len(b.keys)+len(c.ops) > guardedMax
}

// plan takes a commit into a batch, unless there is a conflict, or nothing would change, or there is no
// room for it: what to answer then, if memory is not old, is returned.
func (s *Store) plan(b *batch, c *commit) (answer *outcome) {
	result := store.Result{Entries: make([]*store.Entry, len(c.ops)), Revision: b.now.Revision()}
	changes := 0
	for i := range c.ops {
		op := &c.ops[i]
		found := b.now.Get(op.Key)
		if err := core.CheckExpect(op, found); err != nil {
			return &outcome{err: err}
		}
		result.Entries[i] = found
		if core.Changes(op, found) {
			if err := s.room.refuse(op, found); err != nil {
				return &outcome{err: err}
			}
			changes++
		}
	}
	if changes == 0 {
		return &outcome{result: result}
	}
	s.join(b, c, changes, result.Entries)
	return nil
}

// join puts a commit into a batch that makes some changes of what was found.
func (s *Store) join(b *batch, c *commit, changes int, found []*store.Entry) {
	step := len(b.commits)
	b.commits, b.large = append(b.commits, c), c.large()
	b.notes = appendCount(b.notes, changes)
	for i := range c.ops {
		op := &c.ops[i]
		if _, guarded := b.keys[op.Key]; !guarded && !b.large {
			b.guards = append(b.guards, s.guard(op.Key, found[i]))
		}
		changed := core.Changes(op, found[i])
		b.keys[op.Key] = b.keys[op.Key] || changed
		if changed {
			b.writes = append(b.writes, s.write(op, found[i], step))
			b.notes = appendNote(b.notes, op, b.last)
			b.last = op
			b.bytes += len(op.Value) + len(op.Origin)
		}
	}
}

// transaction is what etcd is asked to do for the batch.
func (s *Store) transaction(b *batch) ([]clientv3.Cmp, []clientv3.Op) {
	head := clientv3.Compare(clientv3.ModRevision(s.keys.head), ">", b.now.head-1)
	writes := b.writes
	if b.large { // all is as it was if the head is
		head = clientv3.Compare(clientv3.ModRevision(s.keys.head), "=", b.now.head)
		writes = nest(writes)
	}
	epoch := clientv3.Compare(clientv3.ModRevision(s.keys.epoch), "=", b.now.epoch)
	note := string(append(appendHead(nil, b.token, len(b.commits)), b.notes...))
	return append(b.guards, epoch, head), append(writes, clientv3.OpPut(s.keys.head, note))
}

func (s *Store) guard(key store.Key, found *store.Entry) clientv3.Cmp {
	at := int64(0)
	if found != nil {
		at, _ = s.split(found.Revision)
	}
	return clientv3.Compare(clientv3.ModRevision(s.keys.of(key)), "=", at)
}

func (s *Store) write(op *store.Op, found *store.Entry, step int) clientv3.Op {
	key := s.keys.of(op.Key)
	if op.Type == store.Delete {
		return clientv3.OpDelete(key)
	}
	made := step
	if found != nil {
		_, made = s.split(found.Created)
	}
	return clientv3.OpPut(key, string(appendStored(nil, stored{op.Value, op.RevisionAt, step, made})))
}

// nest puts changes into transactions within the transaction, which etcd does one after the other in
// the same revision.
func nest(writes []clientv3.Op) (nested []clientv3.Op) {
	for part := range slices.Chunk(writes, nestedMax) {
		nested = append(nested, clientv3.OpTxn(nil, part, nil))
	}
	return nested
}
