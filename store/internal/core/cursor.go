package core

import (
	"context"
	"strings"
	"sync/atomic"

	"github.com/setpoint-dev/setpoint/store"
)

// cursor is a watch: a place in a log. It holds no event and no chunk, so one that is never
// read again costs its own few words.
type cursor struct {
	reader   *Reader
	resource *resource
	prefix   string

	events []*store.Event // what TryNext returned last

	next     atomic.Uint64 // sequence number of the first event not yet looked at
	revision atomic.Int64
}

// eventsMax is how many events a call returns before it stops at the end of a revision: enough to
// make a write to a socket worth it, few enough to bound what a watcher that catches up holds.
const eventsMax = 256

// bytesMax is how large the objects of a call may be before it stops in the same way. Whoever is
// stuck with what a call returned holds no more of a past that the store has forgotten.
const bytesMax = 64 << 10

// closed is what Ready returns when there is no need to wait.
var closed = func() chan struct{} { c := make(chan struct{}); close(c); return c }()

func (c *cursor) Revision() store.Revision { return store.Revision(c.revision.Load()) }

func (c *cursor) Next(ctx context.Context) ([]*store.Event, error) {
	for {
		events, err := c.TryNext()
		if err != nil || len(events) > 0 {
			return events, err
		}
		select {
		case <-c.Ready():
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// Ready looks at the log after it has got hold of the channel: what was published before is found,
// and what is published later closes it.
func (c *cursor) Ready() <-chan struct{} {
	wait := c.resource.wait()
	c.reader.between()
	if c.reader.closed.Load() {
		return closed
	}
	published, log, next := c.reader.Revision(), c.resource.log.Load(), c.next.Load()
	if next < log.first || next < log.end() && log.at(next).Entry.Revision <= published {
		return closed
	}
	return wait
}

func (c *cursor) TryNext() ([]*store.Event, error) {
	if c.reader.closed.Load() {
		return nil, store.ErrClosed
	}
	// The order of the two loads is what a bookmark rests on: every event up to the revision that was
	// published is in the log that is loaded after it.
	published := c.reader.Revision()
	c.reader.between()
	log := c.resource.log.Load()
	next, end := c.next.Load(), log.end()
	if next < log.first {
		return nil, store.ErrCompacted
	}
	clear(c.events)
	c.events = c.events[:0]
	reached, size := published, 0
	for ; next < end; next++ {
		e := log.at(next)
		if e.Entry.Revision > published {
			break
		}
		if n := len(c.events); (n >= eventsMax || size >= bytesMax) && e.Entry.Revision != c.events[n-1].Entry.Revision {
			reached = c.events[n-1].Entry.Revision
			break
		}
		if strings.HasPrefix(e.Entry.Key.Path, c.prefix) {
			c.events = append(c.events, e)
			size += len(e.Entry.Value)
		}
	}
	c.next.Store(next)
	c.revision.Store(int64(reached))
	return c.events, nil
}
