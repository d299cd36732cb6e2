package workqueue

import (
	"math"
	"slices"
	"time"

	"k8s.io/client-go/util/workqueue"
)

// A core is the queue without locks, goroutines or a clock of its own: it is told what time it is,
// as the time since some epoch. It is stepped by Queue, and by tests.
//
// A key is in at most one of two places, a flow (it may be popped now) or the heap of delays (it may
// be popped later), and besides may be in work. A key in work that is added again waits as dirty
// until done is called; so it never runs twice at once and an add is never lost.
type core[T comparable] struct {
	cfg     config[T]
	now     time.Duration
	table   table[T]
	records arena[record]

	classes   map[string]*class
	lastClass *class // looked up last
	sweepAt   int    // how many classes are worth a sweep
	flows     []*flow
	freeFlows []uint32
	bands     []*band // highest priority first; some may be empty
	turn      uint    // pops while more than one band had keys
	depth     int     // keys in bands

	delays  delays
	retries bucket // of all classes together
	working []ref
	// ended is when work began that has ended since the clock was last read.
	ended   []time.Duration
	metrics counters
}

type config[T comparable] struct {
	delayMin, delayMax time.Duration
	rate               float64
	burst              int
	class              func(T) string                // nil if all keys are of one
	limiter            workqueue.TypedRateLimiter[T] // instead of delays and rates, if not nil
}

const (
	// reasonsMax bounds what is remembered of why a key was added.
	reasonsMax = 8
	// classesAtOnce is how many classes can use up their budgets of retries at a time: all keys
	// together have one that is so many times larger. Else it would grow with the classes.
	classesAtOnce = 10
	// scanMax is how many keys in work are compared with one that is sought before its hash is
	// computed.
	scanMax = 4
)

func newCore[T comparable](cfg config[T]) *core[T] {
	c := &core[T]{
		cfg: cfg, table: newTable[T](), classes: make(map[string]*class), sweepAt: classesMin,
		retries: newBucket(cfg.rate*classesAtOnce, cfg.burst*classesAtOnce),
	}
	c.delays.place = func(r ref, at int) { c.recordOf(c.table.at(r)).place = at }
	return c
}

// tick tells the core what time it is. It makes ready what is due and returns how many keys that
// are.
func (c *core[T]) tick(now time.Duration) (matured int) {
	c.now = max(c.now, now)
	for _, started := range c.ended {
		c.metrics.workTime.observe(c.now - started)
	}
	c.ended = c.ended[:0]
	for len(c.delays.heap) > 0 && c.delays.heap[0].due <= c.now {
		if c.mature(c.delays.heap[0]) {
			matured++
		}
	}
	return matured
}

// mature makes a key ready that is due, and reports whether it became so.
func (c *core[T]) mature(d delay) bool {
	s := c.table.at(d.key)
	retry := c.recordOf(s).retry
	c.undelay(s)
	if retry {
		if wait := c.retries.take(c.now); wait > 0 {
			c.delay(d.key, s, saturatingAdd(c.now, wait))
			return false
		}
	}
	// The wait that is measured begins when the key could have run.
	c.setSince(s, d.due)
	return c.makeReady(d.key, s)
}

// nextDue returns when tick has something to make ready.
func (c *core[T]) nextDue() (time.Duration, bool) {
	if len(c.delays.heap) == 0 {
		return 0, false
	}
	return c.delays.heap[0].due, true
}

// add makes the key wait as the options say; err is why it failed, if it did. It reports whether a
// key became ready, and whether the earliest delay changed.
func (c *core[T]) add(key T, how *AddOptions, err error) (isReady, sooner bool) {
	r, s, made := c.table.insert(key)
	if made {
		c.enlist(s, c.classOf(key), how.Priority)
	}
	after := how.After
	if how.RateLimited {
		if wait := c.failed(s, err); after <= 0 || wait < after {
			after = wait
		}
	}
	switch {
	case s.state&waiting == 0:
		if f := c.flows[s.flow]; f.band.priority != how.Priority {
			c.delist(s)
			c.enlist(s, f.class, how.Priority)
		}
		s.adds = 1
		c.setSince(s, c.now)
	default:
		s.adds = max(s.adds, s.adds+1) // and no further than it goes
		if how.Priority > c.flows[s.flow].band.priority {
			r, s = c.raise(r, s, how.Priority)
		}
	}
	if how.Reason != (Reason{}) {
		c.because(s, how.Reason)
	}
	switch {
	case s.state&(ready|dirty) != 0: // that is as early as it gets
		return false, false
	case after > 0:
		c.metrics.retries++
		if how.RateLimited && c.cfg.limiter == nil && c.cfg.class != nil {
			c.recordOf(s).retry = true
		}
		return false, c.delay(r, s, saturatingAdd(c.now, after))
	case s.state&delayed != 0:
		c.undelay(s)
		c.setSince(s, c.now)
	}
	return c.makeReady(r, s), false
}

func (c *core[T]) makeReady(r ref, s *slot[T]) bool {
	c.metrics.adds++
	if s.state&working != 0 {
		s.state |= dirty
		return false
	}
	c.push(r, s)
	c.tidy(s)
	return true
}

