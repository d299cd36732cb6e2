package cache

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/setpoint-dev/setpoint/internal/timers"
)

const (
	// The wait before a broken watch is opened again: doubled with each failure in a row, and spread
	// so that the clients of a restarted server don't come back all at once.
	reconnectMin = 100 * time.Millisecond
	reconnectMax = 30 * time.Second
	// How long the server is asked to keep a watch, between once and twice this. Watches that end
	// spread clients over servers again.
	watchMin = 5 * time.Minute
	// A watch that lasted so long was good: the next one is opened at once.
	watchGood = time.Second
	// How long the server may take to begin to answer.
	openMax = 30 * time.Second
)

// source is where a feed gets its objects.
type source interface {
	List(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error)
	Watch(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error)
}

// A feed keeps a table in step with the server, and tells handlers what changes.
type feed struct {
	id     feedID
	source source
	fields string // selects what is held; "" is everything
	quiet  time.Duration
	clock  clock.WithTicker
	log    *slog.Logger
	synced chan struct{} // closed after the first list
	// spawn runs something until the cache is stopped; set when the feed is started.
	spawn func(func(context.Context))

	mu       sync.RWMutex
	table    *table
	handlers []*registration
	waiters  []waiter
	stopped  bool
	cancel   context.CancelFunc

	// Owned by run.
	noWatchList bool
	failures    int
}

// waiter is called once what it waits for is in the table.
type waiter struct {
	reached func(*table) bool
	then    func()
}

func (f *feed) String() string { return f.id.String() }

// run follows the server until the context ends. First it lists, or has a watch begin with a list;
// then it watches from there, again and again. Only when the server no longer has the history that
// is missing does it list anew.
func (f *feed) run(ctx context.Context) {
	listed := false
	for ctx.Err() == nil {
		began := f.clock.Now()
		err := f.follow(ctx, &listed)
		if ctx.Err() != nil {
			return
		}
		if apierrors.IsResourceExpired(err) || apierrors.IsGone(err) {
			listed = false
		}
		good := f.clock.Since(began) >= watchGood
		if good {
			f.failures = 0
		}
		if err == nil && good {
			continue
		}
		wait := f.backoff()
		f.log.Debug("watch ended", "kind", f.String(), "err", err, "again", wait)
		f.sleep(ctx, wait)
	}
}

// follow does one round: a list if there is none yet, and a watch until it ends.
func (f *feed) follow(ctx context.Context, listed *bool) error {
	if *listed {
		return f.watch(ctx, listed)
	}
	if !f.noWatchList {
		err := f.watch(ctx, listed)
		if *listed || !refusesWatchList(err) {
			return err
		}
		f.noWatchList = true
	}
	if err := f.list(ctx); err != nil {
		return err
	}
	*listed = true
	return f.watch(ctx, listed)
}

// refusesWatchList says whether a server that was asked for a watch that begins with a list does
// not know such a thing.
func refusesWatchList(err error) bool {
	return apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) || errors.Is(err, errSilent)
}

func (f *feed) list(ctx context.Context) error {
	list, err := f.source.List(ctx, metav1.ListOptions{FieldSelector: f.fields})
	if err != nil {
		return fmt.Errorf("list %s: %w", f, err)
	}
	var objects []client.Object
	err = meta.EachListItemWithAlloc(list, func(obj runtime.Object) error {
		o, ok := obj.(client.Object)
		if !ok {
			return fmt.Errorf("list %s: found a %T, which has no metadata", f, obj)
		}
		objects = append(objects, f.named(o))
		return nil
	})
	if err != nil {
		return err
	}
	acc, err := meta.ListAccessor(list)
	if err != nil {
		return fmt.Errorf("list %s: %w", f, err)
	}
	f.replace(objects, parseRevision(acc.GetResourceVersion()))
	return nil
}

// errSilent ends a watch on which nothing was heard for too long. The connection may be dead though
// nobody said so.
var errSilent = errors.New("nothing was heard for too long")

// watch follows one watch to its end. If nothing is listed yet, the watch begins with a list.
func (f *feed) watch(ctx context.Context, listed *bool) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	w, err := f.open(ctx, cancel, !*listed)
	if err != nil {
		return fmt.Errorf("watch %s: %w", f, err)
	}
	defer w.Stop()

	var first []client.Object // of a list that is coming in
	silence := f.clock.NewTimer(f.quiet)
	defer silence.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-silence.C():
			return errSilent
		case event, ok := <-w.ResultChan():
			if !ok {
				return nil
			}
			timers.Reset(silence, f.quiet)
			obj, err := objectOf(event)
			switch {
			case err != nil:
				return err
			case *listed:
				f.apply(event.Type, f.named(obj))
			case event.Type != watch.Bookmark:
				first = append(first, f.named(obj))
			case obj.GetAnnotations()[metav1.InitialEventsAnnotationKey] == "true":
				f.replace(first, revisionOf(obj))
				*listed, first = true, nil
			}
		}
	}
}

