package controller

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	cr "sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/recorder"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/setpoint-dev/setpoint/client"
	"github.com/setpoint-dev/setpoint/workqueue"
)

// A loop is one controller: a queue, what fills it, and workers that empty it.
type loop struct {
	name       string
	opts       Options
	mgr        *Manager
	reconciler reconcile.Reconciler
	queue      *workqueue.Queue[request]
	log        *slog.Logger
	stats      loopMetrics

	primary cr.Object // nil if there was no For
	watches []watch
	sources []source.Source
	heard   []heard
	told    []<-chan struct{} // closed when a handler has been told of all that was first listed
	filters []predicate.Predicate

	kind   schema.GroupVersionKind // of primary
	events recorder.EventRecorder
	wakes  wakes
	spins  spins

	mu      sync.Mutex             // guards what is below
	keys    map[request]*unsettled // keys with writes that the cache may not show yet
	paused  map[request]types.UID
	failing map[request]time.Time // since when each key's passes have failed
	going   map[request]time.Time // since when each key's object is being deleted
}

// unsettled is a key that has written what the cache may not show yet.
type unsettled struct {
	writes client.Writes
	parked bool // it was popped too early, and will be added when the cache has moved
}

func newLoop(b *Builder, r reconcile.Reconciler) *loop {
	b.options.FieldOwner = cmp.Or(b.options.FieldOwner, b.name)
	l := &loop{
		name: b.name, opts: b.options, mgr: b.mgr, reconciler: r,
		events:  b.mgr.GetEventRecorder(b.options.FieldOwner),
		log:     b.mgr.opts.Logger.With("controller", b.name),
		watches: slices.Concat(b.primary, b.watches), sources: b.sources, filters: slices.Clip(b.filters),
		keys: make(map[request]*unsettled), paused: make(map[request]types.UID),
		failing: make(map[request]time.Time), going: make(map[request]time.Time),
		wakes: wakes{keys: make(map[request][]workqueue.Reason)},
	}
	if len(b.primary) > 0 {
		l.primary, l.kind = b.primary[0].object, b.kind
	}
	l.queue = workqueue.New(workqueue.Options[request]{
		Name: b.name, RateLimiter: b.options.RateLimiter, Clock: b.mgr.opts.Clock,
	})
	return l
}

func (l *loop) workers() int { return max(l.opts.MaxConcurrentReconciles, 1) }

// Start runs workers until the context ends and each has finished its key. They begin when every
// handler has been told of all that is there: what a handler keeps for the reconciler is whole then.
// So are the sources that say when they are.
func (l *loop) Start(ctx context.Context) error {
	// A worker may see the end before the queue is told of it; the queue is shut down either way.
	defer l.queue.ShutDown()
	stop := context.AfterFunc(ctx, l.queue.ShutDown)
	defer stop()
	for _, told := range l.told {
		select {
		case <-told:
		case <-ctx.Done():
			return nil
		}
	}
	for _, src := range l.sources {
		if syncing, ok := src.(source.SyncingSource); ok {
			if err := syncing.WaitForSync(ctx); err != nil && ctx.Err() == nil {
				return fmt.Errorf("controller %q: wait for %v: %w", l.name, src, err)
			}
		}
	}
	var workers sync.WaitGroup
	for range l.workers() {
		workers.Go(func() {
			for {
				key, priority, shutdown := l.queue.GetWithPriority()
				if shutdown || ctx.Err() != nil {
					return
				}
				l.step(ctx, key, priority)
			}
		})
	}
	workers.Wait()
	return nil
}

// step does all there is to do about one key that was popped.
func (l *loop) step(ctx context.Context, key request, priority int) {
	defer l.queue.Done(key)
	if l.sharded() {
		held, leave, ok := l.mgr.shards.enter(key)
		if !ok {
			l.drop(key)
			return
		}
		defer leave()
		ctx = held
	}
	u := l.unsettled(key)
	if !l.settled(ctx, key, priority, u) {
		return
	}
	reasons, seen := l.wakes.take(key), l.look(ctx, key)
	l.note(key, seen)
	if l.pauses(key, seen) {
		l.queue.Forget(key)
		l.tidy(key, u)
		return
	}
	l.stats.active.Inc()
	defer l.stats.active.Dec()
	ctx, p := l.begin(ctx, key, seen, reasons)
	result, err := l.reconcile(ctx, p, &u.writes)
	l.spun(p, seen, !u.writes.Empty())
	l.conclude(key, priority, result, err)
	l.tidy(key, u)
}

func (l *loop) unsettled(key request) *unsettled {
	l.mu.Lock()
	defer l.mu.Unlock()
	u := l.keys[key]
	if u == nil {
		u = new(unsettled)
		l.keys[key] = u
	}
	return u
}

// tidy forgets a key that waits for nothing.
func (l *loop) tidy(key request, u *unsettled) {
	if !u.writes.Empty() {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if !u.parked {
		delete(l.keys, key)
	}
}

// settled says whether the cache shows everything that the key wrote when it was last worked on. If
// not, the key is parked: it comes back when the cache has moved, and costs nothing until then.
func (l *loop) settled(ctx context.Context, key request, priority int, u *unsettled) bool {
	if u.writes.Empty() {
		return true
	}
	l.mu.Lock()
	wasParked := u.parked
	u.parked = true
	l.mu.Unlock()
	var wake func()
	if !wasParked {
		wake = func() { l.unpark(key, priority, u) }
	}
	ok, err := l.mgr.client.Settled(ctx, &u.writes, wake)
	if (ok || err != nil) && !wasParked {
		l.mu.Lock()
		u.parked = false
		l.mu.Unlock()
	}
	if err != nil {
		l.queue.Fail(key, err, priority)
		return false
	}
	return ok
}

func (l *loop) unpark(key request, priority int, u *unsettled) {
	l.mu.Lock()
	u.parked = false
	l.mu.Unlock()
	l.add(workqueue.AddOptions{
		Priority: priority, Reason: workqueue.Reason{Event: "cache shows own writes"},
	}, key)
}

// add is how every key gets into the queue that has a reason to.
func (l *loop) add(opts workqueue.AddOptions, keys ...request) {
	if l.sharded() {
		keys = l.mgr.shards.mine(keys)
	}
	l.wakes.add(opts.Reason, keys...)
	l.queue.AddWith(opts, keys...)
}

// conclude decides when the key comes back.
func (l *loop) conclude(key request, priority int, result reconcile.Result, err error) {
	if result.Priority != nil {
		priority = *result.Priority
	}
	outcome := outcomeOf(result, err)
	l.failed(key, outcome.failed())
	switch outcome {
	case outcomeError, outcomeConflict:
		l.queue.Fail(key, err, priority)
	case outcomeAgain:
		l.queue.AddWith(workqueue.AddOptions{RateLimited: true, Priority: priority}, key)
	case outcomeAfter:
		l.queue.Forget(key)
		l.add(workqueue.AddOptions{
			After: result.RequeueAfter, Priority: priority, Reason: workqueue.Reason{Event: "asked to look again"},
		}, key)
	default:
		l.queue.Forget(key)
	}
}

// failed remembers since when a key's passes have failed.
func (l *loop) failed(key request, failed bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !failed {
		delete(l.failing, key)
	} else if _, known := l.failing[key]; !known {
		l.failing[key] = l.mgr.opts.Clock.Now()
	}
}

// note remembers since when a key's object is being deleted.
func (l *loop) note(key request, s state) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if s.deleting.IsZero() {
		delete(l.going, key)
	} else {
		l.going[key] = s.deleting
	}
}
