package probe

import (
	"time"

	corev1 "k8s.io/api/core/v1"
)

// Tracker counts answers until they are a result: so many successes in a row
// make it true, so many failures false. It is plain data; one goroutine uses it.
type Tracker struct {
	ok        bool
	row       int // answers of one kind in a row
	last      bool
	successes int
	failures  int
}

// NewTracker returns a Tracker for p whose result is initial until enough
// answers say otherwise.
func NewTracker(p *corev1.Probe, initial bool) Tracker {
	failures := int(p.FailureThreshold)
	if failures < 1 {
		failures = 3
	}
	return Tracker{ok: initial, successes: max(1, int(p.SuccessThreshold)), failures: failures}
}

// Observe counts an answer and returns the result, and whether this answer
// completed a row: only then does the result mean anything new.
func (t *Tracker) Observe(success bool) (ok, complete bool) {
	if success != t.last {
		t.row = 0
	}
	t.last = success
	t.row++
	needed := t.failures
	if success {
		needed = t.successes
	}
	if t.row < needed {
		return t.ok, false
	}
	t.ok = success
	return t.ok, true
}

// Delay and Period are the time from the start of a container to the first
// question, and between two.
func Delay(p *corev1.Probe) time.Duration {
	return time.Duration(p.InitialDelaySeconds) * time.Second
}

// Period is at least a second; zero means 10.
func Period(p *corev1.Probe) time.Duration {
	if p.PeriodSeconds < 1 {
		return 10 * time.Second
	}
	return time.Duration(p.PeriodSeconds) * time.Second
}
