package core

import (
	"context"
	"iter"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/setpoint-dev/setpoint/store"
	"github.com/setpoint-dev/setpoint/store/internal/btree"
)

// Reader serves what is published. It has the reading methods of a store.Store.
type Reader struct {
	state     atomic.Pointer[state]
	compacted atomic.Int64
	closed    atomic.Bool
	history   struct{ bytes, since atomic.Int64 } // what is kept of it; since is in nanoseconds, 0 if nothing is

	// resources is replaced as a whole when one is added, under mu.
	resources atomic.Pointer[map[string]*resource]
	mu        sync.Mutex

	past past

	// meanwhile, if it is set, is called between two looks at what changes without anybody waiting: whose
	// order is what readers rest on.
	meanwhile func()
}

// state is one published revision. It is never modified.
type state struct {
	revision store.Revision
	trees    []btree.Tree[*store.Entry] // by resource.id; resources made later are empty
}

func newReader(at store.Revision) *Reader {
	r := &Reader{}
	r.compacted.Store(int64(at))
	r.state.Store(&state{revision: at})
	r.resources.Store(&map[string]*resource{})
	return r
}

func (r *Reader) between() {
	if r.meanwhile != nil {
		r.meanwhile()
	}
}

// publish lets readers see the state, and the events up to its revision that are in the logs.
func (r *Reader) publish(s *state) { r.state.Store(s) }

// resource returns the resource of a name, and makes it if nobody wrote or watched it before.
func (r *Reader) resource(name string) *resource {
	if res := (*r.resources.Load())[name]; res != nil {
		return res
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	old := *r.resources.Load()
	if res := old[name]; res != nil {
		return res
	}
	res := newResource(len(old))
	next := maps.Clone(old)
	next[name] = res
	r.resources.Store(&next)
	return res
}

// Revision is the published one.
func (r *Reader) Revision() store.Revision { return r.state.Load().revision }

// Compacted is the oldest revision that can be read.
func (r *Reader) Compacted() store.Revision { return store.Revision(r.compacted.Load()) }

// Snapshot returns the published state.
func (r *Reader) Snapshot(context.Context) (store.Snapshot, error) {
	if r.closed.Load() {
		return nil, store.ErrClosed
	}
	return &snapshot{reader: r, state: r.state.Load()}, nil
}

// Watch returns a cursor that stands after a revision.
func (r *Reader) Watch(resource, prefix string, after store.Revision) (store.Watch, error) {
	if r.closed.Load() {
		return nil, store.ErrClosed
	}
	if after > r.Revision() {
		return nil, store.ErrFuture
	}
	res := r.resource(resource)
	log := res.log.Load()
	r.between()
	// The log is loaded first: what a compaction drops later, the cursor finds out by itself.
	if after < r.Compacted() {
		return nil, store.ErrCompacted
	}
	c := &cursor{reader: r, resource: res, prefix: prefix}
	c.next.Store(log.after(after))
	c.revision.Store(int64(after))
	return c, nil
}

// compact drops the events up to and including the revision: the state at it can still be read,
// and watches can start after it.
func (r *Reader) compact(to store.Revision) {
	if to <= r.Compacted() {
		return
	}
	r.compacted.Store(int64(to))
	for _, res := range *r.resources.Load() {
		res.compact(to)
	}
	r.past.compact(to)
}

// Close ends all watches and refuses new reads; snapshots that were taken stay readable.
func (r *Reader) Close() {
	r.closed.Store(true)
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, res := range *r.resources.Load() {
		res.wake()
	}
}

// HistoryBytes is about how much memory the history takes: what is bounded by Options.HistoryBytes.
func (r *Reader) HistoryBytes() int64 { return r.history.bytes.Load() }

// HistorySince is about when the oldest of the history happened, the zero time if there is none.
func (r *Reader) HistorySince() time.Time {
	if since := r.history.since.Load(); since != 0 {
		return time.Unix(0, since)
	}
	return time.Time{}
}

// Closed says whether Close was called.
func (r *Reader) Closed() bool { return r.closed.Load() }

// Entries returns the published revision and everything that exists at it, by resource and path.
func (r *Reader) Entries() (store.Revision, iter.Seq[*store.Entry]) {
	s := &snapshot{reader: r, state: r.state.Load()}
	names := slices.Sorted(maps.Keys(*r.resources.Load()))
	return s.state.revision, func(yield func(*store.Entry) bool) {
		for _, name := range names {
			for _, entry := range s.tree(name).From("") {
				if !yield(entry) {
					return
				}
			}
		}
	}
}
