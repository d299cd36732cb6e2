package informers_test

import (
	"context"
	"errors"
	"net/http"
	"sync"
)

// line is the connection between a client and the server: it can be cut and mended.
type line struct {
	mu     sync.Mutex
	broken bool
	hangUp []context.CancelFunc // of what is under way
}

func (l *line) wrap(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(req *http.Request) (*http.Response, error) {
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.broken {
			return nil, errors.New("the line is cut")
		}
		ctx, cancel := context.WithCancel(req.Context())
		l.hangUp = append(l.hangUp, cancel)
		l.mu.Unlock()
		res, err := next.RoundTrip(req.WithContext(ctx))
		l.mu.Lock()
		return res, err
	})
}

// cut ends what is under way, and lets nothing through from now on.
func (l *line) cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.broken = true
	for _, cancel := range l.hangUp {
		cancel()
	}
	l.hangUp = nil
}

func (l *line) mend() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.broken = false
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }
