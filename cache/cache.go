// Package cache keeps objects of the server at hand: one list and watch per kind, shared by all who
// read it in whatever form, with indexes and with handlers that are told what changes.
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
// An object is held once, as the text that the server sent, packed: a fifth and less of it. Go
// types, trees (unstructured) and metadata are decoded from that when they are first wanted, once
// for all who want them, and held as long as they are read. As long as nobody wants more of a kind
// than metadata, the server is asked for no more. An object that its Go type cannot be decoded from
// is an error for who reads it, and nothing to who reads others.
//
// A Cache implements controller-runtime's cache.Cache. Its methods may be called concurrently.
// Objects given to handlers are shared and read-only; Get and List copy, unless they are told not to.
// Objects that say the same in some part share that part.
package cache

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	crcache "sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"github.com/setpoint-dev/setpoint/cache/internal/pack"
)

// coolEvery is how long a decoded object is held at least that nobody reads any more. Controllers
// that work on a key read it again within seconds; what is read more seldom costs little to decode.
const coolEvery = 5 * time.Minute

// Cache is a set of feeds, one for each kind that somebody reads. Use New.
type Cache struct {
	opts   Options
	kinds  map[schema.GroupVersionKind]crcache.ByObject
	server *server

	started atomic.Bool
	begun   chan struct{} // closed when the cache is started
	// byType has the view of each Go type that has been read.
	byType sync.Map // reflect.Type to *view

	mu      sync.Mutex
	feeds   map[schema.GroupVersionKind]*feed
	stopped bool
	ctx     context.Context // of everything that runs; nil before the start
	running sync.WaitGroup
}

var _ crcache.Cache = (*Cache)(nil)

// New returns a cache that reads nothing until it is started.
// Possible errors: an option that cannot be honoured, or a configuration that no client can be made
// of.
func New(config *rest.Config, opts Options) (*Cache, error) {
	if err := opts.complete(config); err != nil {
		return nil, fmt.Errorf("cache: %w", err)
	}
	kinds, err := opts.byKind()
	if err != nil {
		return nil, fmt.Errorf("cache: %w", err)
	}
	server, err := newServer(config, &opts)
	if err != nil {
		return nil, fmt.Errorf("cache: %w", err)
	}
	return &Cache{
		opts: opts, kinds: kinds, server: server, begun: make(chan struct{}),
		feeds: make(map[schema.GroupVersionKind]*feed),
	}, nil
}

// NewFunc is New as the NewCache option of controller-runtime's manager and cluster.
func NewFunc(config *rest.Config, opts crcache.Options) (crcache.Cache, error) {
	return New(config, Options{Options: opts})
}

// NeedLeaderElection has controller-runtime's manager run the cache on every replica.
func (c *Cache) NeedLeaderElection() bool { return false }

// Start runs the cache until the context ends and everything it runs has stopped. It can be started
// once.
func (c *Cache) Start(ctx context.Context) error {
	c.mu.Lock()
	if c.ctx != nil {
		c.mu.Unlock()
		return errors.New("cache: started twice")
	}
	c.ctx = ctx
	for _, f := range c.feeds {
		f.start(ctx, &c.running)
	}
	c.started.Store(true)
	close(c.begun)
	c.mu.Unlock()

	c.sweep(ctx)
	c.mu.Lock()
	c.stopped = true
	for _, f := range c.feeds {
		f.stop()
	}
	c.mu.Unlock()
	c.running.Wait()
	return nil
}

// sweep lets go of decoded objects that are no longer read, until the context ends.
func (c *Cache) sweep(ctx context.Context) {
	timer := c.opts.Clock.NewTimer(coolEvery)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C():
			for _, f := range c.all() {
				f.cool()
			}
			timer.Reset(coolEvery)
		}
	}
}

