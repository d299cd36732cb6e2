package cache

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"

	"github.com/setpoint-dev/setpoint/cache/wire"
)

// A feed holds the objects of one kind, in whatever form they are read, and keeps them in step with
// the server.
type feed struct {
	gvk        schema.GroupVersionKind
	namespaced bool
	server     *server
	streams    []*stream
	quiet      time.Duration
	clock      clock.WithTicker
	random     func() float64
	log        *slog.Logger
	onError    toolscache.WatchErrorHandlerWithContext
	reflector  *toolscache.Reflector // names the feed to onError, and does nothing
	stats      stats
	parts      wire.Parts // that the objects of all streams share

	mu      sync.RWMutex
	table   *table
	views   [formsMax]*view
	whole   bool // more is wanted of objects than metadata, or was
	waiters []waiter
	stopped bool
	spawn   func(func(context.Context)) // runs something until the feed is stopped; nil before start
	cancel  context.CancelFunc
}

// stats count what a feed does.
type stats struct {
	lists, watches, failures, decodes atomic.Int64
}

// waiter is called once what it waits for is so. The feed's lock is held when it is asked.
type waiter struct {
	reached func() bool
	then    func()
}

func (f *feed) String() string { return f.gvk.String() }

// between returns a time between two.
func (f *feed) between(least, most time.Duration) time.Duration {
	return least + time.Duration(f.random()*float64(most-least))
}

// jitter spreads a period by a tenth to either side.
func (f *feed) jitter(d time.Duration) time.Duration { return f.between(d-d/10, d+d/10) }

// start runs streams and handlers until the context ends or the feed is stopped.
func (f *feed) start(ctx context.Context, running *sync.WaitGroup) {
	f.mu.Lock()
	defer f.mu.Unlock()
	ctx, f.cancel = context.WithCancel(ctx)
	f.spawn = func(fn func(context.Context)) { running.Go(func() { fn(ctx) }) }
	for _, s := range f.streams {
		f.spawn(s.run)
	}
	for _, v := range f.views {
		if v == nil {
			continue
		}
		for _, r := range v.handlers {
			f.spawn(r.run)
		}
	}
}

// view returns the view of objects in a form. The first of a form that needs more than is held has
// the streams ask for it.
func (f *feed) view(of form) *view {
	f.mu.Lock()
	defer f.mu.Unlock()
	if v := f.views[of]; v != nil {
		return v
	}
	v := &view{feed: f, form: of, ready: make(chan struct{}), gone: make(chan struct{})}
	if f.stopped {
		close(v.gone)
		return v
	}
	f.views[of] = v
	if of.whole() && !f.whole {
		f.whole = true
		for _, s := range f.streams {
			if s.cancel != nil {
				s.cancel(errMoreWanted)
			}
		}
	}
	f.makeReady()
	return v
}

// removeView stops the informer of a form, and says whether none is left.
func (f *feed) removeView(of form) (none bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if v := f.views[of]; v != nil {
		v.stop()
		f.views[of] = nil
		for id := range f.table.indexes {
			if id.given && id.of == of {
				delete(f.table.indexes, id)
			}
		}
	}
	return f.views == [formsMax]*view{}
}

// wants says whether more is wanted of objects than metadata.
func (f *feed) wants() bool {
	f.mu.RLock()
	defer f.mu.RUnlock()
	return f.whole
}

// opening says from where a watch is to go on, and remembers how to end it. It is false if by now
// more is wanted than the watch would bring.
func (f *feed) opening(s *stream, cancel context.CancelCauseFunc, whole bool) (revision int64, ok bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	s.cancel = cancel
	return s.revision, whole || !f.whole
}

// apply takes in an event.
func (f *feed) apply(s *stream, d delivery) {
	f.prepare(d.record)
	f.mu.Lock()
	defer f.mu.Unlock()
	s.revision, s.heard = max(s.revision, d.revision), f.clock.Now()
	if d.typ != watch.Bookmark {
		f.tell(f.table.apply(d.typ, d.record))
	}
	f.release()
}

// replace takes in a list.
func (f *feed) replace(s *stream, records []*record, revision int64, whole bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	s.revision, s.heard = max(s.revision, revision), f.clock.Now()
	f.tell(f.table.replace(records, s.covers))
	s.synced, s.resumes, s.whole = true, true, whole
	f.makeReady()
	f.release()
}

