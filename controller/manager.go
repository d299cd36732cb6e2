// Package controller runs reconcilers: what watches turn into keys, keys into calls of Reconcile, and
// the results of those into further keys.
//
//	mgr, err := controller.NewManager(config, controller.ManagerOptions{})
//	err = controller.ManagedBy(mgr).
//		For(&appsv1.ReplicaSet{}).
//		Owns(&corev1.Pod{}).
//		Complete(&reconciler{client: mgr.GetClient()})
//	err = mgr.Start(ctx)
//
// What is promised to a Reconciler, which is controller-runtime's:
//   - It is given a key and nothing else. Whatever woke it, it reads what is and decides from that.
//   - It is not called before the caches it reads have their first list, and never twice at once for
//     one key.
//   - It never reads state older than its own writes: before a key is worked on again, the cache
//     shows what was written when it was worked on before. See package client.
//   - An error brings the key back after a delay of its own, 5 ms doubling to 1000 s;
//     reconcile.TerminalError is counted, logged and not tried again; Result.RequeueAfter brings the
//     key back at that time, or when something wakes it earlier. A panic is an error.
//   - The context ends when the manager stops or loses its lease, and carries a logger with the key
//     and an id of the pass (for log/slog by LoggerFrom, for logr by logr.FromContext).
package controller

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	crcache "sigs.k8s.io/controller-runtime/pkg/cache"
	cr "sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/controller-runtime/pkg/recorder"

	"github.com/setpoint-dev/setpoint/cache"
	"github.com/setpoint-dev/setpoint/client"
	"github.com/setpoint-dev/setpoint/internal/connect"
	"github.com/setpoint-dev/setpoint/internal/timers"
	"github.com/setpoint-dev/setpoint/lease"
)

// ManagerOptions are the settings of a manager. The zero value is a good default.
type ManagerOptions struct {
	// HTTPClient is used for all requests; nil makes one from the configuration. Only the latter
	// sends the fence of the lease's term; another can be given lease.Fenced.
	HTTPClient *http.Client
	// Scheme knows the Go types of the kinds; nil is client-go's.
	Scheme *runtime.Scheme
	// Mapper maps kinds to resources; nil asks the server's discovery when needed.
	Mapper meta.RESTMapper
	// Cache are the settings of the cache: what is held of which kinds, and how often every key is
	// looked at again though nothing is known to have changed (SyncPeriod). Its HTTPClient, Scheme and
	// Mapper are those above.
	Cache crcache.Options
	// DetectMutations has the cache panic when somebody modifies what it shares; it is for tests, as it
	// decodes each object again.
	DetectMutations bool
	// Lease, if not nil, has controllers run only while this process holds it. The manager fills in
	// Client, Clock, Random and Logger where they are nil.
	Lease *lease.Options
	// Shards, if more than one, has all replicas with the same Lease and number of shards work side by
	// side: each key is in one of so many shards, each shard has a lease of its own (that of Lease with
	// the number behind its name), and the replicas that are there share the shards. When one joins or
	// leaves, only the keys of the shards that it takes or had move. What Add is given runs with the
	// first shard. A source that is not a kind of object must tell all replicas of its keys.
	Shards int
	// StopTimeout bounds how long Start waits for controllers to end when it is told to. Zero means
	// 30 s.
	StopTimeout time.Duration
	// Metrics, if not nil, is where the metrics of controllers, queues and the cache are registered.
	Metrics prometheus.Registerer
	// TracerProvider, if not nil, is given a span for each pass, with one below it for each request
	// that the pass makes.
	TracerProvider trace.TracerProvider
	// Logger is what the manager and its controllers log to; nil is slog.Default().
	Logger *slog.Logger
	// Clock is what time is read from; nil is the machine's.
	Clock clock.WithTicker
	// Random returns numbers from 0 to below 1, by which waits are spread; it may be called
	// concurrently. Nil is math/rand/v2's.
	Random func() float64
}

