package workqueue

import (
	"encoding/json"
	"fmt"
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
	// Next is when a delayed key will be ready, if it is not added before; zero for others.
	Next time.Time
	// Failures are those since the last success, and LastError the newest of them.
	Failures  int
	LastError error
	// Adds is how many adds the wait stands for, counted up to 65,535, and Reasons the first different
	// ones of their reasons, at most eight.
	Adds    int
	Reasons []Reason
}

// MarshalJSON is the key as people read it: with words for the key, its reasons and its error.
func (k Key[T]) MarshalJSON() ([]byte, error) {
	view := struct {
		Key       string    `json:"key"`
		State     State     `json:"state"`
		Priority  int       `json:"priority"`
		Since     time.Time `json:"since"`
		Next      time.Time `json:"next,omitzero"`
		Failures  int       `json:"failures,omitempty"`
		LastError string    `json:"lastError,omitempty"`
		Adds      int       `json:"adds,omitempty"`
		Reasons   []string  `json:"reasons,omitempty"`
	}{
		Key: fmt.Sprint(k.Key), State: k.State, Priority: k.Priority, Since: k.Since, Next: k.Next,
		Failures: k.Failures, Adds: k.Adds,
	}
	if k.LastError != nil {
		view.LastError = k.LastError.Error()
	}
	for _, r := range k.Reasons {
		view.Reasons = append(view.Reasons, r.String())
	}
	return json.Marshal(view)
}

// Keys returns what is known of every key, the longest waiting first. It copies under the queue's
// lock: for people and pages, not for loops.
func (q *Queue[T]) Keys() []Key[T] {
	q.mu.Lock()
	c := q.core
	keys := make([]Key[T], 0, c.table.len)
	for r := ref(1); r <= c.table.used; r++ {
		s := c.table.at(r)
		if s.state != ghost && (s.state != 0 || s.record != 0) {
			keys = append(keys, q.describe(s))
		}
	}
	q.mu.Unlock()
	slices.SortStableFunc(keys, func(a, b Key[T]) int { return a.Since.Compare(b.Since) })
	return keys
}

func (q *Queue[T]) describe(s *slot[T]) Key[T] {
	c := q.core
	k := Key[T]{
		Key: s.key, State: s.state.public(), Priority: c.flows[s.flow].band.priority,
		Since: q.epoch.Add(s.since), Adds: int(s.adds),
	}
	if k.State == Dirty {
		k.Since = q.epoch.Add(c.waitsSince(s))
	}
	if s.record != 0 {
		m := c.recordOf(s)
		k.Failures, k.LastError = m.failures, m.lastError
		k.Reasons = append(k.Reasons, m.reasons...)
		if s.state&delayed != 0 {
			k.Next = q.epoch.Add(c.delays.heap[m.place].due)
		}
	}
	return k
}

func (s state) public() State {
	switch {
	case s&ready != 0:
		return Ready
	case s&dirty != 0:
		return Dirty
	case s&working != 0:
		return Working
	case s&delayed != 0:
		return Delayed
	}
	return Idle
}

// Stats are the numbers of a queue as of one moment.
type Stats struct {
	Ready   int `json:"ready"`
	Delayed int `json:"delayed"`
	Working int `json:"working"`
	// Depths are the ready keys by priority, the highest first. Priorities that were in use lately
	// are there with none.
	Depths []Depth `json:"depths"`
	// Oldest is how long the longest waiting has waited of the keys that are next of their class and
	// priority.
	Oldest time.Duration `json:"oldestNanoseconds"`
	// LongestWork is how long the longest running work has run, and Unfinished the sum over all
	// work that runs.
	LongestWork time.Duration `json:"longestWorkNanoseconds"`
	Unfinished  time.Duration `json:"unfinishedNanoseconds"`
	// Adds and Retries count since the queue was made: how often a key that was not waiting for it
	// became due to be worked on, and how often one was told to come back later.
	Adds    uint64 `json:"adds"`
	Retries uint64 `json:"retries"`
}

// Depth is how many keys of one priority are ready.
type Depth struct {
	Priority int `json:"priority"`
	Ready    int `json:"ready"`
}

// Stats returns the numbers as of now.
func (q *Queue[T]) Stats() Stats {
	now := q.now()
	q.mu.Lock()
	defer q.mu.Unlock()
	q.tick(now)
	return q.core.stats()
}

func (c *core[T]) stats() Stats {
	s := Stats{
		Ready: c.depth, Delayed: len(c.delays.heap), Working: len(c.working),
		Adds: c.metrics.adds, Retries: c.metrics.retries,
	}
	for _, b := range c.bands {
		s.Depths = append(s.Depths, Depth{b.priority, b.depth})
		for f := b.first; f != nil; f = f.next {
			if _, first := c.head(f); first != nil {
				s.Oldest = max(s.Oldest, c.now-first.since)
			}
		}
	}
	for _, r := range c.working {
		took := c.now - c.table.at(r).since
		s.Unfinished += took
		s.LongestWork = max(s.LongestWork, took)
	}
	return s
}
