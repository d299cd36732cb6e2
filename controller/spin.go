package controller

import (
	"sync"

	corev1 "k8s.io/api/core/v1"

	"github.com/setpoint-dev/setpoint/workqueue"
)

const (
	// spinLimit is after how many passes in a row, each woken by nothing but the write of the one
	// before, a controller is said to run in circles. One that converges needs two or three.
	spinLimit = 20
	// spinsMax bounds the keys that are watched for it; the count of others begins anew.
	spinsMax = 1024
)

// spins finds keys that wake themselves: a status with the time of the pass in it, a list in random
// order. Nobody else changes anything, and each pass writes.
type spins struct {
	mu   sync.Mutex
	keys map[request]spin
}

type spin struct {
	generation int64
	passes     int
}

// passed takes in that a pass has written, or not, and whether it was woken by its own object alone. It
// returns how many passes in a row have woken themselves.
func (s *spins) passed(key request, generation int64, alone, wrote bool) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !alone || !wrote {
		delete(s.keys, key)
		return 0
	}
	if len(s.keys) >= spinsMax || s.keys == nil {
		s.keys = map[request]spin{}
	}
	now := s.keys[key]
	if now.generation != generation {
		now = spin{generation: generation}
	}
	now.passes++
	s.keys[key] = now
	return now.passes
}

// spun takes note of a pass that has ended, and tells if the key runs in circles.
func (l *loop) spun(p *pass, s state, wrote bool) {
	if s.object == nil {
		return
	}
	n := l.spins.passed(p.key, s.generation, l.alone(p), wrote)
	if n != spinLimit {
		return
	}
	l.stats.spins.Inc()
	p.log.Warn("hot loop: each pass writes, and is woken by nothing but that", "passes", n)
	l.events.Eventf(s.object, nil, corev1.EventTypeWarning, "HotLoop", "Reconcile",
		"%s wakes itself: %d passes in a row were woken by nothing but the write of the one before", l.name, n)
}

// alone says whether a pass was woken by changes of its own object and nothing else.
func (l *loop) alone(p *pass) bool {
	for _, r := range p.reasons {
		if r.Event != reasonUpdated || r.Kind != l.kind.Kind || r.Object != p.key.NamespacedName {
			return false
		}
	}
	return len(p.reasons) > 0
}

const (
	reasonUpdated = "updated"
	// reasonsMax bounds what is remembered of why a key was woken.
	reasonsMax = 8
)

// wakes are the reasons for which keys wait.
type wakes struct {
	mu   sync.Mutex
	keys map[request][]workqueue.Reason
}

func (w *wakes) add(reason workqueue.Reason, keys ...request) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, key := range keys {
		known := w.keys[key]
		if len(known) < reasonsMax {
			w.keys[key] = append(known, reason)
		}
	}
}

// take returns the reasons of a key, and forgets them.
func (w *wakes) take(key request) []workqueue.Reason {
	w.mu.Lock()
	defer w.mu.Unlock()
	reasons := w.keys[key]
	delete(w.keys, key)
	return reasons
}
