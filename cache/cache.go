// Package cache keeps objects of the server at hand: one list and watch per kind, shared by all who
// read it, with indexes and with handlers that are told what changes.
//
// What a Cache promises:
//   - The state of a kind never goes back. Lost, repeated or late events, broken connections and
//     forgotten history end in the right state.
//   - Each handler is told, in order, of every object's way from what it was last told to what is
//     there now: additions, updates, deletions. A deletion that happened while nobody listened is
//     told with the last known state (client-go's DeletedFinalStateUnknown), and an object that was
//     replaced by one of the same name and another uid is told as a deletion and an addition. A
//     handler that is slow may be told of several changes as one.
//   - A read sees what a handler has been told of, or newer. WaitFor waits until reads are at least
//     as new as a revision.
//
// A Cache implements controller-runtime's cache.Cache. Its methods may be called concurrently.
// Objects given to handlers are shared and read-only; Get and List copy, unless they are told not to.
package cache

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	crcache "sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
)

// Options are the settings of a cache. The zero value is a good default.
type Options struct {
	// HTTPClient is used for all requests; nil makes one from the configuration.
	HTTPClient *http.Client
	// Scheme knows the Go types of the kinds; nil is client-go's.
	Scheme *runtime.Scheme
	// Mapper maps kinds to resources; nil asks the server's discovery when needed.
	Mapper meta.RESTMapper
	// Fields limits what is held of a kind, in every form, to what a field selector of the server
	// selects: the pods of one node.
	Fields map[schema.GroupVersionKind]string
	// Resync is how often each handler is told of every object again, give or take a tenth. Zero
	// means ten hours, negative never.
	Resync time.Duration
	// Quiet is how long a watch may be silent before it is taken for dead and opened again. Servers
	// send a bookmark a minute; zero means 75 s.
	Quiet time.Duration
	// Clock is what time is read from; nil is the machine's.
	Clock clock.WithTicker
	// Logger is told of watches that break; nil is slog.Default().
	Logger *slog.Logger
}

// Cache is a set of feeds, one for each kind and form that somebody reads. Use New.
type Cache struct {
	opts    Options
	sources *sources

	mu      sync.Mutex
	feeds   map[feedID]*feed
	started bool
	stopped bool
	spawn   func(func(context.Context))
	running sync.WaitGroup
}

var _ crcache.Cache = (*Cache)(nil)

// form is how objects are held.
type form string

const (
	typed    form = "typed"
	metadata form = "metadata"
	loose    form = "unstructured"
)

type feedID struct {
	gvk  schema.GroupVersionKind
	form form
}

func (id feedID) String() string {
	if id.form == typed {
		return id.gvk.String()
	}
	return id.gvk.String() + " (" + string(id.form) + ")"
}

// New returns a cache that reads nothing until it is started.
func New(config *rest.Config, opts Options) (*Cache, error) {
	if opts.Scheme == nil {
		opts.Scheme = scheme.Scheme
	}
	if opts.Clock == nil {
		opts.Clock = clock.RealClock{}
	}
	if opts.Logger == nil {
		opts.Logger = slog.Default()
	}
	opts.Resync = cmp.Or(opts.Resync, 10*time.Hour)
	opts.Quiet = cmp.Or(opts.Quiet, 75*time.Second)
	var err error
	if opts.HTTPClient == nil {
		if opts.HTTPClient, err = rest.HTTPClientFor(config); err != nil {
			return nil, fmt.Errorf("cache: %w", err)
		}
	}
	if opts.Mapper == nil {
		if opts.Mapper, err = apiutil.NewDynamicRESTMapper(config, opts.HTTPClient); err != nil {
			return nil, fmt.Errorf("cache: %w", err)
		}
	}
	sources, err := newSources(config, opts)
	if err != nil {
		return nil, fmt.Errorf("cache: %w", err)
	}
	return &Cache{opts: opts, sources: sources, feeds: make(map[feedID]*feed)}, nil
}

