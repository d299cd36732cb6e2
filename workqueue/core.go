package workqueue

import (
	"math"
	"slices"
	"time"

	"k8s.io/client-go/util/workqueue"
)

// A core is the queue without locks, goroutines or a clock of its own: each method is told what
// time it is, as the time since some epoch. It is stepped by Queue, and by tests.
//
// A key is in at most one of two places, a band (it may be popped now) or the delay heap (it may be
// popped later), and besides may be in work. A key in work that is added again waits as dirty until
// done is called; so it never runs twice at once and an add is never lost.
type core[T comparable] struct {
	cfg     config[T]
	entries map[T]*entry[T]
	idle    list[T] // entries with nothing to say, newest first, kept in case their keys come back

	bands   []*band[T] // highest priority first; some may be empty
	turn    uint       // pops while more than one band had keys
	depth   int        // keys in bands
	delayed delays[T]
	working list[T] // entries of keys in work, newest first
	// ended is when work began that has ended since the clock was last read.
	ended []time.Duration

	bucket  bucket
	metrics counters
}

type config[T comparable] struct {
	delayMin, delayMax time.Duration
	rate               float64
	burst              int
	limiter            workqueue.TypedRateLimiter[T] // instead of the four above, if not nil
}

// entry is what is known of one key. It exists while the key is queued, delayed or in work, or has
// failures to remember.
type entry[T comparable] struct {
	key        T
	next, prev *entry[T]     // in the band, or in the list of idle keys, or of those in work
	band       *band[T]      // nil if not in one
	added      time.Duration // first add that this wait stands for
	due        time.Duration // when a delayed key may be popped
	started    time.Duration // of the work under way
	priority   int
	delayIndex int32 // in the delay heap, notDelayed if not
	failures   int32
	coalesced  int32 // adds that this wait stands for
	inWork     bool
	dirty      bool
	isIdle     bool
	story      *story // nil if there is nothing to tell
}

// story is what people ask about a key, and no decision needs.
type story struct {
	lastError error
	reasons   []Reason
}

// band holds the ready keys of one priority, first in first out.
type band[T comparable] struct {
	list[T]
	priority int
}

const (
	// shareOfLower is how many pops there are to one that is given to the longest waiting of the
	// lower priorities: a fresh change waits for at most one other key in that many, and the lowest
	// priority is served even when higher ones never run dry.
	shareOfLower = 8
	// reasonsMax bounds what is remembered of why a key was added.
	reasonsMax = 8
	// idleMax bounds the entries that are kept though there is nothing to say of their keys. Most keys
	// come back, and to find an entry is cheaper than to make one.
	idleMax = 256
	// bandsMax is how many priorities may be in use before empty bands are dropped.
	bandsMax   = 8
	notDelayed = -1
)

func newCore[T comparable](cfg config[T]) *core[T] {
	return &core[T]{
		cfg:     cfg,
		entries: make(map[T]*entry[T]),
		bucket:  newBucket(cfg.rate, cfg.burst),
	}
}

// add makes the key ready, or ready after a while. It reports whether a key became ready, and
// whether the earliest delay changed.
func (c *core[T]) add(now time.Duration, key T, after time.Duration, priority int) (ready, sooner bool) {
	e := c.entry(key)
	c.metrics.adds++
	if !e.waits() {
		e.added, e.priority, e.coalesced = now, priority, 0
	}
	e.coalesced++
	if priority > e.priority {
		e.priority = priority
		if e.band != nil {
			c.leaveBand(e)
			c.enterBand(e)
		}
	}
	switch {
	case e.dirty || e.band != nil: // ready is as early as it gets
		return false, false
	case after > 0:
		return false, c.delay(e, saturatingAdd(now, after))
	}
	if e.delayIndex != notDelayed {
		c.undelay(e)
		e.added = now
	}
	return c.makeReady(e), false
}

// waits says whether the key is already due to be popped, now or later.
func (e *entry[T]) waits() bool { return e.band != nil || e.dirty || e.delayIndex != notDelayed }

func (c *core[T]) makeReady(e *entry[T]) bool {
	if e.inWork {
		e.dirty = true
		return false
	}
	c.enterBand(e)
	return true
}

