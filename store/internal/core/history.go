package core

import (
	"time"

	"github.com/setpoint-dev/setpoint/store"
)

// Options bound the history. Zero values mean the defaults.
type Options struct {
	// HistoryAge is how long an event is kept at least, if HistoryBytes allows.
	HistoryAge time.Duration
	// HistoryBytes bounds the memory that events keep alive.
	HistoryBytes int64
}

const (
	// DefaultHistoryAge serves clients that were away for as long as Kubernetes lets them be: its
	// API server compacts every five minutes, so what is older may be up to ten minutes old. Who
	// waits for the past to be gone, as its conformance tests do, waits no longer than that.
	DefaultHistoryAge = 9 * time.Minute
	// DefaultHistoryBytes holds ten minutes of 1,000 nodes that renew a lease every ten seconds,
	// twice over; beyond it history gets shorter instead of memory larger.
	DefaultHistoryBytes = 128 << 20
)

// A mark says when a revision was published, and how much had been until then. There is one for
// each sixty-fourth of the history's bounds: what compaction can cut at.
type mark struct {
	at       time.Time
	revision store.Revision
	bytes    int64
}

const marksMax = 64

// weigh lets readers know what is kept. It is as exact as compaction: to a mark.
func (c *Core) weigh() {
	bytes, since := int64(0), int64(0)
	for _, m := range c.marks {
		if m.revision >= c.reader.Compacted() {
			bytes, since = c.bytes-m.bytes, m.at.UnixNano()
			break
		}
	}
	c.reader.history.bytes.Store(bytes)
	c.reader.history.since.Store(since)
}

// cost estimates the memory that an event keeps alive: itself, its entry, and the one before,
// which nothing else may keep any more.
func cost(e *store.Event) int64 {
	const overhead = 256
	n := int64(overhead + len(e.Entry.Value) + len(e.Entry.Key.Path))
	if e.Prev != nil {
		n += int64(len(e.Prev.Value))
	}
	return n
}

func (c *Core) mark(now time.Time) {
	if c.Due(now) {
		c.marks = append(c.marks, mark{now, c.revision, c.bytes})
	}
}

// Due says whether it is time for a Publish, if history is to be bounded no more coarsely than it
// can be. Who replays a log need not publish more often.
func (c *Core) Due(now time.Time) bool {
	n := len(c.marks)
	if n == 0 {
		return true
	}
	last := c.marks[n-1]
	return now.Sub(last.at) >= c.options.HistoryAge/marksMax ||
		c.bytes+c.pendingBytes-last.bytes >= c.options.HistoryBytes/marksMax
}

// bound compacts to the newest mark that is too old, or before which there is too much.
func (c *Core) bound(now time.Time) {
	cut := -1
	for i, m := range c.marks {
		if now.Sub(m.at) <= c.options.HistoryAge && c.bytes-m.bytes <= c.options.HistoryBytes {
			break
		}
		cut = i
	}
	if cut >= 0 {
		c.reader.compact(c.marks[cut].revision)
		c.marks = append(c.marks[:0], c.marks[cut+1:]...)
	}
	c.weigh()
}

// Age compacts what has become too old though nothing was published since, and says after how long
// there will be more to do; zero means not before the next Publish.
func (c *Core) Age(now time.Time) time.Duration {
	c.bound(now)
	published := c.reader.Revision()
	if published > c.reader.Compacted() && now.Sub(c.publishedAt) > c.options.HistoryAge {
		c.reader.compact(published)
		c.marks = c.marks[:0]
		c.weigh()
	}
	if published == c.reader.Compacted() {
		return 0
	}
	oldest := c.publishedAt
	if len(c.marks) > 0 {
		oldest = c.marks[0].at
	}
	return max(oldest.Add(c.options.HistoryAge).Sub(now), 0) + time.Nanosecond
}
