package cache

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/setpoint-dev/setpoint/internal/timers"
)

// A patience ends a request whose answer does not come, or does not go on, in time.
type patience struct {
	heard chan struct{}
	ended chan struct{}
}

// bound ends what cancel ends when nothing is heard for so long, until it is stopped.
func (s *stream) bound(cancel context.CancelCauseFunc, limit time.Duration) *patience {
	p := &patience{heard: make(chan struct{}, 1), ended: make(chan struct{})}
	timer := s.clock().NewTimer(limit)
	go func() {
		defer timer.Stop()
		for {
			select {
			case <-p.heard:
				timers.Reset(timer, limit)
			case <-timer.C():
				cancel(fmt.Errorf("no answer within %v", limit))
				return
			case <-p.ended:
				return
			}
		}
	}()
	return p
}

func (p *patience) stop() { close(p.ended) }

// heard is a body whose every part renews a patience.
type heard struct {
	io.ReadCloser
	patience *patience
}

func (h heard) Read(b []byte) (int, error) {
	n, err := h.ReadCloser.Read(b)
	select {
	case h.patience.heard <- struct{}{}:
	default:
	}
	return n, err
}
