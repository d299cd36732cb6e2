package etcd

import (
	"context"
	"errors"
	"fmt"
	"slices"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/setpoint-dev/setpoint/store"
	"github.com/setpoint-dev/setpoint/store/internal/core"
)

// commit is one under way. The follower sends what became of it when it comes back from etcd.
type commit struct {
	token token
	ops   []store.Op
	done  chan store.Result
}

// Commit implements store.Store. Beside the errors named there are those of a cluster that does not
// answer, as whose the commit may have happened. Etcd takes 1.5 MB in a commit unless it is set
// otherwise.
func (s *Store) Commit(ctx context.Context, ops ...store.Op) (store.Result, error) {
	if err := ctx.Err(); err != nil {
		return store.Result{}, err
	}
	if err := core.CheckKeys(ops); err != nil {
		return store.Result{}, err
	}
	ctx, end := s.during(ctx)
	defer end()
	c := &commit{token: s.token(), ops: ops, done: make(chan store.Result, 1)}
	s.mu.Lock()
	s.commits[c.token] = c
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		delete(s.commits, c.token)
		s.mu.Unlock()
	}()
	result, err := s.commit(ctx, c)
	return result, s.explain(ctx, err)
}

// commit plans on the state in memory, and again if that turns out to be old.
func (s *Store) commit(ctx context.Context, c *commit) (store.Result, error) {
	for current := false; ; {
		now, result, done := s.look(c)
		if done {
			return result, nil
		}
		txn, result, err := s.plan(now, c)
		switch {
		case txn != nil:
			err = s.attempt(ctx, now, txn)
		case current:
			return result, err
		default: // what memory says may have been overtaken
			err = s.catchUp(ctx)
		}
		if err != nil {
			if _, result, done := s.look(c); done {
				return result, nil
			}
			return store.Result{}, err
		}
		current = true
	}
}

// view is what is in memory at a moment.
type view struct {
	store.Snapshot
	epoch, head int64
}

// look returns what is in memory, or what became of the commit if it has come back.
func (s *Store) look(c *commit) (now view, result store.Result, done bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case result = <-c.done:
		return now, result, true
	default:
	}
	snap, _ := s.Reader.Snapshot(s.ctx) // nil only when closed
	return view{snap, s.epoch, s.head.revision}, result, false
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
)

// txn is a transaction of etcd.
type txn struct {
	guards []clientv3.Cmp
	writes []clientv3.Op
}

// plan says what to ask of etcd for a commit on a state: nothing if there is a conflict or nothing
// would change, or there is no room for it. Whether it changes anything is decided here, so the transaction is to go through only
// where every key is as in the state, in the epoch of the state, and on no older head, as a cluster
// would have that has lost commits.
func (s *Store) plan(now view, c *commit) (*txn, store.Result, error) {
	result := store.Result{Entries: make([]*store.Entry, len(c.ops))}
	if now.Snapshot == nil {
		return nil, result, store.ErrClosed
	}
	result.Revision = now.Revision()
	t := &txn{guards: []clientv3.Cmp{
		clientv3.Compare(clientv3.ModRevision(s.keys.epoch), "=", now.epoch),
		clientv3.Compare(clientv3.ModRevision(s.keys.head), ">", now.head-1),
	}}
	large := len(c.ops) > guardedMax
	if large { // all is as it was if the head is
		t.guards[1] = clientv3.Compare(clientv3.ModRevision(s.keys.head), "=", now.head)
	}
	var before *store.Op
	head := appendHead(nil, c.token)
	for i := range c.ops {
		op := &c.ops[i]
		found := now.Get(op.Key)
		if err := core.CheckExpect(op, found); err != nil {
			return nil, store.Result{}, err
		}
		result.Entries[i] = found
		if !large {
			t.guards = append(t.guards, s.guard(op.Key, found))
		}
		if core.Changes(op, found) {
			if err := s.room.refuse(op, found); err != nil {
				return nil, store.Result{}, err
			}
			t.writes = append(t.writes, s.write(op))
			head = appendNote(head, op, before)
			before = op
		}
	}
	if len(t.writes) == 0 {
		return nil, result, nil
	}
	if large {
		t.writes = nest(t.writes)
	}
	t.writes = append(t.writes, clientv3.OpPut(s.keys.head, string(head)))
	return t, result, nil
}

func (s *Store) guard(key store.Key, found *store.Entry) clientv3.Cmp {
	at := int64(0)
	if found != nil {
		at = s.base + int64(found.Revision)
	}
	return clientv3.Compare(clientv3.ModRevision(s.keys.of(key)), "=", at)
}

func (s *Store) write(op *store.Op) clientv3.Op {
	key := s.keys.of(op.Key)
	if op.Type == store.Delete {
		return clientv3.OpDelete(key)
	}
	return clientv3.OpPut(key, string(appendValue(nil, op.Value, op.RevisionAt)))
}

// nest puts changes into transactions within the transaction, which etcd does one after the other in
// the same revision.
func nest(writes []clientv3.Op) (nested []clientv3.Op) {
	for part := range slices.Chunk(writes, nestedMax) {
		nested = append(nested, clientv3.OpTxn(nil, part, nil))
	}
	return nested
}

// attempt sends a transaction that was planned on what was in memory, and returns when memory has
// what has become of it: it went through, and the commit has come back, or it never will.
func (s *Store) attempt(ctx context.Context, now view, t *txn) error {
	call, cancel := context.WithTimeout(clientv3.WithRequireLeader(ctx), attemptTimeout)
	defer cancel()
	answer, err := s.client.Txn(call).If(t.guards...).Then(t.writes...).
		Else(clientv3.OpGet(s.keys.head), clientv3.OpGet(s.keys.epoch)).Commit()
	switch {
	case err == nil && answer.Succeeded:
		return s.await(ctx, answer.Header.Revision)
	case err == nil:
		return s.refused(ctx, now, answer)
	}
	if refused := refusal(err); refused != nil {
		if errors.Is(refused, store.ErrNoSpace) { // so says etcd, too, of the last one that it takes
			_ = s.catchUp(ctx)
		}
		return refused
	}
	s.note(ctx, err)
	if err := s.pass(ctx, s.epochs); err != nil {
		return fmt.Errorf("the commit may have happened: %v", err) // and so it is no refusal
	}
	return nil
}

// refused waits for what a transaction was refused for.
func (s *Store) refused(ctx context.Context, now view, answer *clientv3.TxnResponse) error {
	head, epoch := answer.Responses[0].GetResponseRange().Kvs, answer.Responses[1].GetResponseRange().Kvs
	if len(head) == 0 || head[0].CreateRevision != s.base {
		return errNoHead
	}
	newest := head[0].ModRevision
	if len(epoch) > 0 && epoch[0].ModRevision > now.epoch {
		newest = max(newest, epoch[0].ModRevision)
	}
	switch {
	case newest < now.head:
		s.note(ctx, s.behind(newest, now.head))
		return pause(ctx)
	case newest == now.head: // a key is not as the store wrote it: following says what is wrong
		return pause(ctx)
	}
	return s.await(ctx, newest)
}
