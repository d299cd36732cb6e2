package etcd

import (
	"context"
	"sync"
)

// barrier asks etcd for one of its revisions, once for all who ask while a question is under way.
// Nobody is given the answer to a question that was sent before they asked.
type barrier struct {
	ask func(context.Context) (int64, error)

	mu   sync.Mutex
	next *round        // that will be asked; nil if nobody waits
	wake chan struct{} // has an element when there is a next round
}

type round struct {
	done     chan struct{}
	revision int64
	err      error
}

func newBarrier(ask func(context.Context) (int64, error)) *barrier {
	return &barrier{ask: ask, wake: make(chan struct{}, 1)}
}

// catchUp waits until memory has every commit that was acknowledged before the call.
func (s *Store) catchUp(ctx context.Context) error { return s.pass(ctx, s.heads) }

// pass waits until memory has got to the revision that a barrier is told.
func (s *Store) pass(ctx context.Context, b *barrier) error {
	r := b.join()
	select {
	case <-r.done:
	case <-ctx.Done():
		return ctx.Err()
	}
	if r.err != nil {
		return r.err
	}
	return s.await(ctx, r.revision)
}

func (b *barrier) join() *round {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.next == nil {
		b.next = &round{done: make(chan struct{})}
		b.wake <- struct{}{} // there is room: the last one was taken with its round
	}
	return b.next
}

func (b *barrier) take() *round {
	b.mu.Lock()
	defer b.mu.Unlock()
	r := b.next
	b.next = nil
	return r
}

// serve asks for whoever waits at a barrier, until the store is closed.
func (s *Store) serve(b *barrier) {
	for {
		select {
		case <-b.wake:
		case <-s.ctx.Done():
			return
		}
		r := b.take()
		ctx, end := s.during(s.ctx)
		r.err = s.explain(ctx, s.persist(ctx, func(ctx context.Context) (err error) {
			r.revision, err = b.ask(ctx)
			return err
		}))
		end()
		close(r.done)
	}
}

// askHead asks where the newest commit is.
func (s *Store) askHead(ctx context.Context) (int64, error) {
	s.mu.Lock()
	known := s.head.revision
	s.mu.Unlock()
	answer, err := s.client.Get(ctx, s.keys.head)
	if err != nil {
		return 0, err
	}
	if len(answer.Kvs) == 0 || answer.Kvs[0].CreateRevision != s.base {
		return 0, errNoHead
	}
	if at := answer.Kvs[0].ModRevision; at < known {
		return 0, s.behind(at, known)
	}
	return answer.Kvs[0].ModRevision, nil
}

// askEpoch begins another epoch.
func (s *Store) askEpoch(ctx context.Context) (int64, error) {
	answer, err := s.client.Put(ctx, s.keys.epoch, "")
	if err != nil {
		return 0, err
	}
	return answer.Header.Revision, nil
}

// waiter waits for a revision of etcd's.
type waiter struct {
	revision int64
	arrived  chan struct{}
}

// await waits until memory has got to a revision of etcd's, which is that of a key of the store's.
func (s *Store) await(ctx context.Context, revision int64) error {
	s.mu.Lock()
	if s.reached >= revision {
		s.mu.Unlock()
		return nil
	}
	arrived := make(chan struct{})
	s.waiters = append(s.waiters, waiter{revision, arrived})
	s.mu.Unlock()
	for {
		late, stop := context.WithTimeout(ctx, lateAfter)
		select {
		case <-arrived:
			stop()
			return nil
		case <-late.Done():
			stop()
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		s.rewatch()
	}
}

// wake tells those who wait how far memory has got. It is called with the lock.
func (s *Store) wake() {
	waiting := s.waiters[:0]
	for _, w := range s.waiters {
		if w.revision <= s.reached {
			close(w.arrived)
		} else {
			waiting = append(waiting, w)
		}
	}
	clear(s.waiters[len(waiting):])
	s.waiters = waiting
}
