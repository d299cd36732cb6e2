// Package workqueue holds the keys that a controller has still to look at.
//
// A key that waits is there once, however often it is added. A key is never worked on twice at
// once: added while it is in work, it comes again after Done. Every Add that happens after a Get
// returned the key leads to another Get of it. A failing key waits by itself, 5 ms doubling to
// 1000 s, and all failing keys together are bounded by token buckets; neither slows a key that
// does not fail. Keys of a higher priority go first, and one Get in eight is for the others.
//
// Namespaces, or whatever classes a user chooses, take turns within a priority, and each has a
// budget of retries of its own: a thousand failing keys of one delay a key of another by one Get,
// and its retries not at all.
//
//	q := workqueue.New[types.NamespacedName](workqueue.Options[types.NamespacedName]{Name: "web"})
//	for {
//		key, shutdown := q.Get()
//		if shutdown {
//			return
//		}
//		if err := reconcile(key); err != nil {
//			q.Fail(key, err, 0)
//		} else {
//			q.Forget(key)
//		}
//		q.Done(key)
//	}
//
// A Queue implements client-go's workqueue.TypedRateLimitingInterface and controller-runtime's
// priorityqueue.PriorityQueue. All methods may be called concurrently.
package workqueue

import (
	"cmp"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/setpoint-dev/setpoint/internal/timers"
)

// Options are the settings of a queue. The zero value is a good default.
type Options[T comparable] struct {
	// Name names the queue in metrics.
	Name string
	// DelayMin is how long a key waits after its first failure, doubled with each further one up to
	// DelayMax. Zero means 5 ms and 1000 s.
	DelayMin, DelayMax time.Duration
	// RetriesPerSecond bounds the retries of all keys of a class together, after a burst of
	// RetriesBurst. Zero means 10 and 100; a negative rate means no bound. All classes together are
	// bounded by ten times that.
	RetriesPerSecond float64
	RetriesBurst     int
	// Class says between what the queue is fair. Nil means the namespace, if the keys are
	// types.NamespacedName or reconcile.Request, and otherwise that all keys are of one class. It
	// is called with the queue locked: it must be quick, and not use the queue.
	Class func(T) string
	// RateLimiter, if not nil, decides on delays instead of DelayMin, DelayMax and the rates. It must
	// not be shared between queues.
	RateLimiter workqueue.TypedRateLimiter[T]
	// Clock is what time is read from; nil is the machine's.
	Clock clock.WithTicker
}

// Queue is a set of keys to work on, and what is known of each. Use New.
type Queue[T comparable] struct {
	name  string
	clock clock.WithTicker
	real  bool // the clock is the machine's
	epoch time.Time
	descs descriptors

	mu       sync.Mutex
	changed  sync.Cond // something became ready, ended, or shut down
	waiters  int       // goroutines that wait for it
	core     *core[T]
	closed   bool
	draining bool
	timer    chan struct{} // pokes the timer goroutine; nil until a first delay starts it
	stop     chan struct{} // closed with the queue
}

var (
	_ workqueue.TypedRateLimitingInterface[string] = (*Queue[string])(nil)
	_ priorityqueue.PriorityQueue[string]          = (*Queue[string])(nil)
)

// New returns an empty queue. It runs no goroutine until a first key is delayed, and that one ends
// with ShutDown.
func New[T comparable](opts Options[T]) *Queue[T] {
	q := &Queue[T]{
		name: opts.Name, clock: opts.Clock, descs: newDescriptors(opts.Name), stop: make(chan struct{}),
	}
	if q.clock == nil {
		q.clock = clock.RealClock{}
	}
	_, q.real = q.clock.(clock.RealClock)
	q.epoch = q.clock.Now()
	q.changed.L = &q.mu
	if opts.Class == nil {
		opts.Class = namespaces[T]()
	}
	q.core = newCore(config[T]{
		delayMin: cmp.Or(opts.DelayMin, 5*time.Millisecond),
		delayMax: cmp.Or(opts.DelayMax, 1000*time.Second),
		rate:     cmp.Or(opts.RetriesPerSecond, 10),
		burst:    cmp.Or(opts.RetriesBurst, 100),
		class:    opts.Class,
		limiter:  opts.RateLimiter,
	})
	return q
}

// Name is the name given in Options.
func (q *Queue[T]) Name() string { return q.name }

// now is the time since the queue was made; with the machine's clock, a monotonic one. It is read
// before the lock is taken, which is held for little longer than that takes.
func (q *Queue[T]) now() time.Duration {
	if q.real {
		return time.Since(q.epoch)
	}
	return q.clock.Since(q.epoch)
}

// tick makes ready what is due. What adds and what gets begins with it, so that keys become ready in
// the order of their times whenever the timer comes round. The lock is held.
func (q *Queue[T]) tick(now time.Duration) {
	for range q.core.tick(now) {
		q.wake()
	}
}

// wake has one goroutine look again. The lock is held.
func (q *Queue[T]) wake() {
	if q.waiters > 0 {
		q.changed.Signal()
	}
}

// wait waits until something may have changed. The lock is held before and after.
func (q *Queue[T]) wait() {
	q.waiters++
	q.changed.Wait()
	q.waiters--
}

// namespaces returns a function for the namespace of keys that have one, or nil.
func namespaces[T comparable]() func(T) string {
	for _, f := range []any{
		func(k types.NamespacedName) string { return k.Namespace },
		func(k reconcile.Request) string { return k.Namespace },
	} {
		if of, ok := f.(func(T) string); ok {
			return of
		}
	}
	return nil
}

