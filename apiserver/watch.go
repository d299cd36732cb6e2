package apiserver

import (
	"errors"
	"net/http"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/clock"

	"github.com/setpoint-dev/setpoint/store"
)

// How long a watch lives if the client does not say, so that connections spread over servers
// anew; and how often a quiet one tells how far it has come. Both are those of a Kubernetes server.
const (
	watchLifeMin, watchLifeMax = 30 * time.Minute, 60 * time.Minute
	bookmarkMin, bookmarkMax   = 50 * time.Second, 70 * time.Second
)

// A client that takes nothing for so long is taken for dead. One that is only slow falls behind in
// the store's log, which costs the server nothing, and is told 410 when the log moves on.
const stallMax = 30 * time.Second

// watch streams changes. The goroutine of the request is the only one of the watch.
func (s *Server) watch(w http.ResponseWriter, r *request) error {
	media, err := negotiateStream(r)
	if err != nil {
		return err
	}
	opts, err := parseListOptions(r)
	if err != nil {
		return err
	}
	frames, err := s.newFrames(media, r, &opts.selector)
	if err != nil {
		return err
	}
	begin, err := s.beginWatch(r, opts)
	if err != nil {
		return err
	}
	frames.last, frames.marked = begin.after, begin.after
	counts := s.metrics.watch(r)
	defer counts.end()

	w.Header().Set("Content-Type", media.streamType())
	w.WriteHeader(http.StatusOK)
	out := &stream{w: w, control: http.NewResponseController(w)}
	if err := s.sendInitial(out, frames, begin, opts); err != nil {
		return s.endWithError(out, frames, err)
	}
	return s.follow(out, frames, begin, opts, counts)
}

// beginning is where a watch starts.
type beginning struct {
	snap   store.Snapshot // what to begin with, if initial events are wanted
	cursor store.Watch    // nil if the client's revision is no longer known
	asked  store.Revision
	after  store.Revision // events up to it are not shown
}

// beginWatch finds the place in the log.
func (s *Server) beginWatch(r *request, opts *listOptions) (*beginning, error) {
	b := &beginning{asked: opts.revision, after: opts.revision}
	from := opts.revision
	if opts.initialEvents || from == 0 {
		snap, err := s.snapshot(r, opts.revision)
		if err != nil {
			return nil, err
		}
		if opts.initialEvents {
			b.snap = snap
		}
		from, b.after = snap.Revision(), snap.Revision()
	}
	cursor, err := s.store.Watch(storageResource(r.kind), r.watchPrefix(), from)
	if errors.Is(err, store.ErrFuture) {
		// What the client has seen elsewhere will happen here too: wait for what follows it.
		cursor, err = s.store.Watch(storageResource(r.kind), r.watchPrefix(), s.store.Revision())
	}
	switch {
	case errors.Is(err, store.ErrCompacted):
		return b, nil
	case err != nil:
		return nil, storeError(err)
	}
	b.cursor = cursor
	return b, nil
}

// sendInitial writes what is there, and says that this was all if the client wants to know.
func (s *Server) sendInitial(out *stream, f *frames, b *beginning, opts *listOptions) error {
	if b.snap == nil {
		return out.flush()
	}
	out.acquire()
	for chunk := range chunksOf(b.snap, storageResource(f.r.kind), f.r.watchPrefix(), "") {
		err := f.s.warm(f.r, chunk)
		if err != nil {
			return err
		}
		for _, e := range chunk {
			if out.buf, err = f.initial(out.buf, e); err != nil {
				return err
			}
			if err := out.full(); err != nil {
				return err
			}
		}
	}
	if opts.bookmarks {
		var err error
		if out.buf, err = f.bookmark(out.buf, b.snap.Revision(), true); err != nil {
			return err
		}
	}
	b.snap = nil // it would hold the old state for as long as the watch lives
	return out.flush()
}

// follow writes what happens until somebody ends the watch.
func (s *Server) follow(out *stream, f *frames, b *beginning, opts *listOptions, n *watchCounts) error {
	life := opts.timeout
	if life <= 0 {
		life = s.random.between(watchLifeMin, watchLifeMax)
	}
	timers := s.newWatchTimers(life, opts.bookmarks)
	defer timers.stop()
	for end, due := false, false; ; {
		idle, err := drainEvents(out, f, b, n)
		if err != nil {
			return s.endWithError(out, f, err)
		}
		if !idle {
			continue
		}
		if due || end && opts.bookmarks {
			// The cursor has just looked, so it knows how far a quiet resource has come.
			if out.buf, err = f.progress(out.buf, b.cursor.Revision(), due); err != nil {
				return s.endWithError(out, f, err)
			}
		}
		if err := out.flush(); err != nil || end {
			return err
		}
		end, due = timers.wait(f.r, b.cursor.Ready(), s.stopped)
	}
}

