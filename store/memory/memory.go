// Package memory is a store without a disk: everything is durable as long as the process is. It
// serves tests and control planes that live inside one, and it can be forked.
package memory

import (
	"context"
	"sync"
	"time"

	"github.com/setpoint-dev/setpoint/store"
	"github.com/setpoint-dev/setpoint/store/internal/core"
)

// Options tune a store. The zero Options are good ones.
type Options struct {
	// HistoryAge and HistoryBytes bound how much of the past can be read and watched, by its age
	// and by the memory it keeps alive: nine minutes and 128 MB unless set.
	HistoryAge   time.Duration
	HistoryBytes int64
	// Now is the clock by which history ages; time.Now unless set.
	Now func() time.Time
}

// Store is a store.Store in memory.
type Store struct {
	*core.Reader
	options Options

	mu   sync.Mutex
	core *core.Core
}

var _ store.Store = (*Store)(nil)

// New returns an empty store.
func New(options Options) *Store {
	return wrap(core.New(options.core(), 0), options)
}

func (o Options) core() core.Options {
	return core.Options{HistoryAge: o.HistoryAge, HistoryBytes: o.HistoryBytes}
}

func wrap(c *core.Core, options Options) *Store {
	if options.Now == nil {
		options.Now = time.Now
	}
	return &Store{Reader: c.Reader(), options: options, core: c}
}

// Fork returns a store that starts with the state of this one and goes its own way. It shares all
// memory that neither changes, takes the time of a few pointers, and has no history before it.
func (s *Store) Fork() *Store { return ForkOf(s.Reader, s.options) }

// ForkOf is Fork for any engine's state.
func ForkOf(r *core.Reader, options Options) *Store {
	return wrap(r.Fork(options.core()), options)
}

// Commit implements store.Store.
func (s *Store) Commit(ctx context.Context, ops ...store.Op) (store.Result, error) {
	if err := ctx.Err(); err != nil {
		return store.Result{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.Closed() {
		return store.Result{}, store.ErrClosed
	}
	result, err := s.core.Decide(ops)
	if err == nil && result.Changed {
		s.core.Publish(s.options.Now())
	}
	return result, err
}

// Compact implements store.Store.
func (s *Store) Compact(_ context.Context, before store.Revision) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.Closed() {
		return store.ErrClosed
	}
	return s.core.Compact(before)
}

// Nothing runs while nobody calls, so history gets old when it is asked for: these look at the clock
// before they answer, and what has become too old is not there.

// SnapshotAt implements store.Store.
func (s *Store) SnapshotAt(ctx context.Context, at store.Revision) (store.Snapshot, error) {
	s.age()
	return s.Reader.SnapshotAt(ctx, at)
}

// Watch implements store.Store.
func (s *Store) Watch(resource, prefix string, after store.Revision) (store.Watch, error) {
	s.age()
	return s.Reader.Watch(resource, prefix, after)
}

// Compacted implements store.Store.
func (s *Store) Compacted() store.Revision {
	s.age()
	return s.Reader.Compacted()
}

func (s *Store) age() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.core.Age(s.options.Now())
}

// Close implements store.Store.
func (s *Store) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.Reader.Close()
	return nil
}
