package etcd

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/setpoint-dev/setpoint/store"
)

// sender puts the commits that wait into transactions. Commits of different keys share one; one whose
// key another is about to write waits for that, so that commits of a key are sent in the order in which
// they came.
type sender struct {
	*Store
	waiting []*commit
	flying  int                // transactions that have not been answered, the slow aside
	writing map[store.Key]bool // by transactions that have not been answered
	large   bool               // one of those has a commit that must not see another
	looking bool               // whether memory is old
}

const (
	// flyingMax is how many transactions are under way at once: with more each would have fewer
	// commits, and with fewer the time they take on their way would be lost.
	flyingMax = 2
	// slowAfter is when others do not wait for a transaction any more: its member may be gone.
	slowAfter = 200 * time.Millisecond
	// quietFor is how long a server sends nothing at most when another has asked for it, because a commit
	// of many keys, whose transaction fails for any other, was overtaken quietAfter times. It ends when
	// that has come through, which takes a busy cluster a second.
	quietFor, quietAfter = 2 * time.Second, 2
)

// poke has the sender look.
func (s *Store) poke() {
	select {
	case s.woken <- struct{}{}:
	default:
	}
}

// send sends commits until the store is closed.
func (s *Store) send() {
	q := &sender{Store: s, writing: map[store.Key]bool{}}
	for {
		select {
		case <-s.woken:
			q.step()
		case <-s.ctx.Done():
			return
		}
	}
}

// step sends what can be sent.
func (q *sender) step() {
	now, sure, quiet := q.collect()
	if now.Snapshot == nil || quiet {
		return // closed, as everybody is told, or for a moment
	}
	held := holds{written: map[store.Key]bool{}, checked: map[store.Key]bool{}}
	b := newBatch(now)
	kept := q.waiting[:0]
	for i, c := range q.waiting {
		if c.ctx.Err() != nil {
			continue // whoever asked has gone
		}
		if b.full(c) {
			q.fly(b)
			b = newBatch(now)
		}
		if q.flying >= flyingMax || q.large || c.large() && q.flying > 0 {
			kept = append(kept, q.waiting[i:]...)
			break
		}
		if !q.held(&held, b, c) {
			answer := q.plan(b, c)
			if answer == nil {
				continue
			}
			if c.unsure = c.asked > sure; !c.unsure {
				c.answer(*answer)
				continue
			}
		}
		held.add(c)
		kept = append(kept, c)
	}
	q.fly(b)
	clear(q.waiting[len(kept):])
	q.waiting = kept
	q.makeSure()
}

// collect takes in what has happened since the last step. It returns what is in memory, and up to which
// commit that is an answer, because it was there when etcd was asked what is new; and whether nothing
// is to be sent.
func (q *sender) collect() (now view, sure uint64, quiet bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, b := range q.released {
		q.flying--
		q.large = q.large && !b.large
	}
	for _, b := range q.answered {
		for key, written := range b.keys {
			if written {
				delete(q.writing, key)
			}
		}
	}
	q.waiting = slices.Concat(q.again, q.waiting, q.queue)
	clear(q.queue)
	q.released, q.answered, q.again, q.queue = nil, nil, nil, q.queue[:0]
	if l := q.looked; l != nil {
		q.looking, q.looked = false, nil
		q.waiting = slices.DeleteFunc(q.waiting, func(c *commit) bool {
			failed := l.err != nil && c.unsure && c.asked <= l.asked
			if failed {
				c.answer(outcome{err: l.err})
			}
			return failed
		})
	}
	if wait := time.Until(q.quiet.until); wait > 0 && q.quiet.process != q.process {
		time.AfterFunc(wait, q.poke)
		quiet = true
	}
	return q.view(), q.sure, quiet
}

func newBatch(now view) *batch { return &batch{now: now, keys: map[store.Key]bool{}} }

// holds are the keys of commits that wait: others with them wait behind.
type holds struct{ written, checked map[store.Key]bool }

func (h *holds) add(c *commit) {
	for i := range c.ops {
		if c.ops[i].Type == 0 {
			h.checked[c.ops[i].Key] = true
		} else {
			h.written[c.ops[i].Key] = true
		}
	}
}

// held says that a commit has to wait for another. Many may check the same key at once, as those of
// one leader do.
func (q *sender) held(h *holds, b *batch, c *commit) bool {
	for i := range c.ops {
		op := &c.ops[i]
		if q.writing[op.Key] || b.keys[op.Key] || h.written[op.Key] || op.Type != 0 && h.checked[op.Key] {
			return true
		}
	}
	return false
}

// fly sends a batch, unless it is empty.
func (q *sender) fly(b *batch) {
	if len(b.commits) == 0 {
		return
	}
	b.token = q.newToken()
	q.flying++
	q.large = b.large
	for key, written := range b.keys {
		if written {
			q.writing[key] = true
		}
	}
	q.mu.Lock()
	b.sent = q.asked
	q.batches[b.token] = b
	q.mu.Unlock()
	q.running.Go(func() { q.carry(b) })
}