// prepare decodes the forms that indexes read, so that no reader has to wait for that. What comes
// with a list is not: there nobody reads yet, or most is held already.
func (f *feed) prepare(rec *record) {
	if rec == nil {
		return
	}
	var needed [formsMax]bool
	f.mu.RLock()
	for id := range f.table.indexes {
		if id.given {
			needed[id.of] = true
		}
	}
	f.mu.RUnlock()
	for of, need := range needed {
		if need {
			_, _ = rec.as(form(of), news) // the index will ask again, and report what is wrong
		}
	}
}

// makeReady tells the handlers of every form that has become complete what there is.
func (f *feed) makeReady() {
	for _, v := range f.views {
		if v == nil || isClosed(v.ready) || !f.complete(v.form) {
			continue
		}
		close(v.ready)
		for _, r := range v.handlers {
			r.push(f.initial()...)
		}
	}
}

func (f *feed) complete(of form) bool {
	for _, s := range f.streams {
		if !s.synced || of.whole() && !s.whole {
			return false
		}
	}
	return true
}

// initial is what a handler is told first.
func (f *feed) initial() []change {
	all := f.table.records()
	changes := make([]change, 0, len(all)+1)
	for _, rec := range all {
		changes = append(changes, change{typ: added, key: rec.key, new: rec, bulk: true})
	}
	return append(changes, change{typ: synced})
}

// everything returns each object of a stream as an update to itself, which is what a resync tells.
func (f *feed) everything(s *stream) []change {
	f.mu.RLock()
	defer f.mu.RUnlock()
	var changes []change
	for _, rec := range f.table.records() {
		if s.covers(rec.key.Namespace) {
			changes = append(changes, change{typ: updated, key: rec.key, old: rec, new: rec, bulk: true})
		}
	}
	return changes
}

// tell hands changes to the handlers of each form that is complete. The lock is held; handlers run
// in their own goroutines.
func (f *feed) tell(changes []change) {
	if len(changes) == 0 {
		return
	}
	for _, c := range changes {
		if c.old != nil && c.old.from.guard {
			c.old.verify()
		}
	}
	for _, v := range f.views {
		if v == nil || !isClosed(v.ready) {
			continue
		}
		for _, r := range v.handlers {
			r.push(changes...)
		}
	}
}

// release calls those whose wait is over. The lock is held, and they must not block.
func (f *feed) release() {
	f.waiters = slices.DeleteFunc(f.waiters, func(w waiter) bool {
		if !w.reached() {
			return false
		}
		w.then()
		return true
	})
}

// when reports whether something is so. If not, then is called once when it is, or when the feed
// is stopped; it must not block.
func (f *feed) when(reached func() bool, then func()) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.stopped || reached() {
		return true
	}
	if then != nil {
		f.waiters = append(f.waiters, waiter{reached, then})
		for _, s := range f.streams {
			select {
			case s.urgent <- struct{}{}:
			default:
			}
		}
	}
	return false
}

func (f *feed) waiting() bool {
	f.mu.RLock()
	defer f.mu.RUnlock()
	return len(f.waiters) > 0
}

// newness is the revision that reads are at least as new as. The lock is held.
func (f *feed) newness() int64 {
	newest := f.streams[0].revision
	for _, s := range f.streams {
		newest = min(newest, s.revision)
	}
	return newest
}

func (f *feed) revision() int64 {
	f.mu.RLock()
	defer f.mu.RUnlock()
	return f.newness()
}

// get returns an object, or nil.
func (f *feed) get(key types.NamespacedName) *record {
	f.mu.RLock()
	defer f.mu.RUnlock()
	if row := f.table.rows[key]; row != nil {
		return row.record
	}
	return nil
}

// cool lets go of what has not been read for a while.
func (f *feed) cool() {
	f.mu.RLock()
	all := make([]*record, 0, len(f.table.rows))
	for _, row := range f.table.rows {
		all = append(all, row.record)
	}
	f.mu.RUnlock()
	for _, rec := range all {
		rec.cool()
	}
	f.parts.Sweep()
}

// stop ends the feed: nobody waits for it any more.
func (f *feed) stop() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.stopped = true
	if f.cancel != nil {
		f.cancel()
	}
	for _, v := range f.views {
		if v != nil {
			v.stop()
		}
	}
	for _, w := range f.waiters {
		w.then()
	}
	f.waiters = nil
	for _, row := range f.table.rows {
		if row.from.guard {
			row.verify()
		}
	}
}
