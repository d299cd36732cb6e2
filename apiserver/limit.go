package apiserver

import (
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// How many requests may be in flight. The whole is what keeps memory bounded (a body and an answer
// each); the share of one identity keeps a runaway client from being everybody's problem: it gets
// 429 while others are served.
const (
	inFlightMax         = 1200
	inFlightPerIdentity = 400
)

// How many watches and logs may be open: some 50 KB each, connection included, while they are quiet. No real client comes
// near its share; one that opens watches and forgets them does.
const (
	watchesMax         = 100_000
	watchesPerIdentity = 25_000
)

// How many commands, forwardings and proxied requests may be open: up to a megabyte each while both
// sides are slow.
const (
	sessionsMax         = 2000
	sessionsPerIdentity = 500
)

// limiter counts requests, all and by identity.
type limiter struct {
	most, mostEach int

	mu    sync.Mutex
	total int
	by    map[string]int
}

func newLimiter(most, mostEach int) *limiter {
	return &limiter{most: most, mostEach: mostEach, by: map[string]int{}}
}

func (l *limiter) enter(identity string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.total >= l.most || l.by[identity] >= l.mostEach {
		return false
	}
	l.total++
	l.by[identity]++
	return true
}

func (l *limiter) leave(identity string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.total--
	if l.by[identity]--; l.by[identity] == 0 {
		delete(l.by, identity)
	}
}

// limit lets a request in or refuses it. Watches and logs, which cost little while they wait, are
// counted apart from what keeps the server busy, and so is what goes on to a node. Leases and health checks are not counted: that a
// server is busy must not make it, or a node, look dead.
func (s *Server) limit(r *request) (leave func(), err error) {
	counted := s.limiter
	switch {
	case r.streaming():
		counted = s.sessions
	case r.longRunning():
		counted = s.watches
	case r.group == "coordination.k8s.io" || !r.isResource():
		return func() {}, nil
	}
	identity := r.user.Name
	if !counted.enter(identity) {
		s.metrics.rejected.Inc()
		return nil, apierrors.NewTooManyRequests("too many requests, please try again later", 1)
	}
	gauge := s.metrics.inFlight.WithLabelValues(r.requestKind())
	gauge.Inc()
	return func() {
		gauge.Dec()
		counted.leave(identity)
	}, nil
}

func (r *request) requestKind() string {
	switch {
	case r.longRunning():
		return "longRunning"
	case r.verb == "get" || r.verb == "list":
		return "readOnly"
	}
	return "mutating"
}

// longRunning says whether the request lasts as long as its client wants.
func (r *request) longRunning() bool {
	switch r.subresource {
	case "log", "exec", "attach", "portforward", "proxy":
		return true
	}
	return r.verb == "watch"
}

// streaming says whether the request is one of those that hold a connection to a node.
func (r *request) streaming() bool {
	return r.longRunning() && r.verb != "watch" && r.subresource != "log"
}
