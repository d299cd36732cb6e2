package setpointtest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"time"

	"k8s.io/client-go/rest"

	"github.com/setpoint-dev/setpoint/controller"
)

// process runs a manager as an operating system does: when it dies it is started again.
type process struct {
	trial  Trial
	config *rest.Config

	mu     sync.Mutex // guards what is below
	random *rand.Rand
	deaths int      // how often it may still die
	made   []string // writes since they were last asked for
}

// errDead is what requests fail with that a process did not live to make.
var errDead = errors.New("setpointtest: the process is dead")

// mayDie says how often the process may be killed from now on.
func (p *process) mayDie(times int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.deaths = times
}

// writes returns what has been written since it was last called: leases and events apart, which are
// written for other reasons.
func (p *process) writes() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	made := p.made
	p.made = nil
	return made
}

// run keeps a manager running until the context ends.
func (p *process) run(ctx context.Context) error {
	for start := 1; ctx.Err() == nil; start++ {
		l := p.live(ctx)
		config := rest.CopyConfig(p.config)
		config.Wrap(l.transport)
		mgr, err := controller.NewManager(config, p.trial.managerOptions(fmt.Sprint("process-", start)))
		if err == nil {
			err = p.trial.Setup(mgr)
		}
		if err != nil {
			return err
		}
		_ = mgr.Start(l.ctx) // that it ends in disorder is what is tried
		l.kill()
		select {
		case <-ctx.Done():
		case <-time.After(time.Second):
		}
	}
	return nil
}

// life is one run of a process, from its start to its death.
type life struct {
	process *process
	ctx     context.Context
	kill    context.CancelFunc

	left int // writes until it dies; guarded by the mutex of the process
}

func (p *process) live(ctx context.Context) *life {
	p.mu.Lock()
	defer p.mu.Unlock()
	l := &life{process: p, left: 1 + p.random.IntN(20)}
	l.ctx, l.kill = context.WithCancel(ctx)
	return l
}

func (l *life) transport(next http.RoundTripper) http.RoundTripper {
	return &mortal{life: l, next: next}
}

// mortal is the transport of a process that may die right after a write.
type mortal struct {
	life *life
	next http.RoundTripper
}

// WrappedRoundTripper is how client-go finds what is below.
func (m *mortal) WrappedRoundTripper() http.RoundTripper { return m.next }

func (m *mortal) RoundTrip(req *http.Request) (*http.Response, error) {
	if m.life.ctx.Err() != nil {
		closeBody(req)
		return nil, errDead
	}
	resp, err := m.next.RoundTrip(req)
	target, ok := parse(req)
	reads := []string{"get", "list", "watch"}
	if !ok || slices.Contains(reads, target.verb) || target.resource == "events" || target.resource == "leases" {
		return resp, err
	}
	if m.life.wrote(fmt.Sprintf("%s %s %s/%s", target.verb, target.resource, target.namespace, target.name)) {
		m.life.kill()
		if err == nil {
			resp.Body.Close()
		}
		return nil, errDead
	}
	return resp, err
}

// wrote notes a write, and says whether it was the last that the process lived to make.
func (l *life) wrote(what string) (dies bool) {
	p := l.process
	p.mu.Lock()
	defer p.mu.Unlock()
	p.made = append(p.made, what)
	l.left--
	if l.left > 0 || p.deaths == 0 {
		return false
	}
	p.deaths--
	return true
}
