package cache

import (
	"context"
	"fmt"
	"slices"
	"time"

	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// informer is a feed as controller-runtime's Informer.
type informer struct {
	*feed
	resync time.Duration
}

var _ cache.Informer = informer{}

// AddEventHandler has the handler told of everything that is there, and then of what changes.
func (i informer) AddEventHandler(h toolscache.ResourceEventHandler) (toolscache.ResourceEventHandlerRegistration, error) {
	return i.add(h, i.resync)
}

// AddEventHandlerWithResyncPeriod is AddEventHandler with a period of its own; zero means never.
func (i informer) AddEventHandlerWithResyncPeriod(h toolscache.ResourceEventHandler, resync time.Duration) (toolscache.ResourceEventHandlerRegistration, error) {
	return i.add(h, resync)
}

// AddEventHandlerWithOptions is AddEventHandler with options.
func (i informer) AddEventHandlerWithOptions(h toolscache.ResourceEventHandler, opts toolscache.HandlerOptions) (toolscache.ResourceEventHandlerRegistration, error) {
	if opts.ResyncPeriod != nil {
		return i.add(h, *opts.ResyncPeriod)
	}
	return i.add(h, i.resync)
}

func (i informer) add(h toolscache.ResourceEventHandler, resync time.Duration) (*registration, error) {
	r := &registration{
		feed: i.feed, handler: h, resync: resync,
		wake: make(chan struct{}, 1), told: make(chan struct{}), gone: make(chan struct{}),
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.stopped {
		return nil, fmt.Errorf("handler of %s was added after the cache was stopped", i)
	}
	if isClosed(i.synced) {
		initial := i.present(func(obj client.Object) change {
			return change{typ: added, new: obj, initial: true}
		})
		r.push(append(initial, change{typ: synced})...)
	}
	i.handlers = append(i.handlers, r)
	if i.spawn != nil {
		i.spawn(r.run)
	}
	return r, nil
}

// RemoveEventHandler stops telling a handler; what it is being told it is told to the end.
func (i informer) RemoveEventHandler(handle toolscache.ResourceEventHandlerRegistration) error {
	r, ok := handle.(*registration)
	if !ok || r.feed != i.feed {
		return fmt.Errorf("%T is not a handler of %s", handle, i)
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	if !r.removed {
		r.removed = true
		close(r.gone)
	}
	i.handlers = slices.DeleteFunc(i.handlers, func(x *registration) bool { return x == r })
	return nil
}

// AddIndexers adds indexes that List finds by field selectors of their names.
func (i informer) AddIndexers(indexers toolscache.Indexers) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	for name, fn := range indexers {
		if i.table.indexes[name] != nil {
			return fmt.Errorf("index %q of %s exists already", name, i)
		}
		i.table.addIndex(name, func(obj client.Object) []string {
			values, err := fn(obj)
			if err != nil {
				panic(fmt.Errorf("index %q of %s: %w", name, i, err))
			}
			return values
		})
	}
	return nil
}

// HasSynced says whether the first list is in.
func (i informer) HasSynced() bool { return isClosed(i.synced) }

// HasSyncedChecker is HasSynced as a channel.
func (i informer) HasSyncedChecker() toolscache.DoneChecker {
	return done{name: i.String(), ch: i.synced}
}

// IsStopped says whether the informer is no longer kept in step.
func (i informer) IsStopped() bool {
	i.mu.RLock()
	defer i.mu.RUnlock()
	return i.stopped
}

// waitSynced waits for the first list.
func (f *feed) waitSynced(ctx context.Context) error {
	select {
	case <-f.synced:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("wait for the first list of %s: %w", f, ctx.Err())
	}
}