// pop takes the next ready key into work. Keys that are due must have been made ready by tick.
func (c *core[T]) pop() (key T, priority int, ok bool) {
	b := c.nextBand()
	if b == nil {
		return key, 0, false
	}
	r, s := c.shift(b)
	c.metrics.queueTime.observe(c.now - s.since)
	s.since, s.state = c.now, working
	s.next = ref(len(c.working))
	c.working = append(c.working, r)
	c.tidy(s)
	return s.key, b.priority, true
}

// sought returns the slot of a key, nil if there is none. It is for keys that are likely in work.
func (c *core[T]) sought(key T) (ref, *slot[T]) {
	for i, n := len(c.working)-1, 0; i >= 0 && n < scanMax; i, n = i-1, n+1 {
		if s := c.table.at(c.working[i]); s.key == key {
			return c.working[i], s
		}
	}
	return c.table.find(key)
}

// done ends the work on a key. It reports whether the key became ready again. A key that is not in
// work is left alone. How long the work took is measured when the clock is next read, which is as
// the worker comes for its next key.
func (c *core[T]) done(key T) (isReady bool) {
	r, s := c.sought(key)
	if s == nil || s.state&working == 0 {
		return false
	}
	c.ended = append(c.ended, s.since)
	last := len(c.working) - 1
	moved := c.working[last]
	c.working[s.next] = moved
	c.table.at(moved).next = s.next
	c.working = c.working[:last]
	s.state &^= working
	if s.state != 0 {
		s.since = c.recordOf(s).since
	}
	if s.state&dirty != 0 {
		s.state &^= dirty
		c.push(r, s)
		c.tidy(s)
		return true
	}
	c.release(r, s)
	return false
}

// failed counts a failure of the key and returns how long it must wait.
func (c *core[T]) failed(s *slot[T], err error) time.Duration {
	m := c.recordOf(s)
	m.failures++
	m.lastError = err
	if c.cfg.limiter != nil {
		return c.cfg.limiter.When(s.key)
	}
	own := backoff(c.cfg.delayMin, c.cfg.delayMax, m.failures)
	return max(own, c.flows[s.flow].class.retry.take(c.now))
}

// forget clears the failures of the key.
func (c *core[T]) forget(key T) {
	if c.cfg.limiter != nil {
		c.cfg.limiter.Forget(key)
	}
	r, s := c.sought(key)
	if s == nil || s.record == 0 {
		return
	}
	m := c.recordOf(s)
	m.failures, m.lastError = 0, nil
	c.release(r, s)
}

// failures returns how many failures of the key are counted.
func (c *core[T]) failures(key T) int {
	if c.cfg.limiter != nil {
		return c.cfg.limiter.NumRequeues(key)
	}
	_, s := c.sought(key)
	if s == nil || s.record == 0 {
		return 0
	}
	return c.recordOf(s).failures
}

// release forgets the key if there is nothing left to say of it.
func (c *core[T]) release(r ref, s *slot[T]) {
	c.tidy(s)
	if s.state == 0 && s.record == 0 {
		c.delist(s)
		c.table.remove(r, s)
	}
}

// recordOf returns the record of a slot, made if there is none.
func (c *core[T]) recordOf(s *slot[T]) *record {
	if s.record != 0 {
		return c.records.at(s.record)
	}
	r, m := c.records.alloc()
	s.record = r
	return m
}

// tidy gives up the record of a slot if it says nothing. A key that does not wait has no reasons to.
func (c *core[T]) tidy(s *slot[T]) {
	if s.record == 0 || s.state&delayed != 0 || s.state&working != 0 && s.state&waiting != 0 {
		return
	}
	m := c.recordOf(s)
	if s.state&waiting == 0 {
		clear(m.reasons)
		m.reasons = m.reasons[:0]
	}
	if m.failures > 0 || len(m.reasons) > 0 {
		return
	}
	*m = record{reasons: m.reasons}
	c.records.release(s.record)
	s.record = 0
}

// setSince notes when the wait of a key began.
func (c *core[T]) setSince(s *slot[T], at time.Duration) {
	if s.state&working != 0 {
		c.recordOf(s).since = at
	} else {
		s.since = at
	}
}

// waitsSince returns what setSince was told.
func (c *core[T]) waitsSince(s *slot[T]) time.Duration {
	if s.state&working != 0 {
		return c.recordOf(s).since
	}
	return s.since
}

// delay has the key be ready at a time, or earlier than it would be; it never makes it later. It
// reports whether the earliest time of all changed.
func (c *core[T]) delay(r ref, s *slot[T], due time.Duration) bool {
	m := c.recordOf(s)
	switch {
	case s.state&delayed == 0:
		s.state |= delayed
		c.delays.add(r, due)
	case due < c.delays.heap[m.place].due:
		c.delays.advance(m.place, due)
	default:
		return false
	}
	return c.delays.heap[0].key == r
}

func (c *core[T]) undelay(s *slot[T]) {
	m := c.recordOf(s)
	c.delays.remove(m.place)
	s.state &^= delayed
	m.retry = false
}

// dropDelayed forgets the keys that wait for a time, as a queue does that is shut down.
func (c *core[T]) dropDelayed() {
	for len(c.delays.heap) > 0 {
		r := c.delays.heap[0].key
		s := c.table.at(r)
		c.undelay(s)
		c.release(r, s)
	}
}

// because remembers why a key waits.
func (c *core[T]) because(s *slot[T], why Reason) {
	m := c.recordOf(s)
	if len(m.reasons) < reasonsMax && !slices.Contains(m.reasons, why) {
		m.reasons = append(m.reasons, why)
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
