package etcd

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/setpoint-dev/setpoint/store"
)

// barrier asks etcd for the newest revision, once for all who ask while a question is under way.
// Nobody is given the answer to a question that was sent before they asked.
type barrier struct {
	mu   sync.Mutex
	next *round        // that will be asked; nil if nobody waits
	wake chan struct{} // has an element when there is a next round
}

type round struct {
	done   chan struct{}
	newest store.Revision
	err    error
}

// catchUp waits until memory has every commit that was acknowledged before the call.
func (s *Store) catchUp(ctx context.Context) error {
	r := s.join()
	select {
	case <-r.done:
	case <-ctx.Done():
		return ctx.Err()
	}
	if r.err != nil {
		return r.err
	}
	return s.await(ctx, r.newest)
}

func (s *Store) join() *round {
	b := &s.barrier
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

// ask asks for whoever waits, until the store is closed.
func (s *Store) ask() {
	for {
		select {
		case <-s.barrier.wake:
		case <-s.ctx.Done():
			return
		}
		r := s.barrier.take()
		ctx, end := s.during(s.ctx)
		r.err = s.explain(ctx, s.persist(ctx, func(ctx context.Context) (err error) {
			r.newest, err = s.newest(ctx)
			return err
		}))
		end()
		close(r.done)
	}
}

var errNoHead = errors.New("store: the store's keys have been deleted from etcd")

// newest returns the revision of the newest commit.
func (s *Store) newest(ctx context.Context) (store.Revision, error) {
	answer, err := s.client.Get(ctx, s.keys.head)
	if err != nil {
		return 0, err
	}
	if len(answer.Kvs) == 0 || answer.Kvs[0].CreateRevision != s.base {
		return 0, errNoHead
	}
	return store.Revision(answer.Kvs[0].ModRevision - s.base), nil
}

// persist tries a request that may be done twice until it is answered or the context ends.
func (s *Store) persist(ctx context.Context, try func(context.Context) error) error {
	for {
		call, cancel := context.WithTimeout(clientv3.WithRequireLeader(ctx), attemptTimeout)
		err := try(call)
		cancel()
		if err == nil || errors.Is(err, errNoHead) {
			return err
		}
		s.note(ctx, err)
		if err := pause(ctx); err != nil {
			return err
		}
	}
}

// waiter waits for a revision.
type waiter struct {
	revision store.Revision
	arrived  chan struct{}
}

// await waits until a revision is published.
func (s *Store) await(ctx context.Context, revision store.Revision) error {
	s.mu.Lock()
	if s.Revision() >= revision {
		s.mu.Unlock()
		return nil
	}
	arrived := make(chan struct{})
	s.waiters = append(s.waiters, waiter{revision, arrived})
	s.mu.Unlock()
	late := time.NewTimer(lateAfter)
	defer late.Stop()
	for {
		select {
		case <-arrived:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		case <-late.C:
			s.rewatch()
			late.Reset(lateAfter)
		}
	}
}

// wake tells those who wait for what is published. It is called with the lock.
func (s *Store) wake() {
	revision, waiting := s.Revision(), s.waiters[:0]
	for _, w := range s.waiters {
		if w.revision <= revision {
			close(w.arrived)
		} else {
			waiting = append(waiting, w)
		}
	}
	clear(s.waiters[len(waiting):])
	s.waiters = waiting
}

var errTimeout = errors.New("store: etcd does not answer")

// during returns a context that ends with the store, too, and in time.
func (s *Store) during(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithTimeoutCause(ctx, s.options.Timeout, errTimeout)
	stop := context.AfterFunc(s.ctx, cancel)
	return ctx, func() { stop(); cancel() }
}

// explain returns the error that a caller is told: why the context of during ended, where that is
// what went wrong.
func (s *Store) explain(ctx context.Context, err error) error {
	var conflict *store.ConflictError
	switch {
	case err == nil, errors.As(err, &conflict):
		return err
	case s.ctx.Err() != nil:
		return store.ErrClosed
	case ctx.Err() == nil:
		return err
	}
	cause := context.Cause(ctx)
	if !errors.Is(cause, errTimeout) {
		return cause
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.trouble == nil {
		return fmt.Errorf("%w for %v", errTimeout, s.options.Timeout)
	}
	return fmt.Errorf("%w for %v: %w", errTimeout, s.options.Timeout, s.trouble)
}

// note keeps what went wrong with the cluster last, unless it is that nobody waits any more.
func (s *Store) note(ctx context.Context, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if ctx.Err() == nil {
		s.trouble = err
	}
}
