package cache

import (
	"context"
	"sync"
	"time"

	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
)

// A registration tells one handler, in its own goroutine and in order, what changes.
type registration struct {
	feed    *feed
	handler toolscache.ResourceEventHandler
	resync  time.Duration
	wake    chan struct{} // something is in the backlog
	told    chan struct{} // closed when the handler has been told of the first list
	gone    chan struct{} // closed when the handler is removed

	mu      sync.Mutex
	backlog backlog
	removed bool
}

var _ toolscache.ResourceEventHandlerRegistration = (*registration)(nil)

// HasSynced says whether the handler has been told of everything that the first list had.
func (r *registration) HasSynced() bool { return isClosed(r.told) }

// HasSyncedChecker is HasSynced as a channel.
func (r *registration) HasSyncedChecker() toolscache.DoneChecker {
	return done{name: r.feed.String() + " handler", ch: r.told}
}

func (r *registration) push(changes ...change) {
	r.mu.Lock()
	r.backlog.push(changes...)
	r.mu.Unlock()
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// run tells the handler until the context ends or the handler is removed.
func (r *registration) run(ctx context.Context) {
	var spare []change
	timer := r.startResync()
	if timer != nil {
		defer timer.Stop()
	}
	for {
		var due <-chan time.Time
		if timer != nil {
			due = timer.C()
		}
		select {
		case <-ctx.Done():
			return
		case <-r.gone:
			return
		case <-due:
			r.push(r.feed.everything()...)
			timer.Reset(r.feed.jitter(r.resync))
		case <-r.wake:
			r.mu.Lock()
			changes := r.backlog.take(spare)
			r.mu.Unlock()
			for _, c := range changes {
				if ctx.Err() != nil || isClosed(r.gone) {
					return
				}
				r.tell(c)
			}
			clear(changes)
			spare = changes
		}
	}
}

func (r *registration) startResync() clock.Timer {
	if r.resync <= 0 {
		return nil
	}
	return r.feed.clock.NewTimer(r.feed.jitter(r.resync))
}

func (r *registration) tell(c change) {
	switch c.typ {
	case added:
		r.handler.OnAdd(c.new, c.initial)
	case updated:
		r.handler.OnUpdate(c.old, c.new)
	case deleted:
		if c.missed {
			r.handler.OnDelete(toolscache.DeletedFinalStateUnknown{Key: storeKey(c.key), Obj: c.old})
			return
		}
		r.handler.OnDelete(c.old)
	case synced:
		close(r.told)
	}
}

// done is a channel that is closed, with a name.
type done struct {
	name string
	ch   <-chan struct{}
}

func (d done) Name() string          { return d.name }
func (d done) Done() <-chan struct{} { return d.ch }

func isClosed(ch <-chan struct{}) bool {
	select {
	case <-ch:
		return true
	default:
		return false
	}
}