// Manager runs controllers, and what they share: one cache, one client, one sink of events. Use
// NewManager. Its methods may be called concurrently.
type Manager struct {
	config *rest.Config
	opts   ManagerOptions
	client *client.Client
	shards shards
	cache  *cache.Cache
	events *eventSink
	stats  *metrics
	tracer trace.Tracer
	// referee finds writers that undo each other.
	referee *referee

	// end has everything end, for a reason; there once Start has been called.
	end context.CancelCauseFunc

	mu         sync.Mutex
	loops      []*loop
	led        crew // what runs where the lease is held
	everywhere crew // what runs on every replica
	started    bool
	over       <-chan struct{} // closed when everything is to end; nil before Start
}

// NewManager returns a manager of the API server that the configuration names. The client does not
// limit its own rate unless the configuration says so: the server tells who asks too much.
func NewManager(config *rest.Config, opts ManagerOptions) (*Manager, error) {
	config = rest.CopyConfig(config)
	// What a controller writes in a term of the lease is refused when the term is over.
	config.Wrap(lease.Fenced)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return &requests{next: next} })
	config.UserAgent = cmp.Or(config.UserAgent, rest.DefaultKubernetesUserAgent())
	if config.QPS == 0 && config.RateLimiter == nil {
		config.QPS = -1
	}
	if err := opts.fill(config); err != nil {
		return nil, fmt.Errorf("controller: %w", err)
	}
	c, err := cache.New(config, opts.cache())
	if err != nil {
		return nil, err
	}
	if opts.Metrics != nil {
		if err := opts.Metrics.Register(c); err != nil {
			return nil, fmt.Errorf("controller: metrics of the cache: %w", err)
		}
	}
	cl, err := client.New(config, client.Options{
		HTTPClient: opts.HTTPClient, Scheme: opts.Scheme, Mapper: opts.Mapper, Cache: c,
	})
	if err != nil {
		return nil, err
	}
	m := &Manager{
		config: config, opts: opts, client: cl, cache: c,
		shards: shards{count: opts.Shards, held: make(map[int]*shard)},
		events: newEventSink(cl, opts), stats: newMetrics(opts.Metrics), tracer: tracerOf(opts.TracerProvider),
	}
	m.referee = &referee{mgr: m, kinds: make(map[schema.GroupVersionKind]bool)}
	return m, nil
}

// fill replaces what is not set.
func (o *ManagerOptions) fill(config *rest.Config) (err error) {
	if o.Scheme == nil {
		o.Scheme = scheme.Scheme
	}
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	if o.Shards > 1 && o.Lease == nil {
		return fmt.Errorf("found %d shards and no Lease, whose name those of the shards begin with", o.Shards)
	}
	o.StopTimeout = cmp.Or(o.StopTimeout, 30*time.Second)
	if o.HTTPClient == nil {
		if o.HTTPClient, err = connect.HTTPClient(config); err != nil {
			return err
		}
	}
	if o.Mapper == nil {
		o.Mapper, err = apiutil.NewDynamicRESTMapper(config, o.HTTPClient)
	}
	return err
}

// cache returns the settings of the cache.
func (o *ManagerOptions) cache() cache.Options {
	all := cache.Options{
		Options: o.Cache, DetectMutations: o.DetectMutations, Clock: o.Clock, Random: o.Random, Logger: o.Logger,
	}
	all.HTTPClient, all.Scheme, all.Mapper = o.HTTPClient, o.Scheme, o.Mapper
	return all
}

// GetClient returns a client that reads from the cache and writes to the server, and in a reconcile
// never reads what is older than the controller's own writes.
func (m *Manager) GetClient() cr.Client { return m.client }

// GetAPIReader returns a reader that asks the server each time.
func (m *Manager) GetAPIReader() cr.Reader { return m.client.Live() }

// GetCache returns the cache that all controllers share.
func (m *Manager) GetCache() crcache.Cache { return m.cache }

// GetFieldIndexer adds indexes to the cache; to be used before Start.
func (m *Manager) GetFieldIndexer() cr.FieldIndexer { return m.cache }

// GetScheme returns the scheme of the client and the cache.
func (m *Manager) GetScheme() *runtime.Scheme { return m.opts.Scheme }

// GetRESTMapper maps kinds to resources.
func (m *Manager) GetRESTMapper() meta.RESTMapper { return m.opts.Mapper }

