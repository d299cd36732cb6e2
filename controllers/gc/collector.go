package gc

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	"k8s.io/utils/lru"
)

const (
	// retryMin and retryMax bound the delays of an object that could not be dealt with. The upper
	// one is short, for it is also how long an owner that was never seen goes unchecked.
	retryMin = 5 * time.Millisecond
	retryMax = time.Minute
	// syncMax bounds how long the workers wait for all kinds to be listed once. Nothing they do
	// depends on it; it saves asking about owners that are listed a moment later.
	syncMax = 30 * time.Second
	// rediscoverMin bounds how often references to kinds that do not exist have the server asked.
	rediscoverMin = time.Second
	// absentMax is how many absent owners are remembered, so that the dependents of one owner do
	// not each ask for it. A uid that is gone never comes back.
	absentMax = 1000
)

// config is what a collector works with.
type config struct {
	Metadata   metadata.Interface
	Discovery  Discovery
	Clock      clock.WithTicker
	Log        *slog.Logger
	Events     events.EventRecorder
	Workers    int
	Rediscover time.Duration
}

// collector runs the garbage collection: monitors feed the graph, the graph fills the queue, and
// workers deal with what is in it.
type collector struct {
	metadata   metadata.Interface
	discovery  Discovery
	clock      clock.WithTicker
	log        *slog.Logger
	events     events.EventRecorder
	workers    int
	rediscover time.Duration
	queue      workqueue.TypedRateLimitingInterface[types.UID]
	unknown    chan struct{} // has an element if a kind was met that is not in the catalog
	absent     *lru.Cache    // of ownerKey

	mu       sync.Mutex
	graph    *graph
	catalog  catalog
	monitors map[schema.GroupResource]*monitor
}

func newCollector(c config) *collector {
	limiter := workqueue.NewTypedItemExponentialFailureRateLimiter[types.UID](retryMin, retryMax)
	return &collector{
		metadata: c.Metadata, discovery: c.Discovery, clock: c.Clock, log: c.Log, events: c.Events,
		workers: c.Workers, rediscover: c.Rediscover,
		queue: workqueue.NewTypedRateLimitingQueueWithConfig(limiter,
			workqueue.TypedRateLimitingQueueConfig[types.UID]{Clock: c.Clock}),
		unknown:  make(chan struct{}, 1),
		absent:   lru.New(absentMax),
		graph:    newGraph(),
		monitors: map[schema.GroupResource]*monitor{},
	}
}

// Start collects until the context ends, and returns when all of its goroutines have.
func (c *collector) Start(ctx context.Context) error {
	var all sync.WaitGroup
	defer all.Wait()
	defer c.queue.ShutDown()
	c.refresh(ctx, &all)
	c.awaitSync(ctx)
	for range c.workers {
		all.Go(func() {
			for c.work(ctx) {
			}
		})
	}
	ticker := c.clock.NewTicker(c.rediscover)
	defer ticker.Stop()
	last := c.clock.Now()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C():
		case <-c.unknown:
			if c.clock.Since(last) < rediscoverMin {
				continue // the object that met it is looked at again, and asks again
			}
		}
		c.refresh(ctx, &all)
		last = c.clock.Now()
	}
}

// refresh discovers, and starts and stops monitors accordingly.
func (c *collector) refresh(ctx context.Context, all *sync.WaitGroup) {
	c.mu.Lock()
	old := c.catalog
	watched := map[schema.GroupResource]resource{}
	for gr, m := range c.monitors {
		watched[gr] = m.resource
	}
	c.mu.Unlock()

	next, err := discover(c.discovery, old)
	if err != nil {
		c.log.Warn("some kinds could not be discovered and are kept as they were", "error", err)
	}
	start, stop := next.changes(watched)
	c.mu.Lock()
	c.catalog = next
	for _, r := range stop {
		c.monitors[r.GroupResource()].cancel()
		delete(c.monitors, r.GroupResource())
	}
	for _, r := range start {
		m := newMonitor(c, r)
		var own context.Context
		own, m.cancel = context.WithCancel(ctx)
		c.monitors[r.GroupResource()] = m
		all.Go(func() { m.run(own) })
	}
	c.mu.Unlock()
	for _, r := range stop {
		if _, replaced := next.watched[r.GroupResource()]; !replaced {
			c.removeAll(c.known(r)) // the kind is gone, and its objects with it
		}
	}
}