// Start runs the cache until the context ends and everything it runs has stopped. It can be started
// once.
func (c *Cache) Start(ctx context.Context) error {
	c.mu.Lock()
	if c.started {
		c.mu.Unlock()
		return errors.New("cache: started twice")
	}
	c.started = true
	c.spawn = func(fn func(context.Context)) { c.running.Go(func() { fn(ctx) }) }
	for _, f := range c.feeds {
		c.startFeed(f)
	}
	c.mu.Unlock()

	<-ctx.Done()
	c.mu.Lock()
	c.stopped = true
	for _, f := range c.feeds {
		f.stop()
	}
	c.mu.Unlock()
	c.running.Wait()
	return nil
}

// startFeed runs a feed and its handlers. The cache's lock is held.
func (c *Cache) startFeed(f *feed) {
	f.mu.Lock()
	defer f.mu.Unlock()
	c.spawn(func(ctx context.Context) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		f.mu.Lock()
		f.cancel = cancel
		stopped := f.stopped
		f.mu.Unlock()
		if !stopped {
			f.run(ctx)
		}
	})
	f.spawn = c.spawn
	for _, r := range f.handlers {
		c.spawn(r.run)
	}
}

// feed returns the feed of a kind, made and started if need be.
func (c *Cache) feed(id feedID) (*feed, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if f := c.feeds[id]; f != nil {
		return f, nil
	}
	if c.stopped {
		return nil, fmt.Errorf("cache: %s was asked for after the cache was stopped", id)
	}
	source, err := c.sources.source(id)
	if err != nil {
		return nil, fmt.Errorf("cache: %s: %w", id, err)
	}
	f := &feed{
		id: id, source: source, fields: c.opts.Fields[id.gvk], quiet: c.opts.Quiet, clock: c.opts.Clock, log: c.opts.Logger,
		synced: make(chan struct{}), table: newTable(),
	}
	c.feeds[id] = f
	if c.started {
		c.startFeed(f)
	}
	return f, nil
}

// identify says which feed has objects like this one; of a list, objects like its items.
func (c *Cache) identify(obj runtime.Object) (feedID, error) {
	gvk, err := apiutil.GVKForObject(obj, c.opts.Scheme)
	if err != nil {
		return feedID{}, fmt.Errorf("cache: %w", err)
	}
	id := feedID{gvk: gvk, form: typed}
	switch obj.(type) {
	case *metav1.PartialObjectMetadata, *metav1.PartialObjectMetadataList:
		id.form = metadata
	case runtime.Unstructured:
		id.form = loose
	}
	if meta.IsListType(obj) {
		id.gvk.Kind = trimList(id.gvk.Kind)
	}
	return id, nil
}

// GetInformer returns the informer of objects like this one. Unless told otherwise, it waits for
// the first list once the cache has been started.
func (c *Cache) GetInformer(ctx context.Context, obj client.Object, opts ...crcache.InformerGetOption) (crcache.Informer, error) {
	id, err := c.identify(obj)
	if err != nil {
		return nil, err
	}
	return c.informer(ctx, id, opts)
}

// GetInformerForKind is GetInformer by kind: in Go types if the scheme has them, else unstructured.
func (c *Cache) GetInformerForKind(ctx context.Context, gvk schema.GroupVersionKind, opts ...crcache.InformerGetOption) (crcache.Informer, error) {
	id := feedID{gvk: gvk, form: typed}
	if !c.opts.Scheme.Recognizes(gvk) {
		id.form = loose
	}
	return c.informer(ctx, id, opts)
}

func (c *Cache) informer(ctx context.Context, id feedID, opts []crcache.InformerGetOption) (crcache.Informer, error) {
	f, err := c.feed(id)
	if err != nil {
		return nil, err
	}
	if c.isStarted() && blocks(opts) {
		if err := f.waitSynced(ctx); err != nil {
			return nil, err
		}
	}
	return informer{feed: f, resync: c.opts.Resync}, nil
}