// open asks for a watch. The server must begin to answer in time.
func (f *feed) open(ctx context.Context, cancel func(), withList bool) (watch.Interface, error) {
	opts := metav1.ListOptions{
		FieldSelector:       f.fields,
		AllowWatchBookmarks: true,
		TimeoutSeconds:      ptr.To(int64(watchMin.Seconds() * (1 + rand.Float64()))),
	}
	if withList {
		opts.SendInitialEvents = ptr.To(true)
		opts.ResourceVersionMatch = metav1.ResourceVersionMatchNotOlderThan
	} else {
		opts.ResourceVersion = fmt.Sprint(f.revision())
	}
	late := f.clock.NewTimer(openMax)
	opened := make(chan struct{})
	defer func() { close(opened); late.Stop() }()
	go func() {
		select {
		case <-late.C():
			cancel()
		case <-opened:
		}
	}()
	return f.source.Watch(ctx, opts)
}

// named gives metadata the kind that it stands for; the server says PartialObjectMetadata.
func (f *feed) named(obj client.Object) client.Object {
	if f.id.form == metadata {
		obj.GetObjectKind().SetGroupVersionKind(f.id.gvk)
	}
	return obj
}

func objectOf(event watch.Event) (client.Object, error) {
	if event.Type == watch.Error {
		return nil, apierrors.FromObject(event.Object)
	}
	obj, ok := event.Object.(client.Object)
	if !ok {
		return nil, fmt.Errorf("watch sent a %T, which has no metadata", event.Object)
	}
	return obj, nil
}

func (f *feed) apply(typ watch.EventType, obj client.Object) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if typ == watch.Bookmark {
		f.table.revision = max(f.table.revision, revisionOf(obj))
		f.changed()
		return
	}
	f.changed(f.table.apply(typ, obj)...)
}

func (f *feed) replace(objects []client.Object, revision int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	first := !isClosed(f.synced)
	changes := f.table.replace(objects, revision, first)
	if first {
		close(f.synced)
		changes = append(changes, change{typ: synced})
	}
	f.changed(changes...)
}

// changed tells handlers and those who wait. The lock is held; handlers run in their own goroutines,
// and what waiters are called with must not block.
func (f *feed) changed(changes ...change) {
	if len(changes) > 0 {
		for _, r := range f.handlers {
			r.push(changes...)
		}
	}
	if len(f.waiters) > 0 {
		f.waiters = slices.DeleteFunc(f.waiters, func(w waiter) bool {
			if !w.reached(f.table) {
				return false
			}
			w.then()
			return true
		})
	}
}

// when reports whether something is so. If not, then is called once when it is, or when the feed
// is stopped; it must not block.
func (f *feed) when(reached func(*table) bool, then func()) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.stopped || reached(f.table) {
		return true
	}
	if then != nil {
		f.waiters = append(f.waiters, waiter{reached, then})
	}
	return false
}

func (f *feed) revision() int64 {
	f.mu.RLock()
	defer f.mu.RUnlock()
	return f.table.revision
}

// everything returns each object as an update to itself, which is what a resync tells.
func (f *feed) everything() []change {
	f.mu.RLock()
	defer f.mu.RUnlock()
	return f.present(func(obj client.Object) change { return change{typ: updated, old: obj, new: obj} })
}

func (f *feed) present(as func(client.Object) change) []change {
	changes := make([]change, 0, len(f.table.objects)+1)
	for key, obj := range f.table.objects {
		c := as(obj)
		c.key = key
		changes = append(changes, c)
	}
	slices.SortFunc(changes, func(a, b change) int { return compareKeys(a.key, b.key) })
	return changes
}

// stop ends the feed: nobody waits for it any more.
func (f *feed) stop() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.stopped = true
	if f.cancel != nil {
		f.cancel()
	}
	for _, w := range f.waiters {
		w.then()
	}
	f.waiters = nil
}

func (f *feed) backoff() time.Duration {
	wait := min(reconnectMin<<min(f.failures, 16), reconnectMax)
	f.failures++
	return wait/2 + rand.N(wait/2+1)
}

// jitter spreads a period by a tenth to either side.
func (f *feed) jitter(d time.Duration) time.Duration { return d - d/10 + rand.N(d/5+1) }

func (f *feed) sleep(ctx context.Context, d time.Duration) {
	timer := f.clock.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C():
	}
}