// feed returns the feed of a kind, made and started if need be. What maps kinds to resources may ask
// the server: nobody else waits for that.
func (c *Cache) feed(gvk schema.GroupVersionKind, of form) (*feed, error) {
	if f := c.held(gvk); f != nil {
		return f, nil
	}
	mapping, err := c.opts.Mapper.RESTMapping(gvk.GroupKind(), gvk.Version)
	if err != nil {
		return nil, fmt.Errorf("cache: %s: %w", gvk, err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if f := c.feeds[gvk]; f != nil {
		return f, nil
	}
	if c.stopped {
		return nil, fmt.Errorf("cache: %s was asked for after the cache was stopped", gvk)
	}
	f := c.newFeed(gvk, mapping)
	f.whole = of.whole()
	c.feeds[gvk] = f
	if c.ctx != nil {
		f.start(c.ctx, &c.running)
	}
	return f, nil
}

func (c *Cache) newFeed(gvk schema.GroupVersionKind, mapping *meta.RESTMapping) *feed {
	f := &feed{
		gvk: gvk, server: c.server, quiet: c.opts.Quiet, clock: c.opts.Clock, random: c.opts.Random,
		log:        c.opts.Logger,
		namespaced: mapping.Scope.Name() == meta.RESTScopeNameNamespace,
		onError:    c.opts.DefaultWatchErrorHandler, table: newTable(),
	}
	if f.onError != nil {
		f.reflector = toolscache.NewReflectorWithOptions(&toolscache.ListWatch{}, nil, nil,
			toolscache.ReflectorOptions{Name: "cache", TypeDescription: gvk.String()})
	}
	configs := c.opts.streamConfigs(c.kinds[gvk], f.namespaced)
	packer := new(pack.Packer)
	for _, namespace := range sortedKeys(configs) {
		config := configs[namespace]
		s := &stream{
			feed: f, setup: setupOf(config), urgent: make(chan struct{}, 1),
			covers: covering(namespace, configs),
		}
		s.part = part{mapping.Resource, namespace, s.setup.labels, s.setup.fields}
		if f.namespaced && namespace == metav1.NamespaceAll && config.FieldSelector != nil {
			s.part.namespace, _ = config.FieldSelector.RequiresExactMatch("metadata.namespace")
		}
		s.codec = &codec{
			gvk: gvk, scheme: c.opts.Scheme, packer: packer, transform: s.setup.transform,
			share: s.setup.share, decodes: &f.stats.decodes, guard: c.opts.DetectMutations,
		}
		if s.setup.transform == nil && !c.opts.DetectMutations {
			s.codec.parts = &f.parts
		}
		f.streams = append(f.streams, s)
	}
	return f
}

// covering says which namespaces the stream of one answers for: that one, or all without a stream
// of their own.
func covering(namespace string, all map[string]crcache.Config) func(string) bool {
	if namespace != metav1.NamespaceAll {
		return func(of string) bool { return of == namespace }
	}
	return func(of string) bool {
		_, own := all[of]
		return !own || of == metav1.NamespaceAll
	}
}

// identify says of which kind and form an object is; of a list, its items.
func (c *Cache) identify(obj runtime.Object) (schema.GroupVersionKind, form, error) {
	gvk, err := apiutil.GVKForObject(obj, c.opts.Scheme)
	if err != nil {
		return gvk, typed, fmt.Errorf("cache: %w", err)
	}
	of := typed
	switch obj.(type) {
	case *metav1.PartialObjectMetadata, *metav1.PartialObjectMetadataList:
		of = heads
	case runtime.Unstructured:
		of = loose
	}
	if meta.IsListType(obj) {
		gvk.Kind = trimList(gvk.Kind)
	}
	return gvk, of, nil
}

// view returns the view of objects like this one, made if need be.
func (c *Cache) view(obj runtime.Object) (*view, error) {
	gvk, of, err := c.identify(obj)
	if err != nil {
		return nil, err
	}
	return c.viewOf(gvk, of)
}

func (c *Cache) viewOf(gvk schema.GroupVersionKind, of form) (*view, error) {
	f, err := c.feed(gvk, of)
	if err != nil {
		return nil, err
	}
	return f.view(of), nil
}

// GetInformer returns the informer of objects like this one. Unless told otherwise, it waits for
// the first list once the cache has been started.
func (c *Cache) GetInformer(ctx context.Context, obj client.Object, opts ...crcache.InformerGetOption) (crcache.Informer, error) {
	gvk, of, err := c.identify(obj)
	if err != nil {
		return nil, err
	}
	return c.informer(ctx, gvk, of, opts)
}

// GetInformerForKind is GetInformer by kind: in Go types if the scheme has them, else unstructured.
func (c *Cache) GetInformerForKind(ctx context.Context, gvk schema.GroupVersionKind, opts ...crcache.InformerGetOption) (crcache.Informer, error) {
	of := typed
	if !c.opts.Scheme.Recognizes(gvk) {
		of = loose
	}
	return c.informer(ctx, gvk, of, opts)
}

func (c *Cache) informer(ctx context.Context, gvk schema.GroupVersionKind, of form, opts []crcache.InformerGetOption) (crcache.Informer, error) {
	v, err := c.viewOf(gvk, of)
	if err != nil {
		return nil, err
	}
	if c.started.Load() && blocks(opts) {
		if err := v.waitSynced(ctx); err != nil {
			return nil, err
		}
	}
	return v, nil
}

// RemoveInformer stops the informer of objects like this one. The list and watch of the kind stop
// with the last informer of it.
func (c *Cache) RemoveInformer(_ context.Context, obj client.Object) error {
	gvk, of, err := c.identify(obj)
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	f := c.feeds[gvk]
	if f == nil {
		return nil
	}
	none := f.removeView(of)
	c.byType.Range(func(t, v any) bool {
		if v := v.(*view); v.feed == f && v.form == of {
			c.byType.Delete(t)
		}
		return true
	})
	if none {
		delete(c.feeds, gvk)
		f.stop()
	}
	return nil
}

// WaitForCacheSync waits for the start and for the first list of everything that was asked for by
// then; false if the context ended first.
func (c *Cache) WaitForCacheSync(ctx context.Context) bool {
	select {
	case <-c.begun:
	case <-ctx.Done():
		return false
	}
	for _, f := range c.all() {
		f.mu.RLock()
		views := f.views
		f.mu.RUnlock()
		for _, v := range views {
			if v != nil && v.waitSynced(ctx) != nil && !isClosed(v.gone) {
				return false
			}
		}
	}
	return true
}

// all returns the feeds, in the order of their kinds.
func (c *Cache) all() []*feed {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.SortedFunc(maps.Values(c.feeds), func(a, b *feed) int { return compareKinds(a.gvk, b.gvk) })
}

// IndexField has List find objects by a field selector on the field, by the values the function
// reads from an object. Lists of another form of the kind are answered by it too.
func (c *Cache) IndexField(_ context.Context, obj client.Object, field string, values client.IndexerFunc) error {
	v, err := c.view(obj)
	if err != nil {
		return err
	}
	if err := v.addIndex(fieldIndex(field), values); err != nil {
		return fmt.Errorf("cache: %w", err)
	}
	return nil
}

// AtRevision reports whether reads of the kind, in whatever version, are at least as new as the
// revision; a kind that the cache does not hold always is, for it will be listed anew. If not, then is
// called once when that may have changed, from a goroutine of the cache: it must not block. A nil then
// only asks.
func (c *Cache) AtRevision(gvk schema.GroupVersionKind, revision int64, then func()) bool {
	for _, f := range c.versions(gvk.GroupKind()) {
		if !f.when(func() bool { return f.newness() >= revision }, then) {
			return false
		}
	}
	return true
}

// AtDeletion is AtRevision for the deletion of one object: it is reached when the object of that
// uid is not there, or is marked as being deleted.
func (c *Cache) AtDeletion(gvk schema.GroupVersionKind, key types.NamespacedName, uid types.UID, then func()) bool {
	for _, f := range c.versions(gvk.GroupKind()) {
		if !f.when(func() bool {
			row := f.table.rows[key]
			if row == nil {
				return f.newness() > 0
			}
			return row.UID != string(uid) || row.Deleting
		}, then) {
			return false
		}
	}
	return true
}

// Held returns the uid of the object that reads of the kind show, "" if they show none.
func (c *Cache) Held(gvk schema.GroupVersionKind, key types.NamespacedName) types.UID {
	for _, f := range c.versions(gvk.GroupKind()) {
		if rec := f.get(key); rec != nil {
			return types.UID(rec.UID)
		}
	}
	return ""
}

// versions returns the feeds of a kind. Few programs read one in several versions; what is written in
// one is to be seen in the others, too.
func (c *Cache) versions(gk schema.GroupKind) (found []*feed) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for gvk, f := range c.feeds {
		if gvk.GroupKind() == gk {
			found = append(found, f)
		}
	}
	return found
}

func (c *Cache) held(gvk schema.GroupVersionKind) *feed {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.feeds[gvk]
}

// WaitFor waits until reads of objects like this one are at least as new as the revision. Where
// nothing happens that would show it, the server is asked how far it has come: that takes seconds.
// Possible errors: the context ended, or the cache was stopped, before they were.
func (c *Cache) WaitFor(ctx context.Context, obj client.Object, revision int64) error {
	gvk, err := apiutil.GVKForObject(obj, c.opts.Scheme)
	if err != nil {
		return fmt.Errorf("cache: %w", err)
	}
	for {
		reached := make(chan struct{})
		if c.AtRevision(gvk, revision, func() { close(reached) }) {
			if f := c.held(gvk); f != nil && f.revision() < revision {
				return fmt.Errorf("cache: wait for revision %d of %s: the cache was stopped before", revision, gvk.Kind)
			}
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
	gvk, _, err := c.identify(obj)
	if err != nil {
		return 0, err
	}
	if f := c.held(gvk); f != nil {
		return f.revision(), nil
	}
	return 0, nil
}

// remember has the next read of an object of the Go type find its view at once. Types that stand
// for several kinds are not remembered.
func (c *Cache) remember(obj runtime.Object, v *view) {
	if v.form != typed {
		return
	}
	if kinds, _, err := c.opts.Scheme.ObjectKinds(obj); err == nil && len(kinds) == 1 {
		c.byType.Store(reflect.TypeOf(obj), v)
	}
}
