package etcd

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/setpoint-dev/setpoint/store"
	"github.com/setpoint-dev/setpoint/store/internal/core"
)

// commit is one under way. The follower sends what became of it when it comes back from etcd.
type commit struct {
	token token
	ops   []store.Op
	done  chan store.Result
	// unsure says that an attempt may have gone through that got no answer; unsureNew that it was
	// to make a key.
	unsure, unsureNew bool
}

// Commit implements store.Store. Beside the errors named there are those of a commit that etcd does
// not take, for its size or number of keys (127 and 1.5 MB unless etcd is set otherwise), and of a
// cluster that does not answer: the commit may have happened then.
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
		snap, result, done := s.look(c)
		if done {
			return result, nil
		}
		txn, result, err := s.plan(snap, c)
		if txn == nil && current {
			return result, err
		}
		if txn == nil { // what memory says may have been overtaken
			if err := s.catchUp(ctx); err != nil {
				return store.Result{}, err
			}
			current = true
			continue
		}
		if done, err := s.attempt(ctx, c, txn); err != nil {
			return store.Result{}, err
		} else if done {
			select {
			case result := <-c.done:
				return result, nil
			case <-ctx.Done():
				return store.Result{}, ctx.Err()
			}
		}
		current = !c.unsure
	}
}

// look returns the state in memory, or what became of the commit if it has come back.
func (s *Store) look(c *commit) (snap store.Snapshot, result store.Result, done bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case result = <-c.done:
		return nil, result, true
	default:
	}
	snap, _ = s.Reader.Snapshot(s.ctx) // fails only when closed, and then the context has ended
	return snap, result, false
}

// txn is a transaction of etcd.
type txn struct {
	guards []clientv3.Cmp
	writes []clientv3.Op
	makes  bool // a key
	at     store.Revision
}

// plan says what to ask of etcd for a commit on a state: nothing if there is a conflict or nothing
// would change. Every key is to be as it is in the state, so that a transaction can never be done
// twice, and whether it changes anything is decided here.
func (s *Store) plan(snap store.Snapshot, c *commit) (*txn, store.Result, error) {
	result := store.Result{Revision: s.Revision(), Entries: make([]*store.Entry, len(c.ops))}
	if snap == nil {
		return nil, result, store.ErrClosed
	}
	result.Revision = snap.Revision()
	t, head := &txn{at: snap.Revision()}, appendHead(nil, c.token)
	for i := range c.ops {
		op := &c.ops[i]
		found := snap.Get(op.Key)
		if err := core.CheckExpect(op, found); err != nil {
			return nil, store.Result{}, err
		}
		result.Entries[i] = found
		key, at := s.keys.of(op.Key), int64(0)
		if found != nil {
			at = s.base + int64(found.Revision)
		}
		t.guards = append(t.guards, clientv3.Compare(clientv3.ModRevision(key), "=", at))
		if !core.Changes(op, found) {
			continue
		}
		t.makes = t.makes || found == nil
		head = appendNote(head, op)
		if op.Type == store.Delete {
			t.writes = append(t.writes, clientv3.OpDelete(key))
		} else {
			t.writes = append(t.writes, clientv3.OpPut(key, string(appendValue(nil, op.Value, op.RevisionAt))))
		}
	}
	if len(t.writes) == 0 {
		return nil, result, nil
	}
	t.writes = append(t.writes, clientv3.OpPut(s.keys.head, string(head)))
	return t, result, nil
}

// attempt sends a transaction. It says whether it went through; if not, the commit is to be planned
// again. If etcd found a key otherwise than planned, memory knows it too on return.
func (s *Store) attempt(ctx context.Context, c *commit, t *txn) (done bool, err error) {
	call, cancel := context.WithTimeout(clientv3.WithRequireLeader(ctx), attemptTimeout)
	defer cancel()
	answer, err := s.client.Txn(call).If(t.guards...).Then(t.writes...).
		Else(clientv3.OpGet(s.keys.head)).Commit()
	switch {
	case err == nil && answer.Succeeded:
		return true, nil
	case err == nil:
		head := answer.Responses[0].GetResponseRange().Kvs
		if len(head) == 0 {
			return false, errNoHead
		}
		newest := store.Revision(head[0].ModRevision - s.base)
		if newest <= t.at { // a key is not as the store wrote it: following says what is wrong
			return false, pause(ctx)
		}
		if err := s.await(ctx, newest); err != nil {
			return false, err
		}
		return false, s.resolve(c)
	case refusal(err) != nil:
		return false, refusal(err)
	}
	c.unsure, c.unsureNew = true, c.unsureNew || t.makes
	s.note(ctx, err)
	return false, pause(ctx)
}

// resolve takes in that a transaction was refused. Then earlier ones that got no answer and did not
// come back are refused too when etcd gets to them, for no key gets back to an old revision; but
// one that expects a key not to exist might still find it so.
func (s *Store) resolve(c *commit) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c.unsureNew && len(c.done) == 0 {
		return errors.New("store: etcd did not answer in time, the commit may still happen")
	}
	c.unsure = false
	return nil
}

// refusal returns what a commit is told that etcd will never do as it is, or nil.
func refusal(err error) error {
	switch {
	case errors.Is(err, rpctypes.ErrNoSpace):
		return store.ErrNoSpace
	case errors.Is(err, rpctypes.ErrRequestTooLarge), errors.Is(err, rpctypes.ErrTooManyOps),
		errors.Is(err, rpctypes.ErrPermissionDenied),
		strings.Contains(err.Error(), "message larger than max"): // so says gRPC, in words only
		return fmt.Errorf("store: the commit is not possible: %w", err)
	}
	return nil
}

// pause waits before the next attempt.
func pause(ctx context.Context) error {
	timer := time.NewTimer(retryAfter)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
