package core

import (
	"sort"
	"sync"
	"sync/atomic"

	"github.com/setpoint-dev/setpoint/store"
)

// resource is what all watchers of a resource share: its log, and one channel to wait on.
type resource struct {
	id  int // index into the trees of a state
	log atomic.Pointer[eventLog]

	mu     sync.Mutex
	waiter chan struct{} // closed at the next publication; nil while nobody waits
}

// chunkEvents is the size in which the log grows and is given back.
const chunkEvents = 64

// eventLog is an immutable view of a log's chunks; the last one is still being filled. Readers
// load it after the published revision and stop at the first event that is newer, so they see
// nothing that is being added.
type eventLog struct {
	chunks []*chunk
	base   uint64 // sequence number of the first slot of the first chunk
	first  uint64 // sequence number of the oldest event that was not compacted
}

type chunk struct {
	events [chunkEvents]*store.Event
	filled atomic.Int32
}

func newResource(id int) *resource {
	res := &resource{id: id}
	res.log.Store(&eventLog{})
	return res
}

// append adds an event. Only the writer calls it.
func (res *resource) append(e *store.Event) {
	log := res.log.Load()
	n := len(log.chunks)
	if n == 0 || log.chunks[n-1].filled.Load() == chunkEvents {
		// Readers of older views never look beyond their length, so the array can be shared.
		log = &eventLog{chunks: append(log.chunks, &chunk{}), base: log.base, first: log.first}
		res.log.Store(log)
		n++
	}
	last := log.chunks[n-1]
	i := last.filled.Load()
	last.events[i] = e
	last.filled.Store(i + 1)
}

// compact drops the events up to and including the revision. Only the writer calls it.
func (res *resource) compact(to store.Revision) {
	old := res.log.Load()
	first := old.after(to)
	if first == old.first {
		return
	}
	drop := int((first - old.base) / chunkEvents)
	log := &eventLog{base: old.base + uint64(drop)*chunkEvents, first: first}
	log.chunks = append(log.chunks, old.chunks[drop:]...)
	if first > log.base {
		// The chunk that is cut is copied without what was dropped, which would stay alive in it.
		whole, rest := log.chunks[0], &chunk{}
		rest.filled.Store(whole.filled.Load())
		copy(rest.events[first-log.base:], whole.events[first-log.base:])
		log.chunks[0] = rest
	}
	res.log.Store(log)
}

// end is the sequence number after the newest event.
func (l *eventLog) end() uint64 {
	n := len(l.chunks)
	if n == 0 {
		return l.base
	}
	return l.base + uint64(n-1)*chunkEvents + uint64(l.chunks[n-1].filled.Load())
}

// at returns the event of a sequence number that is at least first and less than end.
func (l *eventLog) at(seq uint64) *store.Event {
	i := seq - l.base
	return l.chunks[i/chunkEvents].events[i%chunkEvents]
}

// after returns the sequence number of the first event that is newer than the revision.
func (l *eventLog) after(revision store.Revision) uint64 {
	n := int(l.end() - l.first)
	return l.first + uint64(sort.Search(n, func(i int) bool {
		return l.at(l.first+uint64(i)).Entry.Revision > revision
	}))
}

// wait returns a channel that is closed at the next publication that changes the resource.
func (res *resource) wait() <-chan struct{} {
	res.mu.Lock()
	defer res.mu.Unlock()
	if res.waiter == nil {
		res.waiter = make(chan struct{})
	}
	return res.waiter
}

// wake closes the channel that wait returned: one step for any number of watchers.
func (res *resource) wake() {
	res.mu.Lock()
	defer res.mu.Unlock()
	if res.waiter != nil {
		close(res.waiter)
		res.waiter = nil
	}
}