// makeSure has etcd asked for what is new if somebody waits for that.
func (q *sender) makeSure() {
	if q.looking || !slices.ContainsFunc(q.waiting, func(c *commit) bool { return c.unsure }) {
		return
	}
	q.looking = true
	q.running.Go(q.look)
}

// look is the answer to whether memory is old: that it was brought up to date, and for whom.
type look struct {
	asked uint64 // the last commit when etcd was asked
	err   error
}

func (s *Store) look() {
	s.mu.Lock()
	l := &look{asked: s.asked}
	s.mu.Unlock()
	l.err = s.read(s.ctx)
	s.mu.Lock()
	if s.looked = l; l.err == nil {
		s.sure = max(s.sure, l.asked)
	}
	s.mu.Unlock()
	s.poke()
}

// carry takes a batch to etcd, and back what has become of it.
func (s *Store) carry(b *batch) {
	slow := time.AfterFunc(slowAfter, func() {
		s.mu.Lock()
		s.release(b)
		s.mu.Unlock()
		s.poke()
	})
	defer slow.Stop()
	ctx, end := s.during(s.ctx)
	defer end()
	err := s.attempt(ctx, b)
	if err == nil && b.large {
		err = s.askForQuiet(ctx, b)
	}
	err = s.explain(ctx, err)
	s.mu.Lock()
	s.settle(b, err)
	s.mu.Unlock()
	s.poke()
}

// release ends the turn of a batch. It is called with the lock.
func (s *Store) release(b *batch) {
	if !b.released {
		b.released = true
		s.released = append(s.released, b)
	}
}

// settle has those commits of a batch that did not come back sent again, or answered by an error. It is
// called with the lock.
func (s *Store) settle(b *batch, err error) {
	delete(s.batches, b.token)
	s.release(b)
	s.answered = append(s.answered, b)
	apart := errors.Is(err, store.ErrTooLarge) && len(b.commits) > 1
	now := s.view()
	switch {
	case b.came, now.Snapshot == nil:
		return
	case err != nil && !apart:
		for _, c := range b.commits {
			c.answer(outcome{err: err})
		}
		return
	}
	for _, c := range b.commits {
		c.alone = c.alone || apart || slices.ContainsFunc(c.ops, func(op store.Op) bool {
			return now.Get(op.Key) != b.now.Get(op.Key) // it failed for that, and would again
		})
	}
	s.again = append(s.again, b.commits...)
}

// askForQuiet has the other stores on the cluster wait for a large commit that was overtaken often.
func (s *Store) askForQuiet(ctx context.Context, b *batch) error {
	s.mu.Lock()
	came := b.came
	s.mu.Unlock()
	if c := b.commits[0]; !came {
		if c.overtaken++; c.overtaken >= quietAfter {
			return s.put(ctx, s.keys.quiet, string(s.process[:]))
		}
	}
	return nil
}

// attempt sends a batch, and returns when memory has what has become of it: it went through, and has
// come back, or it never will.
func (s *Store) attempt(ctx context.Context, b *batch) error {
	call, cancel := context.WithTimeout(clientv3.WithRequireLeader(ctx), attemptTimeout)
	defer cancel()
	guards, writes := s.transaction(b)
	answer, err := s.client.Txn(call).If(guards...).Then(writes...).
		Else(clientv3.OpGet(s.keys.head), clientv3.OpGet(s.keys.epoch)).Commit()
	switch {
	case err == nil && answer.Succeeded:
		return s.await(ctx, answer.Header.Revision)
	case err == nil:
		return s.refused(ctx, b, answer)
	}
	if refused := refusal(err); refused != nil {
		if errors.Is(refused, store.ErrNoSpace) { // so says etcd, too, of the last one that it takes
			_ = s.catchUp(ctx)
		}
		return refused
	}
	s.note(ctx, err)
	if err := s.pass(ctx, s.epochs); err != nil {
		return fmt.Errorf("%w, the commit may have happened: %v", store.ErrNoAnswer, err) // and so it is no refusal
	}
	return nil
}

// refused waits for what a transaction was refused for.
func (s *Store) refused(ctx context.Context, b *batch, answer *clientv3.TxnResponse) error {
	head, epoch := answer.Responses[0].GetResponseRange().Kvs, answer.Responses[1].GetResponseRange().Kvs
	if len(head) == 0 || head[0].CreateRevision != s.base {
		return errNoHead
	}
	newest := head[0].ModRevision
	if len(epoch) > 0 && epoch[0].ModRevision > b.now.epoch {
		newest = max(newest, epoch[0].ModRevision)
	}
	switch {
	case newest < b.now.head:
		s.note(ctx, s.behind(newest, b.now.head))
		return pause(ctx)
	case newest == b.now.head: // a key is not as the store wrote it: following says what is wrong
		return pause(ctx)
	}
	if err := s.await(ctx, newest); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sure = max(s.sure, b.sent) // etcd had nothing newer when it answered
	return nil
}