// GetHTTPClient returns the client of all requests.
func (m *Manager) GetHTTPClient() *http.Client { return m.opts.HTTPClient }

// GetConfig returns the configuration the manager was made with.
func (m *Manager) GetConfig() *rest.Config { return m.config }

// GetEventRecorder returns a recorder of events that the named controller reports. Recording never
// blocks; see eventSink for what is dropped.
func (m *Manager) GetEventRecorder(name string) recorder.EventRecorder {
	return eventRecorder{sink: m.events, reporter: name}
}

// Clock is what controllers read time from.
func (m *Manager) Clock() clock.WithTicker { return m.opts.Clock }

// Logger is what controllers log to outside of a reconcile.
func (m *Manager) Logger() *slog.Logger { return m.opts.Logger }

// addLoop takes in a controller. Its watches begin with the manager, its work when the caches have
// synced.
func (m *Manager) addLoop(l *loop) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.started {
		return fmt.Errorf("controller %q: it was added after the manager was started", l.name)
	}
	for _, other := range m.loops {
		if other.name == l.name {
			return fmt.Errorf("controller %q: there is another of the name", l.name)
		}
	}
	l.stats = m.stats.of(l) // not before: metrics can be registered under a name once
	m.loops = append(m.loops, l)
	return nil
}

// Start runs everything until the context ends or something fails. Then it stops controllers first,
// gives back the lease when they have ended, and stops the cache last. It can be called once.
//
// It begins when the server knows every kind that controllers watch, and until then says in the log
// which it does not know.
func (m *Manager) Start(ctx context.Context) error {
	m.mu.Lock()
	if m.started {
		m.mu.Unlock()
		return errors.New("controller: the manager was started twice")
	}
	m.started = true
	loops := m.loops
	ctx, m.end = context.WithCancelCause(ctx)
	m.over = ctx.Done()
	m.mu.Unlock()
	defer m.end(nil)
	for _, l := range loops {
		defer l.queue.ShutDown() // of a standby that never leads nobody else does
	}

	// Cache and events outlive the controllers, so that what they do last is done well.
	base, stopBase := context.WithCancel(context.WithoutCancel(ctx))
	var running sync.WaitGroup
	defer func() { stopBase(); running.Wait() }()
	if err := m.awaitKinds(ctx, loops); err != nil {
		return err
	}
	for _, l := range loops {
		if err := l.watch(base); err != nil {
			return fmt.Errorf("controller %q: %w", l.name, err)
		}
	}
	running.Go(func() { _ = m.cache.Start(base) })
	running.Go(func() { m.events.run(base) })
	if !m.cache.WaitForCacheSync(ctx) {
		return nil // told to stop before there was anything to do
	}
	return m.run(ctx, loops)
}

// kindEvery is how often the server is asked for a kind that it does not know.
const kindEvery = 10 * time.Second

// awaitKinds waits until the server knows every kind that is watched: definitions are often installed
// together with who works on their objects, and in no order.
func (m *Manager) awaitKinds(ctx context.Context, loops []*loop) error {
	timer := m.opts.Clock.NewTimer(kindEvery)
	defer timer.Stop()
	for _, l := range loops {
		for _, w := range l.watches {
			gvk, err := apiutil.GVKForObject(w.object, m.opts.Scheme)
			if err != nil {
				return fmt.Errorf("controller %q: %w", l.name, err)
			}
			for m.isUnknown(gvk) {
				unknown := fmt.Errorf("controller %q: the server does not know %s of %s; is its definition installed?",
					l.name, gvk.Kind, gvk.GroupVersion())
				m.opts.Logger.Warn("cannot begin yet", "err", unknown)
				timers.Reset(timer, kindEvery)
				select {
				case <-timer.C():
				case <-ctx.Done():
					return unknown
				}
			}
		}
	}
	return nil
}

// isUnknown says whether the server has answered that it does not know a kind. Of other failures those
// will be told who need it.
func (m *Manager) isUnknown(gvk schema.GroupVersionKind) bool {
	_, err := m.opts.Mapper.RESTMapping(gvk.GroupKind(), gvk.Version)
	return meta.IsNoMatchError(err)
}