// drainEvents writes the events that are there; idle says that there were none.
func drainEvents(out *stream, f *frames, b *beginning, n *watchCounts) (idle bool, err error) {
	if b.cursor == nil {
		return false, store.ErrCompacted
	}
	events, err := b.cursor.TryNext()
	if err != nil || len(events) == 0 {
		return true, err
	}
	out.acquire()
	for _, ev := range events {
		if ev.Entry.Revision <= b.after {
			continue
		}
		if out.buf, err = f.event(out.buf, ev); err != nil {
			return false, err
		}
		if err := out.full(); err != nil {
			return false, err
		}
	}
	clear(events) // the next write may take long, and what it is about may be forgotten meanwhile
	n.events.Add(float64(len(events)))
	return false, nil
}

// endWithError writes the ERROR event that ends a watch, where there is somebody to tell. The watch
// has to end then: what it shows afterwards would have a gap.
func (s *Server) endWithError(out *stream, f *frames, err error) error {
	if gone := (abortedError{}); errors.As(err, &gone) {
		return err
	}
	var end *apierrors.StatusError
	switch {
	case errors.Is(err, store.ErrCompacted):
		end = errExpired(f.last, s.store.Compacted())
	case errors.Is(err, store.ErrClosed):
		return out.flush()
	default:
		s.log.Error("watch failed", "resource", f.r.resource, "err", err)
		end = asStatus(err)
	}
	out.buf = f.failure(out.buf, end)
	return out.flush()
}

// watchTimers end a watch and remind it of bookmarks.
type watchTimers struct {
	s        *Server
	life     clock.Timer
	bookmark clock.Timer // nil without bookmarks
}

func (s *Server) newWatchTimers(life time.Duration, bookmarks bool) *watchTimers {
	t := &watchTimers{s: s, life: s.clock.NewTimer(life)}
	if bookmarks {
		t.bookmark = s.clock.NewTimer(s.random.between(bookmarkMin, bookmarkMax))
	}
	return t
}

func (t *watchTimers) stop() {
	t.life.Stop()
	if t.bookmark != nil {
		t.bookmark.Stop()
	}
}

// wait returns when there are events, when the watch has to end, or when a bookmark is due.
func (t *watchTimers) wait(r *request, ready, stopped <-chan struct{}) (end, due bool) {
	var bookmark <-chan time.Time
	if t.bookmark != nil {
		bookmark = t.bookmark.C()
	}
	select {
	case <-ready:
	case <-bookmark:
		t.bookmark.Reset(t.s.random.between(bookmarkMin, bookmarkMax))
		return false, true
	case <-t.life.C():
		return true, false
	case <-stopped:
		return true, false
	case <-r.kind.Replaced:
		return true, false
	case <-r.http.Context().Done():
		return true, false
	}
	return false, false
}

// stream gathers frames and sends them together. Its buffer comes from a pool, so that a quiet
// watch has none.
type stream struct {
	w       http.ResponseWriter
	control *http.ResponseController
	buf     []byte
	pooled  *[]byte
	// timeless says that the transport has no deadlines.
	timeless bool
}

// streamBytes is what a stream gathers before it sends. It is as much as a record of TLS has: more
// would save nothing, and each watcher that has stopped reading holds one buffer.
const streamBytes = 16 << 10

// Most frames that come on top fit in the buffer, too.
var buffers = sync.Pool{New: func() any { return new(make([]byte, 0, 2*streamBytes)) }}

func (o *stream) acquire() {
	if o.pooled == nil {
		o.pooled = buffers.Get().(*[]byte)
		o.buf = (*o.pooled)[:0]
	}
}

// release gives the buffer back, unless one large object made it too large to keep.
func (o *stream) release() {
	if o.pooled != nil && cap(o.buf) <= 4*streamBytes {
		*o.pooled = o.buf[:0]
		buffers.Put(o.pooled)
	}
	o.pooled, o.buf = nil, nil
}

// full sends what was gathered if it is enough for one write.
func (o *stream) full() error {
	if len(o.buf) < streamBytes {
		return nil
	}
	return o.write()
}

func (o *stream) write() error {
	// Not every transport has deadlines; one that has none sees at once that its client is gone.
	// The deadline is taken off again because HTTP/2 counts it while nothing is written, too.
	if !o.timeless {
		o.timeless = o.control.SetWriteDeadline(time.Now().Add(stallMax)) != nil
		defer o.control.SetWriteDeadline(time.Time{})
	}
	if len(o.buf) > 0 {
		if _, err := o.w.Write(o.buf); err != nil {
			return aborted(err)
		}
		o.buf = o.buf[:0]
	}
	return aborted(o.control.Flush())
}

// flush sends everything now, before the watch waits.
func (o *stream) flush() error {
	defer o.release()
	return o.write()
}