// mature moves keys whose delay is over to where they can be popped, and returns how many.
func (c *core[T]) mature(now time.Duration) int {
	n := 0
	for len(c.delayed) > 0 && c.delayed[0].due <= now {
		e := c.delayed[0]
		c.undelay(e)
		// The wait that is measured begins when the key could have run.
		e.added = e.due
		if c.makeReady(e) {
			n++
		}
	}
	return n
}

// measure counts the work that has ended since it was last called.
func (c *core[T]) measure(now time.Duration) {
	for _, started := range c.ended {
		c.metrics.workTime.observe(now - started)
	}
	c.ended = c.ended[:0]
}

// nextDue returns when mature has something to do.
func (c *core[T]) nextDue() (time.Duration, bool) {
	if len(c.delayed) == 0 {
		return 0, false
	}
	return c.delayed[0].due, true
}

// pop takes the next ready key into work. Keys that are due must have been made ready by mature.
func (c *core[T]) pop(now time.Duration) (key T, priority int, ok bool) {
	b := c.nextBand()
	if b == nil {
		return key, 0, false
	}
	e := b.first
	c.leaveBand(e)
	e.inWork, e.started = true, now
	if e.story != nil {
		e.story.reasons = nil
	}
	c.working.push(e)
	c.metrics.queueTime.observe(now - e.added)
	return e.key, e.priority, true
}

// nextBand chooses the band to pop from: the highest, and in its turn the longest waiting of the
// others.
func (c *core[T]) nextBand() *band[T] {
	var highest, oldest *band[T]
	for _, b := range c.bands {
		switch {
		case b.first == nil:
		case highest == nil:
			highest = b
		case oldest == nil || b.first.added < oldest.first.added:
			oldest = b
		}
	}
	if oldest == nil {
		return highest
	}
	if c.turn++; c.turn%shareOfLower == 0 {
		return oldest
	}
	return highest
}

// done ends the work on a key. It reports whether the key became ready again. A key that is not in
// work is left alone. How long the work took is measured when the clock is next read, which is as
// the worker comes for its next key.
func (c *core[T]) done(key T) (ready bool) {
	e := c.entries[key]
	if e == nil || !e.inWork {
		return false
	}
	e.inWork = false
	c.working.remove(e)
	c.ended = append(c.ended, e.started)
	if e.dirty {
		e.dirty = false
		c.enterBand(e)
		return true
	}
	c.release(e)
	return false
}

// failed counts a failure of the key and returns how long it must wait.
func (c *core[T]) failed(now time.Duration, key T) time.Duration {
	e := c.entry(key)
	c.metrics.retries++
	e.failures++
	if c.cfg.limiter != nil {
		return c.cfg.limiter.When(key)
	}
	return max(backoff(c.cfg.delayMin, c.cfg.delayMax, int(e.failures)), c.bucket.take(now))
}

// forget clears the failures of the key.
func (c *core[T]) forget(key T) {
	if c.cfg.limiter != nil {
		c.cfg.limiter.Forget(key)
	}
	if e := c.entries[key]; e != nil {
		e.failures = 0
		if e.story != nil {
			e.story.lastError = nil
		}
		c.release(e)
	}
}

// backoff is the delay before the n-th retry, n from 1: doubled each time from lo, capped at hi.
func backoff(lo, hi time.Duration, n int) time.Duration {
	d := lo
	for ; n > 1 && d < hi; n-- {
		if d > hi/2 {
			return hi
		}
		d *= 2
	}
	return min(d, hi)
}

func saturatingAdd(a, b time.Duration) time.Duration {
	if a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}

// because remembers why a key waits.
func (c *core[T]) because(key T, r Reason) {
	e := c.entries[key]
	if e == nil || !e.waits() {
		return
	}
	if e.story == nil {
		e.story = new(story)
	}
	if len(e.story.reasons) < reasonsMax && !slices.Contains(e.story.reasons, r) {
		e.story.reasons = append(e.story.reasons, r)
	}
}

// blame remembers how the last work on a key failed.
func (c *core[T]) blame(key T, err error) {
	e := c.entries[key]
	if e == nil {
		return
	}
	if e.story == nil {
		e.story = new(story)
	}
	e.story.lastError = err
}