// AddOptions say how AddWith adds.
type AddOptions struct {
	// After delays the key; of several delays the shortest holds.
	After time.Duration
	// RateLimited counts a failure of the key and delays it accordingly, but no longer than After.
	RateLimited bool
	// Priority of the key; of several the highest holds. Higher goes first, zero is usual.
	Priority int
	// Reason is remembered until the key is worked on, for people.
	Reason Reason
}

// Add makes the key ready.
func (q *Queue[T]) Add(key T) { q.add(key, &AddOptions{}, nil) }

// AddAfter makes the key ready after a while, unless it is or becomes ready earlier.
func (q *Queue[T]) AddAfter(key T, after time.Duration) {
	q.add(key, &AddOptions{After: after}, nil)
}

// AddRateLimited counts a failure of the key and makes it ready after the delay that follows.
func (q *Queue[T]) AddRateLimited(key T) { q.add(key, &AddOptions{RateLimited: true}, nil) }

// Fail is AddRateLimited with a priority, that remembers the error for Keys.
func (q *Queue[T]) Fail(key T, err error, priority int) {
	q.add(key, &AddOptions{RateLimited: true, Priority: priority}, err)
}

// AddWith adds keys in any of these ways.
func (q *Queue[T]) AddWith(opts AddOptions, keys ...T) {
	for _, key := range keys {
		q.add(key, &opts, nil)
	}
}

func (q *Queue[T]) add(key T, opts *AddOptions, err error) {
	now := q.now()
	q.mu.Lock()
	if !q.closed {
		q.tick(now)
		ready, sooner := q.core.add(key, opts, err)
		if ready {
			q.wake()
		}
		if sooner {
			q.pokeTimer()
		}
	}
	q.mu.Unlock()
}

// AddWithOpts is AddWith in controller-runtime's words.
func (q *Queue[T]) AddWithOpts(o priorityqueue.AddOpts, keys ...T) {
	opts := AddOptions{After: o.After, RateLimited: o.RateLimited}
	if o.Priority != nil {
		opts.Priority = *o.Priority
	}
	q.AddWith(opts, keys...)
}

// Get waits for a key and takes it into work; the caller must call Done with it. After ShutDown it
// returns what is still ready, and then shutdown.
func (q *Queue[T]) Get() (key T, shutdown bool) {
	key, _, shutdown = q.GetWithPriority()
	return key, shutdown
}

// GetWithPriority is Get that also says which priority the key had.
func (q *Queue[T]) GetWithPriority() (key T, priority int, shutdown bool) {
	now := q.now()
	q.mu.Lock()
	defer q.mu.Unlock()
	for {
		q.tick(now)
		key, priority, ok := q.core.pop()
		if ok {
			return key, priority, false
		}
		if q.closed {
			return key, 0, true
		}
		q.wait()
		now = q.now()
	}
}

// TryGet is Get that does not wait; ok is false if no key is ready now.
func (q *Queue[T]) TryGet() (key T, priority int, ok bool) {
	now := q.now()
	q.mu.Lock()
	defer q.mu.Unlock()
	q.tick(now)
	return q.core.pop()
}

// Done ends the work on a key that Get returned. If it was added meanwhile, it is ready again.
func (q *Queue[T]) Done(key T) {
	q.mu.Lock()
	ready := q.core.done(key)
	switch {
	case q.closed:
		q.changed.Broadcast()
	case ready:
		q.wake()
	}
	q.mu.Unlock()
}

// Forget clears the failures of a key. Done must be called all the same.
func (q *Queue[T]) Forget(key T) {
	q.mu.Lock()
	q.core.forget(key)
	q.mu.Unlock()
}

// NumRequeues returns how many failures of the key have been counted since Forget.
func (q *Queue[T]) NumRequeues(key T) int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.core.failures(key)
}

// Len returns how many keys are ready; those delayed or in work are not counted.
func (q *Queue[T]) Len() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.core.depth
}

// ShutDown ends the queue: adds are ignored, delayed keys are dropped, and Get returns what is
// ready and then shutdown.
func (q *Queue[T]) ShutDown() {
	q.mu.Lock()
	q.shutDown(false)
	q.mu.Unlock()
}

// ShutDownWithDrain is ShutDown that waits until every key that was ready or in work has been done,
// and so has what was added to them in work. ShutDown ends the waiting.
func (q *Queue[T]) ShutDownWithDrain() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.shutDown(true)
	for q.draining && (len(q.core.working)+q.core.depth > 0) {
		q.wait()
	}
}

func (q *Queue[T]) shutDown(drain bool) {
	if !q.closed {
		q.closed = true
		q.core.dropDelayed()
		close(q.stop)
	}
	q.draining = drain
	q.changed.Broadcast()
}

// ShuttingDown says whether the queue has been shut down.
func (q *Queue[T]) ShuttingDown() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.closed
}

// pokeTimer tells the timer goroutine that the earliest delay has changed, and starts it if there
// is none. The lock is held.
func (q *Queue[T]) pokeTimer() {
	if q.timer == nil {
		q.timer = make(chan struct{}, 1)
		go q.runTimer()
	}
	select {
	case q.timer <- struct{}{}:
	default:
	}
}

// runTimer makes delayed keys ready as their time comes, until the queue is shut down.
func (q *Queue[T]) runTimer() {
	timer := q.clock.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		select {
		case <-q.stop:
			return
		case <-q.timer:
		case <-timer.C():
			now := q.now()
			q.mu.Lock()
			q.tick(now)
			q.mu.Unlock()
		}
		timers.Reset(timer, q.untilDue())
	}
}

// untilDue returns how long to wait for the next delayed key; if there is none, for long.
func (q *Queue[T]) untilDue() time.Duration {
	q.mu.Lock()
	defer q.mu.Unlock()
	if due, ok := q.core.nextDue(); ok {
		return due - q.now()
	}
	return time.Hour
}
