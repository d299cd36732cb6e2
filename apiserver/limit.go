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

// limiter counts requests in flight.
type limiter struct {
	mu    sync.Mutex
	total int
	by    map[string]int
}

func newLimiter() *limiter { return &limiter{by: map[string]int{}} }

func (l *limiter) enter(identity string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.total >= inFlightMax || l.by[identity] >= inFlightPerIdentity {
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

// limit lets a request in or refuses it. Watches and logs are not counted: they cost nothing
// while they wait. Neither are leases and health checks: that a server is busy must not make it,
// or a node, look dead.
func (s *Server) limit(r *request) (leave func(), err error) {
	if r.longRunning() || r.group == "coordination.k8s.io" || !r.isResource() {
		return func() {}, nil
	}
	identity := r.user.Name
	if !s.limiter.enter(identity) {
		s.metrics.rejected.Inc()
		return nil, apierrors.NewTooManyRequests(
			"too many requests in flight, please try again later", 1)
	}
	gauge := s.metrics.inFlight.WithLabelValues(r.requestKind())
	gauge.Inc()
	return func() {
		gauge.Dec()
		s.limiter.leave(identity)
	}, nil
}

func (r *request) requestKind() string {
	switch r.verb {
	case "get", "list":
		return "readOnly"
	}
	return "mutating"
}

// longRunning says whether the request lasts as long as its client wants.
func (r *request) longRunning() bool { return r.verb == "watch" || r.subresource == "log" }
