package workqueue

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// Reason is one of the things that made a key wait: an event of an object, in words for people. No
// decision is made from it.
type Reason struct {
	Event  string // "created", "updated", "deleted", "resync", "retry", …
	Kind   string
	Object types.NamespacedName
}

func (r Reason) String() string {
	if r.Kind == "" {
		return r.Event
	}
	return r.Kind + " " + r.Object.String() + " " + r.Event
}

// State is where a key is.
type State string

// The states of a key. A key that is Working and Dirty will be ready again after Done.
const (
	Ready   State = "Ready"
	Delayed State = "Delayed"
	Working State = "Working"
	Dirty   State = "Dirty"
	Idle    State = "Idle" // only its failures are remembered
)

// Key is what the queue knows of one key.
type Key[T comparable] struct {
	Key      T
	State    State
	Priority int
	// Since is when the key began to wait, or to be worked on.
	Since time.Time
	// Next is when a delayed key will be ready; zero for others.
	Next time.Time
	// Failures are those since the last success, and LastError the newest of them.
	Failures  int
	LastError error
	// Adds is how many adds the wait stands for, and Reasons the first different ones of their
	// reasons, at most eight.
	Adds    int
	Reasons []Reason
}

// Keys returns what is known of every key, the longest waiting first. It copies under the queue's
// lock: for people and pages, not for loops.
func (q *Queue[T]) Keys() []Key[T] {
	q.mu.Lock()
	defer q.mu.Unlock()
	keys := make([]Key[T], 0, len(q.core.entries)-q.core.idle.len)
	for _, e := range q.core.entries {
		if !e.isIdle {
			keys = append(keys, q.describe(e))
		}
	}
	slices.SortStableFunc(keys, func(a, b Key[T]) int { return a.Since.Compare(b.Since) })
	return keys
}

func (q *Queue[T]) describe(e *entry[T]) Key[T] {
	k := Key[T]{
		Key: e.key, State: e.state(), Priority: e.priority, Since: q.epoch.Add(e.added),
		Failures: int(e.failures), Adds: int(e.coalesced),
	}
	switch k.State {
	case Working:
		k.Since = q.epoch.Add(e.started)
	case Delayed:
		k.Next = q.epoch.Add(e.due)
	}
	if e.story != nil {
		k.LastError, k.Reasons = e.story.lastError, slices.Clone(e.story.reasons)
	}
	return k
}

func (e *entry[T]) state() State {
	switch {
	case e.band != nil:
		return Ready
	case e.dirty:
		return Dirty
	case e.inWork:
		return Working
	case e.delayIndex != notDelayed:
		return Delayed
	}
	return Idle
}

// Stats are the numbers of a queue as of one moment.
type Stats struct {
	Ready, Delayed, Working int
	// Oldest is how long the longest waiting ready key has waited.
	Oldest time.Duration
	// LongestWork is how long the longest running work has run, and Unfinished the sum over all
	// work that runs.
	LongestWork, Unfinished time.Duration
	// Adds and Retries count since the queue was made.
	Adds, Retries uint64
}

// Stats returns the numbers as of now.
func (q *Queue[T]) Stats() Stats {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.core.stats(q.tick())
}

func (c *core[T]) stats(now time.Duration) Stats {
	s := Stats{
		Ready: c.depth, Delayed: len(c.delayed),
		Adds: c.metrics.adds, Retries: c.metrics.retries,
	}
	for _, b := range c.bands {
		// A key that was raised to the band waits behind younger ones, so look at all.
		for e := b.first; e != nil; e = e.next {
			s.Oldest = max(s.Oldest, now-e.added)
		}
	}
	for e := c.working.first; e != nil; e = e.next {
		s.Working++
		s.Unfinished += now - e.started
		s.LongestWork = max(s.LongestWork, now-e.started)
	}
	return s
}

// dropDelayed forgets the keys that wait for a time, as a queue does that is shut down.
func (c *core[T]) dropDelayed() {
	for len(c.delayed) > 0 {
		e := c.delayed[0]
		c.undelay(e)
		c.release(e)
	}
}
