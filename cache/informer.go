package cache

import (
	"context"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	toolscache "k8s.io/client-go/tools/cache"
	crcache "sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// A view is a feed in one form, as controller-runtime's Informer.
type view struct {
	feed  *feed
	form  form
	ready chan struct{} // closed when the first list is in
	gone  chan struct{} // closed when the view is removed or the cache stopped

	// Guarded by the feed's lock.
	handlers []*registration
}

var _ crcache.Informer = (*view)(nil)

func (v *view) String() string { return v.feed.String() + v.form.String() }

// AddEventHandler has the handler told of everything that is there, and then of what changes.
func (v *view) AddEventHandler(h toolscache.ResourceEventHandler) (toolscache.ResourceEventHandlerRegistration, error) {
	return v.add(h, nil)
}

// AddEventHandlerWithResyncPeriod is AddEventHandler with a period of its own; zero means never.
func (v *view) AddEventHandlerWithResyncPeriod(h toolscache.ResourceEventHandler, resync time.Duration) (toolscache.ResourceEventHandlerRegistration, error) {
	return v.add(h, &resync)
}

// AddEventHandlerWithOptions is AddEventHandler with options.
func (v *view) AddEventHandlerWithOptions(h toolscache.ResourceEventHandler, opts toolscache.HandlerOptions) (toolscache.ResourceEventHandlerRegistration, error) {
	return v.add(h, opts.ResyncPeriod)
}

func (v *view) add(h toolscache.ResourceEventHandler, resync *time.Duration) (*registration, error) {
	r := &registration{
		view: v, handler: h,
		wake: make(chan struct{}, 1), told: make(chan struct{}), gone: make(chan struct{}),
	}
	for _, s := range v.feed.streams {
		period := s.setup.resync
		if resync != nil {
			period = *resync
		}
		if period > 0 {
			r.resyncs = append(r.resyncs, resyncing{stream: s, period: period})
		}
	}
	f := v.feed
	f.mu.Lock()
	defer f.mu.Unlock()
	if isClosed(v.gone) {
		return nil, fmt.Errorf("handler of %s was added after its informer was stopped", v)
	}
	if isClosed(v.ready) {
		r.push(f.initial()...)
	}
	v.handlers = append(v.handlers, r)
	if f.spawn != nil {
		f.spawn(r.run)
	}
	return r, nil
}

// RemoveEventHandler stops telling a handler; what it is being told it is told to the end.
func (v *view) RemoveEventHandler(handle toolscache.ResourceEventHandlerRegistration) error {
	r, ok := handle.(*registration)
	if !ok || r.view != v {
		return fmt.Errorf("%T is not a handler of %s", handle, v)
	}
	v.feed.mu.Lock()
	defer v.feed.mu.Unlock()
	r.remove()
	v.handlers = slices.DeleteFunc(v.handlers, func(x *registration) bool { return x == r })
	return nil
}

// AddIndexers adds indexes that List finds by field selectors of their names.
func (v *view) AddIndexers(indexers toolscache.Indexers) error {
	for name, fn := range indexers {
		err := v.addIndex(fieldIndex(name), func(obj client.Object) []string {
			values, err := fn(obj)
			if err != nil {
				panic(fmt.Errorf("index %q of %s: %w", name, v, err))
			}
			return values
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// addIndex adds an index by what a function reads from objects of the view's form.
func (v *view) addIndex(name string, values func(client.Object) []string) error {
	f, id := v.feed, indexID{name, true, v.form}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.table.indexes[id] != nil {
		return fmt.Errorf("index %q of %s exists already", name, v)
	}
	f.table.addIndex(id, newCostlyIndex(func(rec *record) []string {
		d, err := rec.as(v.form, passing)
		if err != nil {
			f.log.Error("an object is missing in an index", "index", name, "err", err)
			return nil
		}
		return values(d.obj)
	}))
	return nil
}

// HasSynced says whether the first list is in.
func (v *view) HasSynced() bool { return isClosed(v.ready) }

// HasSyncedChecker is HasSynced as a channel.
func (v *view) HasSyncedChecker() toolscache.DoneChecker { return done{name: v.String(), ch: v.ready} }

// IsStopped says whether the informer is no longer kept in step.
func (v *view) IsStopped() bool { return isClosed(v.gone) }

// waitSynced waits for the first list. What was listed can be read when the informer is stopped too.
func (v *view) waitSynced(ctx context.Context) error {
	if isClosed(v.ready) {
		return nil
	}
	select {
	case <-v.ready:
		return nil
	case <-v.gone:
		return fmt.Errorf("cache: the informer of %s was stopped", v)
	case <-ctx.Done():
		return apierrors.NewTimeoutError(fmt.Sprintf("wait for the first list of %s: %v", v, ctx.Err()), 0)
	}
}

// stop ends the view and its handlers. The feed's lock is held.
func (v *view) stop() {
	if !isClosed(v.gone) {
		close(v.gone)
	}
	for _, r := range v.handlers {
		r.remove()
	}
}
