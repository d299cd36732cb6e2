package cache

import (
	"context"
	"runtime"
	"sync"
	"time"

	toolscache "k8s.io/client-go/tools/cache"
	kclock "k8s.io/utils/clock"

	"github.com/setpoint-dev/setpoint/internal/timers"
)

// A registration tells one handler, in its own goroutine and in order, what changes.
type registration struct {
	view    *view
	handler toolscache.ResourceEventHandler
	resyncs []resyncing   // owned by run
	wake    chan struct{} // something is in the backlog
	told    chan struct{} // closed when the handler has been told of the first list
	gone    chan struct{} // closed when the handler is removed

	mu      sync.Mutex
	backlog backlog
}

// resyncing is when a handler is next told of everything that a stream has.
type resyncing struct {
	stream *stream
	period time.Duration
	due    time.Time
}

var _ toolscache.ResourceEventHandlerRegistration = (*registration)(nil)

// HasSynced says whether the handler has been told of everything that the first list had.
func (r *registration) HasSynced() bool { return isClosed(r.told) }

// HasSyncedChecker is HasSynced as a channel.
func (r *registration) HasSyncedChecker() toolscache.DoneChecker {
	return done{name: r.view.String() + " handler", ch: r.told}
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

// remove has run end. The feed's lock is held.
func (r *registration) remove() {
	if !isClosed(r.gone) {
		close(r.gone)
	}
}

// run tells the handler until the context ends or the handler is removed.
func (r *registration) run(ctx context.Context) {
	var spare []change
	clock := r.view.feed.clock
	var timer kclock.Timer
	var due <-chan time.Time // never, without resyncs
	if len(r.resyncs) > 0 {
		timer = clock.NewTimer(r.schedule(clock.Now()))
		defer timer.Stop()
		due = timer.C()
	}
	for {
		select {
		case <-ctx.Done():
			return
		case <-r.gone:
			return
		case now := <-due:
			for _, s := range r.resyncs {
				if !s.due.After(now) {
					r.push(r.view.feed.everything(s.stream)...)
				}
			}
			timers.Reset(timer, r.schedule(now))
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

// schedule says how long it is until the next resync, having planned those that are due anew.
func (r *registration) schedule(now time.Time) time.Duration {
	wait := r.resyncs[0].period * 2
	for i := range r.resyncs {
		s := &r.resyncs[i]
		if !s.due.After(now) {
			s.due = now.Add(r.view.feed.jitter(s.period))
		}
		wait = min(wait, s.due.Sub(now))
	}
	return wait
}

// tell hands over one change. What is told of because it is there is decoded only for that.
func (r *registration) tell(c change) {
	if c.typ == synced {
		close(r.told)
		return
	}
	keep := news
	if c.bulk {
		keep = passing
	}
	fresh, known := c.new, c.old
	if c.typ == deleted {
		fresh, known = c.old, nil
	}
	d, err := fresh.as(r.view.form, keep)
	if err != nil {
		r.view.feed.log.Error("a handler is not told of an object that cannot be read", "err", err)
		return
	}
	defer runtime.KeepAlive(d) // other handlers are about to want it
	if c.typ == updated && known != fresh {
		before, err := known.as(r.view.form, passing)
		if err == nil {
			r.handler.OnUpdate(before.obj, d.obj)
			return
		}
		c.typ = added // of what it was before nobody has been told
	}
	switch {
	case c.typ == added:
		r.handler.OnAdd(d.obj, c.bulk)
	case c.typ == updated:
		r.handler.OnUpdate(d.obj, d.obj)
	case c.missed:
		r.handler.OnDelete(toolscache.DeletedFinalStateUnknown{Key: storeKey(c.key), Obj: d.obj})
	default:
		r.handler.OnDelete(d.obj)
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