// awaitSync returns when every monitor has listed its objects, syncMax has passed or ctx has ended.
func (c *collector) awaitSync(ctx context.Context) {
	c.mu.Lock()
	var pending []*monitor
	for _, m := range c.monitors {
		pending = append(pending, m)
	}
	c.mu.Unlock()
	timer := c.clock.NewTimer(syncMax)
	defer timer.Stop()
	for _, m := range pending {
		select {
		case <-m.synced:
		case <-timer.C():
			c.log.Warn("collecting before every kind has been listed", "missing",
				m.resource.GroupResource().String())
			return
		case <-ctx.Done():
			return
		}
	}
}

// observe feeds one object to the graph.
func (c *collector) observe(o object) {
	c.mu.Lock()
	look := c.graph.observe(o)
	c.mu.Unlock()
	c.enqueue(look)
}

// removeAll takes objects that are gone out of the graph.
func (c *collector) removeAll(uids []types.UID) {
	var look []types.UID
	c.mu.Lock()
	for _, uid := range uids {
		look = append(look, c.graph.remove(uid)...)
	}
	c.mu.Unlock()
	c.enqueue(look)
}

func (c *collector) enqueue(uids []types.UID) {
	for _, uid := range uids {
		c.queue.Add(uid)
	}
}

// known returns the uids of all objects of the resource in the graph.
func (c *collector) known(r resource) []types.UID {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.graph.of(r.GroupResource())
}

func (c *collector) view(uid types.UID) (view, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.graph.view(uid)
}

// work deals with one object from the queue and reports whether there may be more.
func (c *collector) work(ctx context.Context) bool {
	uid, shutdown := c.queue.Get()
	if shutdown {
		return false
	}
	defer c.queue.Done(uid)
	again, err := c.process(ctx, uid)
	switch {
	case ctx.Err() != nil:
	case err != nil:
		level := slog.LevelWarn
		if apierrors.IsConflict(err) {
			level = slog.LevelDebug // it changed meanwhile, and is looked at again
		}
		c.log.Log(ctx, level, "object is looked at again", "uid", uid, "error", err)
		c.queue.AddRateLimited(uid)
	case again:
		c.queue.AddRateLimited(uid)
	default:
		c.queue.Forget(uid)
	}
	return true
}

// process looks at one object and does what has to be done about it. again asks to look once more
// later though nothing failed.
func (c *collector) process(ctx context.Context, uid types.UID) (again bool, err error) {
	v, ok := c.view(uid)
	if !ok {
		return false, nil
	}
	live, err := c.get(ctx, v.identity)
	if err != nil {
		return false, fmt.Errorf("read %s %s/%s: %w", v.Kind, v.Namespace, v.Name, err)
	}
	decision, ok := settled(v, live)
	if !ok {
		owners := make([]ownerState, len(live.OwnerReferences))
		for i, ref := range live.OwnerReferences {
			if owners[i], err = c.ownerState(ctx, v, ref); err != nil {
				return false, fmt.Errorf("owner %s %s of %s %s/%s: %w", ref.Kind, ref.Name, v.Kind,
					v.Namespace, v.Name, err)
			}
		}
		decision = decide(v, live, owners)
	}
	if err := c.act(ctx, v, live, decision); err != nil {
		return false, fmt.Errorf("%s %s/%s: %w", v.Kind, v.Namespace, v.Name, err)
	}
	// An owner that has not been seen may come and go unseen: ask again until it has been.
	return decision.Verb == keep && len(v.VirtualOwners) > 0, nil
}
