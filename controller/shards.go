package controller

import (
	"context"
	"maps"
	"slices"
	"sync"

	toolscache "k8s.io/client-go/tools/cache"

	"github.com/setpoint-dev/setpoint/lease"
)

// With ManagerOptions.Shards every replica watches everything and works on the keys of the shards
// whose leases it holds. A shard that it gets is told of by the cache once more, so that each of its
// keys is looked at: what the replica before it had begun, or meant to come back to, died with it.

// shards are the parts of the keys, and which of them this replica holds.
type shards struct {
	count int

	mu   sync.Mutex
	held map[int]*shard
}

// shard is one that is held.
type shard struct {
	ctx  context.Context // of the passes over its keys; it carries the term, whose fence they write with
	work sync.WaitGroup  // its keys in work
}

func (s *shards) of(key request) int { return lease.ShardOf(key.String(), s.count) }

// take has the keys of a shard be worked on.
func (s *shards) take(i int, ctx context.Context) *shard {
	s.mu.Lock()
	defer s.mu.Unlock()
	part := &shard{ctx: ctx}
	s.held[i] = part
	return part
}

// drain has no key of a shard be worked on any more, and returns when none is.
func (s *shards) drain(i int, part *shard) {
	s.mu.Lock()
	delete(s.held, i)
	s.mu.Unlock()
	part.work.Wait()
}

// enter begins the work on a key, if its shard is held, and returns the context for it. The work must
// be ended with leave.
func (s *shards) enter(key request) (ctx context.Context, leave func(), ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	part := s.held[s.of(key)]
	if part == nil {
		return nil, nil, false
	}
	part.work.Add(1)
	return part.ctx, part.work.Done, true
}

// mine returns those of the keys whose shards are held.
func (s *shards) mine(keys []request) []request {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(keys), func(k request) bool { return s.held[s.of(k)] == nil })
}

// list returns which are held.
func (s *shards) list() []int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Sorted(maps.Keys(s.held))
}

// sharded says whether the controller's keys are shared with other replicas.
func (l *loop) sharded() bool { return l.mgr.shards.count > 1 && !l.opts.AnyReplica }

// runShards works on shards until the context ends; what is not a controller goes with the first.
func (m *Manager) runShards(ctx context.Context, loops []*loop, opts lease.Options) error {
	return lease.RunShards(ctx, opts, m.shards.count, func(ctx context.Context, i int, _ lease.Term) error {
		part := m.shards.take(i, ctx)
		defer m.shards.drain(i, part)
		for _, l := range loops {
			if l.sharded() {
				l.retell(ctx, i)
			}
		}
		if i == 0 {
			return m.work(ctx, &m.led)
		}
		<-ctx.Done()
		return nil
	})
}

// heard is an informer and what was registered with it.
type heard struct {
	informer interface {
		AddEventHandler(toolscache.ResourceEventHandler) (toolscache.ResourceEventHandlerRegistration, error)
		RemoveEventHandler(toolscache.ResourceEventHandlerRegistration) error
	}
	listener *listener
}

// retell enqueues every key of a shard for which there is something in the cache. It asks the server
// for nothing.
func (l *loop) retell(ctx context.Context, i int) {
	for _, h := range l.heard {
		again := *h.listener
		again.only = func(key request) bool { return l.mgr.shards.of(key) == i }
		told, err := h.informer.AddEventHandler(&again)
		if err != nil {
			return // the cache has been stopped
		}
		select {
		case <-told.HasSyncedChecker().Done():
		case <-ctx.Done():
		}
		_ = h.informer.RemoveEventHandler(told) // fails for handlers of others only
	}
}

// drop forgets a key that another replica works on.
func (l *loop) drop(key request) {
	l.queue.Forget(key)
	l.wakes.take(key)
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.failing, key)
	delete(l.going, key)
	delete(l.paused, key)
}
