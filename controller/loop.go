package controller

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"slices"
	"sync"

	"github.com/go-logr/logr"
	"github.com/google/uuid"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	cr "sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
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
	told    []<-chan struct{} // closed when a handler has been told of all that was first listed
	filters []predicate.Predicate

	mu   sync.Mutex
	keys map[request]*unsettled // keys with writes that the cache may not show yet
}

// unsettled is a key that has written what the cache may not show yet.
type unsettled struct {
	writes client.Writes
	parked bool // it was popped too early, and will be added when the cache has moved
}

func newLoop(b *Builder, r reconcile.Reconciler) *loop {
	l := &loop{
		name: b.name, opts: b.options, mgr: b.mgr, reconciler: r,
		log:     b.mgr.opts.Logger.With("controller", b.name),
		watches: slices.Concat(b.primary, b.watches), sources: b.sources, filters: slices.Clip(b.filters),
		keys: make(map[request]*unsettled),
	}
	if len(b.primary) > 0 {
		l.primary = b.primary[0].object
	}
	l.queue = workqueue.New(workqueue.Options[request]{
		Name: b.name, RateLimiter: b.options.RateLimiter, Clock: b.mgr.opts.Clock,
	})
	l.stats = b.mgr.stats.of(l)
	return l
}

func (l *loop) workers() int { return max(l.opts.MaxConcurrentReconciles, 1) }

// Start runs workers until the context ends and each has finished its key. They begin when every
// handler has been told of all that is there: what a handler keeps for the reconciler is whole then.
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
	u := l.unsettled(key)
	if !l.settled(ctx, key, priority, u) {
		return
	}
	l.stats.active.Inc()
	defer l.stats.active.Dec()
	result, err := l.reconcile(ctx, key, &u.writes)
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
	l.queue.AddWith(workqueue.AddOptions{
		Priority: priority, Reason: workqueue.Reason{Event: "cache shows own writes"},
	}, key)
}

type passKey struct{}

// PassFrom returns the id of the pass that a context was made for, as its log lines have it.
func PassFrom(ctx context.Context) string {
	id, _ := ctx.Value(passKey{}).(string)
	return id
}

// LoggerFrom returns the logger of the pass that a context was made for, or slog.Default().
func LoggerFrom(ctx context.Context) *slog.Logger {
	if l := logr.FromContextAsSlogLogger(ctx); l != nil {
		return l
	}
	return slog.Default()
}

// reconcile calls the reconciler once. A panic of it is returned as an error.
func (l *loop) reconcile(ctx context.Context, key request, writes *client.Writes) (result reconcile.Result, err error) {
	id := uuid.NewString()
	log := l.log.With("namespace", key.Namespace, "name", key.Name, "reconcileID", id)
	ctx = context.WithValue(client.Track(ctx, writes), passKey{}, id)
	ctx = logr.NewContextWithSlogLogger(ctx, log)
	if l.opts.ReconcileTimeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, l.opts.ReconcileTimeout)
		defer cancel()
	}
	began := l.mgr.opts.Clock.Now()
	defer func() {
		if p := recover(); p != nil {
			log.Error("reconcile panicked", "panic", p, "stack", string(debug.Stack()))
			result, err = reconcile.Result{}, fmt.Errorf("panic: %v", p)
			l.stats.panics.Inc()
		}
		l.stats.observe(l.mgr.opts.Clock.Since(began), result, err)
		l.report(ctx, log, err)
	}()
	return l.reconciler.Reconcile(ctx, key)
}

// report logs an error by how much it is to worry about.
func (l *loop) report(ctx context.Context, log *slog.Logger, err error) {
	switch {
	case err == nil, ctx.Err() != nil && errors.Is(err, context.Canceled):
	case apierrors.IsConflict(err):
		log.Info("conflict; reading again", "err", err)
	default:
		log.Error("reconcile failed", "err", err, "terminal", errors.Is(err, reconcile.TerminalError(nil)))
	}
}

// conclude decides when the key comes back.
func (l *loop) conclude(key request, priority int, result reconcile.Result, err error) {
	if result.Priority != nil {
		priority = *result.Priority
	}
	switch {
	case errors.Is(err, reconcile.TerminalError(nil)):
		l.queue.Forget(key)
	case err != nil:
		l.queue.Fail(key, err, priority)
	case result.RequeueAfter > 0:
		l.queue.Forget(key)
		l.queue.AddWith(workqueue.AddOptions{
			After: result.RequeueAfter, Priority: priority, Reason: workqueue.Reason{Event: "asked to look again"},
		}, key)
	//lint:ignore SA1019 deprecated upstream, and still sent by operators
	case result.Requeue:
		l.queue.AddWith(workqueue.AddOptions{RateLimited: true, Priority: priority}, key)
	default:
		l.queue.Forget(key)
	}
}