func (c *Cache) isStarted() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.started
}

// RemoveInformer stops what GetInformer started.
func (c *Cache) RemoveInformer(_ context.Context, obj client.Object) error {
	id, err := c.identify(obj)
	if err != nil {
		return err
	}
	c.mu.Lock()
	f := c.feeds[id]
	delete(c.feeds, id)
	c.mu.Unlock()
	if f != nil {
		f.stop()
	}
	return nil
}

// WaitForCacheSync waits for the first list of every kind asked for so far; false if the context
// ended first.
func (c *Cache) WaitForCacheSync(ctx context.Context) bool {
	for _, f := range c.all() {
		if f.waitSynced(ctx) != nil {
			return false
		}
	}
	return true
}

func (c *Cache) all() []*feed {
	c.mu.Lock()
	defer c.mu.Unlock()
	feeds := make([]*feed, 0, len(c.feeds))
	for _, f := range c.feeds {
		feeds = append(feeds, f)
	}
	return feeds
}

// IndexField has List find objects by a field selector on the field, by the values the function
// reads from an object.
func (c *Cache) IndexField(_ context.Context, obj client.Object, field string, values client.IndexerFunc) error {
	id, err := c.identify(obj)
	if err != nil {
		return err
	}
	f, err := c.feed(id)
	if err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.table.indexes[fieldIndex(field)] != nil {
		return fmt.Errorf("cache: field %q of %s is indexed already", field, id)
	}
	f.table.addIndex(fieldIndex(field), func(o client.Object) []string { return values(o) })
	return nil
}

// AtRevision reports whether reads of the kind are at least as new as the revision; a kind that the
// cache does not hold always is, for it will be listed anew. If not, then is called once when they
// are, from a goroutine of the cache: it must not block. A nil then only asks.
func (c *Cache) AtRevision(gvk schema.GroupVersionKind, revision int64, then func()) bool {
	return c.when(gvk, func(t *table) bool { return t.revision >= revision }, then)
}

// AtDeletion is AtRevision for the deletion of one object: it is reached when the object of that
// uid is not there, or is marked as being deleted.
func (c *Cache) AtDeletion(gvk schema.GroupVersionKind, key types.NamespacedName, uid types.UID, then func()) bool {
	return c.when(gvk, func(t *table) bool {
		obj := t.objects[key]
		if obj == nil {
			return t.revision > 0
		}
		return obj.GetUID() != uid || obj.GetDeletionTimestamp() != nil
	}, then)
}

func (c *Cache) when(gvk schema.GroupVersionKind, reached func(*table) bool, then func()) bool {
	for _, f := range c.all() {
		// The first form that is behind calls; who is called asks again.
		if f.id.gvk == gvk && !f.when(reached, then) {
			return false
		}
	}
	return true
}

// WaitFor waits until reads of objects like this one are at least as new as the revision.
func (c *Cache) WaitFor(ctx context.Context, obj client.Object, revision int64) error {
	gvk, err := apiutil.GVKForObject(obj, c.opts.Scheme)
	if err != nil {
		return fmt.Errorf("cache: %w", err)
	}
	for {
		reached := make(chan struct{})
		if c.AtRevision(gvk, revision, func() { close(reached) }) {
			return nil
		}
		select {
		case <-reached:
		case <-ctx.Done():
			return fmt.Errorf("cache: wait for revision %d of %s: %w", revision, gvk.Kind, ctx.Err())
		}
	}
}

// Revision says how new reads of objects like this one are; zero before the first list.
func (c *Cache) Revision(obj client.Object) (int64, error) {
	id, err := c.identify(obj)
	if err != nil {
		return 0, err
	}
	c.mu.Lock()
	f := c.feeds[id]
	c.mu.Unlock()
	if f == nil {
		return 0, nil
	}
	return f.revision(), nil
}
