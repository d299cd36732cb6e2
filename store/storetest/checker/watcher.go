package checker

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/setpoint-dev/setpoint/store"
)

// watchRecord is one watch from its opening to its end.
type watchRecord struct {
	name     string
	resource string
	prefix   string
	after    store.Revision
	calls    []watchCall
	// err is what ended or refused it; compacting is how far anybody had asked to compact by then.
	err        error
	compacting store.Revision
	// complete says that it was read until it had the last event.
	complete bool
}

// watchCall is what one call returned, and where the watch said it was then.
type watchCall struct {
	events []observed
	told   store.Revision
}

// observed is an event. The cell of a deletion is the last state.
type observed struct {
	kind store.EventType
	key  store.Key
	now  cell
	prev cell
}

// watcher follows a part of a resource, with a new watch whenever it feels like it. The first two
// are witnesses: they see all of a resource, from the beginning, with one watch.
type watcher struct {
	run     *run
	id      int
	rand    *rand.Rand
	witness bool
	done    []watchRecord
	err     error
}

func (r *run) newWatcher(id int) watcher {
	return watcher{run: r, id: id, rand: rand.New(rand.NewPCG(r.opts.Seed, uint64(1000+id))), witness: id < len(resources)}
}

func (w *watcher) work(ctx context.Context) {
	record := watchRecord{resource: "pods", prefix: []string{"", "a/", "b/"}[w.id%3]}
	if w.witness {
		record.resource, record.prefix = resources[w.id], ""
	}
	for n := 0; w.err == nil; n++ {
		record.name = fmt.Sprintf("watch %d of watcher %d", n, w.id)
		record.calls, record.err, record.complete = nil, nil, false
		next := w.follow(ctx, &record)
		w.done = append(w.done, record)
		if record.complete || w.err != nil {
			return
		}
		if record.calls == nil && record.err == nil {
			continue // a fault kept it from being opened
		}
		record.after = next
		if record.err != nil {
			// What a client does that is told that it has missed something: read, and watch from there.
			record.after = w.run.store.Revision()
		}
	}
}

// follow reads a watch until it ends, or is dropped to be resumed at the revision it returns.
func (w *watcher) follow(ctx context.Context, record *watchRecord) (resume store.Revision) {
	watch, err := w.run.store.Watch(record.resource, record.prefix, record.after)
	if err != nil && w.run.opts.Faults && !errors.Is(err, store.ErrCompacted) && !errors.Is(err, store.ErrFuture) {
		return record.after
	}
	if err != nil {
		w.end(record, err)
		return 0
	}
	newest := record.after
	for {
		events, err := watch.TryNext()
		if err != nil {
			w.end(record, err)
			return 0
		}
		call := watchCall{told: watch.Revision()}
		for _, ev := range events {
			o, err := look(ev)
			if err != nil {
				w.err = err
				return 0
			}
			call.events = append(call.events, o)
		}
		record.calls = append(record.calls, call)
		if w.witness {
			w.run.witnessed[w.id].Store(int64(call.told))
		}
		if n := len(events); n > 0 {
			newest = events[n-1].Entry.Revision
		}
		if w.hasAll(newest) {
			record.complete = true
			return 0
		}
		if len(events) == 0 {
			if w.err = w.wait(ctx, watch, newest); w.err != nil {
				return 0
			}
		} else if !w.witness && w.rand.IntN(10) == 0 {
			return []store.Revision{call.told, newest}[w.rand.IntN(2)]
		}
	}
}

func (w *watcher) end(record *watchRecord, err error) {
	record.err, record.compacting = err, store.Revision(w.run.compacted.Load())
	switch {
	case errors.Is(err, store.ErrFuture):
		w.err = violation("resumable", "%s after %d, which has been seen: %v", record.name, record.after, err)
	case !errors.Is(err, store.ErrCompacted):
		w.err = fmt.Errorf("%s: %w", record.name, err)
	case len(w.done) > w.run.opts.Steps*w.run.opts.Clients:
		w.err = violation("resumable", "watcher %d had to start anew %d times", w.id, len(w.done))
	}
}

// hasAll says whether a watch that has come so far has seen the last commit of the run.
func (w *watcher) hasAll(newest store.Revision) bool {
	select {
	case <-w.run.finished:
		return newest >= w.run.last
	default:
		return false
	}
}

// wait returns when there may be something new. While the traffic lasts there is no bound to that.
func (w *watcher) wait(ctx context.Context, watch store.Watch, newest store.Revision) error {
	ready := watch.Ready()
	select {
	case <-ready:
		return nil
	case <-w.run.finished:
		if w.hasAll(newest) {
			return nil
		}
	case <-ctx.Done():
		return ctx.Err()
	}
	patience := time.NewTimer(w.run.opts.Patience)
	defer patience.Stop()
	select {
	case <-ready:
		return nil
	case <-patience.C:
		return violation("woken", "watcher %d has seen %d and waits, the last event is of %d", w.id, newest, w.run.last)
	case <-ctx.Done():
		return ctx.Err()
	}
}

func look(ev *store.Event) (o observed, err error) {
	o = observed{kind: ev.Type, key: ev.Entry.Key}
	if o.now, err = read(ev.Entry); err == nil && ev.Prev != nil {
		o.prev, err = read(ev.Prev)
	}
	return o, err
}
