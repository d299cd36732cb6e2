package gc

import (
	"context"
	"slices"
	"strconv"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/tools/cache"
)

// monitor watches the metadata of one resource and feeds the collector's graph. Its reflector keeps
// no objects: the graph is the store.
type monitor struct {
	resource  resource
	collector *collector
	reflector *cache.Reflector
	cancel    context.CancelFunc

	once   sync.Once
	synced chan struct{} // closed when the first list has been fed
}

func newMonitor(c *collector, r resource) *monitor {
	m := &monitor{resource: r, collector: c, synced: make(chan struct{})}
	api := c.metadata.Resource(r.GroupVersionResource)
	lw := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, opts metav1.ListOptions) (runtime.Object,
			error) {
			return api.List(ctx, opts)
		},
		WatchFuncWithContext: func(ctx context.Context, opts metav1.ListOptions) (watch.Interface,
			error) {
			return api.Watch(ctx, opts)
		},
	}
	m.reflector = cache.NewReflectorWithOptions(cache.ToListWatcherWithWatchListSemantics(lw,
		c.metadata),
		&metav1.PartialObjectMetadata{}, feed{m}, cache.ReflectorOptions{Name: "gc: " + r.GroupResource().String()})
	return m
}

// caughtUp reports whether everything up to the revision has been fed. It may be false though it
// has, since a resource that is quiet does not say so.
func (m *monitor) caughtUp(resourceVersion string) bool {
	seen, err1 := strconv.ParseUint(m.reflector.LastSyncResourceVersion(), 10, 64)
	want, err2 := strconv.ParseUint(resourceVersion, 10, 64)
	return err1 == nil && err2 == nil && seen >= want
}

// feed is the reflector's side of a monitor.
type feed struct{ m *monitor }

var _ cache.ReflectorStore = feed{}

func (f feed) Add(obj any) error    { return f.observe(obj) }
func (f feed) Update(obj any) error { return f.observe(obj) }

func (f feed) observe(obj any) error {
	f.m.collector.observe(f.m.resource, obj.(*metav1.PartialObjectMetadata))
	return nil
}

func (f feed) Delete(obj any) error {
	f.m.collector.removeAll([]types.UID{obj.(*metav1.PartialObjectMetadata).UID})
	return nil
}

// Replace feeds a whole list; what the graph had and the list has not was deleted unseen.
func (f feed) Replace(list []any, _ string) error {
	listed := map[types.UID]bool{}
	for _, obj := range list {
		meta := obj.(*metav1.PartialObjectMetadata)
		listed[meta.UID] = true
		f.m.collector.observe(f.m.resource, meta)
	}
	had := f.m.collector.known(f.m.resource)
	f.m.collector.removeAll(slices.DeleteFunc(had, func(uid types.UID) bool { return listed[uid] }))
	f.m.once.Do(func() { close(f.m.synced) })
	return nil
}

func (f feed) Resync() error { return nil }

// objectOf picks what the graph keeps of an object.
func objectOf(r resource, meta *metav1.PartialObjectMetadata) object {
	return object{
		identity: identity{
			Resource:   r.GroupVersionResource,
			APIVersion: r.GroupVersion().String(),
			Kind:       r.Kind,
			Namespace:  meta.Namespace,
			Name:       meta.Name,
			UID:        meta.UID,
		},
		Owners:     meta.OwnerReferences,
		Deleting:   meta.DeletionTimestamp != nil,
		Foreground: slices.Contains(meta.Finalizers, metav1.FinalizerDeleteDependents),
		Orphan:     slices.Contains(meta.Finalizers, metav1.FinalizerOrphanDependents),
	}
}

// getter is the part of the server an object is in.
func getter(client metadata.Interface, id identity) metadata.ResourceInterface {
	return client.Resource(id.Resource).Namespace(id.Namespace)
}
