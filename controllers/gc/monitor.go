package gc

import (
	"context"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/metadata"
)

const (
	// The wait after a list or watch that failed, doubled with each failure in a row. The upper bound
	// is how long a server that comes back waits to be asked.
	reconnectMin = 100 * time.Millisecond
	reconnectMax = 30 * time.Second
	// watchGood is how long a watch lasts that is worth opening anew at once.
	watchGood = time.Second
	// watchMin is how long the server is asked to keep a watch, between once and twice this: watches
	// that end spread over servers again.
	watchMin = 5 * time.Minute
)

// monitor follows the metadata of one resource and feeds the collector's graph. It keeps no objects:
// the graph is the store.
type monitor struct {
	resource   resource
	apiVersion string
	collector  *collector
	api        metadata.Getter
	cancel     context.CancelFunc

	once   sync.Once
	synced chan struct{} // closed when the first list has been fed
	seen   atomic.Uint64 // the revision up to which all has been fed; 0 if it is no number

	revision string // to watch from; "" has a list come first; run's
}

func newMonitor(c *collector, r resource) *monitor {
	return &monitor{
		resource: r, apiVersion: r.GroupVersion().String(), collector: c,
		api: c.metadata.Resource(r.GroupVersionResource), synced: make(chan struct{}),
	}
}

// caughtUp reports whether everything up to the revision has been fed. It may be false though it
// has, since a resource that is quiet does not say so.
func (m *monitor) caughtUp(resourceVersion string) bool {
	want, err := strconv.ParseUint(resourceVersion, 10, 64)
	return err == nil && m.seen.Load() >= want
}

// run follows the resource until the context ends: a list, and watches from there, one after the
// other. Only when the server no longer has the history that is missing is there another list.
func (m *monitor) run(ctx context.Context) {
	clock := m.collector.clock
	for failures := 0; ctx.Err() == nil; {
		began := clock.Now()
		err := m.follow(ctx)
		if apierrors.IsResourceExpired(err) || apierrors.IsGone(err) {
			m.revision = ""
		}
		good := clock.Since(began) >= watchGood
		if good {
			failures = 0
		}
		if err == nil && good || ctx.Err() != nil {
			continue
		}
		m.collector.log.Debug("watch ended", "resource", m.resource.GroupResource().String(), "error", err)
		wait := min(reconnectMin<<min(failures, 16), reconnectMax)
		failures++
		select {
		case <-ctx.Done():
		case <-clock.After(wait/2 + rand.N(wait/2)):
		}
	}
}

// follow does one round: a list if there is none to watch from, and a watch until it ends.
func (m *monitor) follow(ctx context.Context) error {
	if m.revision == "" {
		if err := m.list(ctx); err != nil {
			return err
		}
	}
	seconds := int64((watchMin + rand.N(watchMin)).Seconds())
	w, err := m.api.Watch(ctx, metav1.ListOptions{
		ResourceVersion: m.revision, AllowWatchBookmarks: true, TimeoutSeconds: &seconds,
	})
	if err != nil {
		return err
	}
	defer w.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case event, ok := <-w.ResultChan():
			if !ok {
				return nil
			}
			if err := m.take(event); err != nil {
				return err
			}
		}
	}
}

// take feeds an event.
func (m *monitor) take(event watch.Event) error {
	meta, ok := event.Object.(*metav1.PartialObjectMetadata)
	if !ok {
		return apierrors.FromObject(event.Object)
	}
	switch event.Type {
	case watch.Added, watch.Modified:
		m.observe(meta)
	case watch.Deleted:
		m.collector.removeAll([]types.UID{meta.UID})
	}
	m.reach(meta.ResourceVersion)
	return nil
}

// list feeds everything there is, page by page. What the graph had and the list has not was deleted
// unseen.
func (m *monitor) list(ctx context.Context) error {
	listed := map[types.UID]bool{}
	revision, err := eachPage(ctx, m.api, func(page []metav1.PartialObjectMetadata) {
		for i := range page {
			listed[page[i].UID] = true
			m.observe(&page[i])
		}
	})
	if err != nil {
		return err
	}
	had := m.collector.known(m.resource)
	m.collector.removeAll(slices.DeleteFunc(had, func(uid types.UID) bool { return listed[uid] }))
	m.reach(revision)
	m.once.Do(func() { close(m.synced) })
	return nil
}

// reach notes up to which revision everything has been fed.
func (m *monitor) reach(revision string) {
	m.revision = revision
	seen, _ := strconv.ParseUint(revision, 10, 64)
	m.seen.Store(seen)
}

// observe feeds what the graph keeps of an object.
func (m *monitor) observe(meta *metav1.PartialObjectMetadata) {
	m.collector.observe(object{
		identity: identity{
			Resource:   m.resource.GroupVersionResource,
			APIVersion: m.apiVersion,
			Kind:       m.resource.Kind,
			Namespace:  meta.Namespace,
			Name:       meta.Name,
			UID:        meta.UID,
		},
		Owners:     meta.OwnerReferences,
		Deleting:   meta.DeletionTimestamp != nil,
		Foreground: slices.Contains(meta.Finalizers, metav1.FinalizerDeleteDependents),
		Orphan:     slices.Contains(meta.Finalizers, metav1.FinalizerOrphanDependents),
	})
}

// eachPage lists in pages, and returns the revision that the list is of.
func eachPage(ctx context.Context, api metadata.ResourceInterface,
	take func([]metav1.PartialObjectMetadata),
) (revision string, err error) {
	for next := ""; ; {
		page, err := api.List(ctx, metav1.ListOptions{Limit: pageSize, Continue: next})
		if err != nil {
			return "", err
		}
		take(page.Items)
		if next = page.Continue; next == "" {
			return page.ResourceVersion, nil
		}
	}
}

// getter is the part of the server an object is in.
func getter(client metadata.Interface, id identity) metadata.ResourceInterface {
	return client.Resource(id.Resource).Namespace(id.Namespace)
}
