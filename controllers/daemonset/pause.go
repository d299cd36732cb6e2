package daemonset

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// How long a failed pod is left before it is replaced: a second, and twice as long each time that the one
// in its place fails as soon, so that a node that refuses every pod does not keep everybody busy. The
// values are Kubernetes'.
const (
	pauseFirst = time.Second
	pauseMax   = 15 * time.Minute
)

func pauseAfter(failures int) time.Duration {
	if failures > 10 { // the tenth doubling is past the maximum
		return pauseMax
	}
	return min(pauseMax, pauseFirst<<failures)
}

// place is what a run of failures is of: a set's pod on a node. Another template begins anew.
type place struct {
	set  types.UID
	node string
	hash string
}

// streaks remembers how many failed pods were replaced in each place, one after the other. What it knows is
// lost with the process; the pauses then begin anew. It is safe for concurrent use.
type streaks struct {
	mu   sync.Mutex // guards all below
	runs map[place]streak
}

type streak struct {
	failures int
	last     time.Time
}

// failures returns how many pods were replaced in a place lately.
func (s *streaks) failures(p place, now time.Time) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if run := s.runs[p]; run.fresh(now) {
		return run.failures
	}
	return 0
}

// replaced counts a failed pod that is being replaced, and forgets runs that are over.
func (s *streaks) replaced(p place, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for other, run := range s.runs {
		if !run.fresh(now) {
			delete(s.runs, other)
		}
	}
	if s.runs == nil {
		s.runs = map[place]streak{}
	}
	s.runs[p] = streak{s.runs[p].failures + 1, now}
}

// fresh says whether a failure now would belong to the run: twice the longest pause is too late.
func (r streak) fresh(now time.Time) bool { return now.Sub(r.last) < 2*pauseMax }
