package node

import (
	"context"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/setpoint-dev/setpoint/node/probe"
)

// prober runs the probes of one instance and keeps what they say.
type prober struct {
	worker    *worker
	of        subject
	startedAt time.Time
	cancel    context.CancelFunc

	mu     sync.Mutex
	health Health
}

// superviseProbers starts the probers of instances that run and ends the others.
func (w *worker) superviseProbers(ctx context.Context, pod *corev1.Pod, state *PodState) {
	running := map[ContainerID]bool{}
	if state != nil {
		for _, c := range state.Containers {
			spec := containerNamed(pod, c.ID.Name)
			if !c.Running || spec == nil {
				continue
			}
			running[c.ID] = true
			if w.probers[c.ID] == nil {
				w.probers[c.ID] = w.startProber(ctx, subject{pod, state, spec, c.ID}, c.StartedAt)
			}
		}
	}
	for id, p := range w.probers {
		if !running[id] {
			p.cancel()
			delete(w.probers, id)
		}
	}
}

func (w *worker) health() map[ContainerID]Health {
	health := make(map[ContainerID]Health, len(w.probers))
	for id, p := range w.probers {
		p.mu.Lock()
		health[id] = p.health
		p.mu.Unlock()
	}
	return health
}

func (w *worker) startProber(ctx context.Context, of subject, startedAt time.Time) *prober {
	ctx, cancel := context.WithCancel(ctx)
	c := of.container
	p := &prober{
		worker: w, of: of, startedAt: startedAt, cancel: cancel,
		health: Health{Started: c.StartupProbe == nil, Ready: c.ReadinessProbe == nil},
	}
	// An agent that was restarted takes a pod to be as ready as it was last
	// known to be, until its probe says otherwise.
	if known := statusOf(&of.pod.Status, c.Name); known != nil && known.ContainerID == containerURL(of.id) {
		p.health.Started = p.health.Started || known.Started != nil && *known.Started
		p.health.Ready = p.health.Ready || known.Ready
	}
	if c.StartupProbe != nil || c.ReadinessProbe != nil || c.LivenessProbe != nil {
		w.tasks.Go(func() { p.run(ctx) })
	}
	return p
}

func statusOf(status *corev1.PodStatus, container string) *corev1.ContainerStatus {
	for _, list := range [][]corev1.ContainerStatus{
		status.ContainerStatuses, status.InitContainerStatuses, status.EphemeralContainerStatuses,
	} {
		for i := range list {
			if list[i].Name == container {
				return &list[i]
			}
		}
	}
	return nil
}

// run waits for the start-up probe and then runs the other two side by side.
func (p *prober) run(ctx context.Context) {
	p.mu.Lock()
	known := p.health
	p.mu.Unlock()
	if !known.Started {
		up := false
		p.loop(ctx, question{"Startup", p.of.container.StartupProbe, false}, func(ok bool) (done bool) {
			up = ok
			if ok {
				p.update(func(h *Health) { h.Started = true })
			} else {
				p.fail("startup")
			}
			return true
		})
		if !up {
			return
		}
	}
	var both sync.WaitGroup
	if probe := p.of.container.ReadinessProbe; probe != nil {
		both.Go(func() {
			p.loop(ctx, question{"Readiness", probe, known.Ready}, func(ok bool) bool {
				p.update(func(h *Health) { h.Ready = ok })
				return false
			})
		})
	}
	if probe := p.of.container.LivenessProbe; probe != nil {
		both.Go(func() {
			p.loop(ctx, question{"Liveness", probe, true}, func(ok bool) bool {
				if !ok {
					p.fail("liveness")
				}
				return !ok
			})
		})
	}
	both.Wait()
}

func (p *prober) fail(kind string) {
	p.update(func(h *Health) {
		h.Failed = fmt.Sprintf("Container %s failed %s probe, will be restarted", p.of.container.Name, kind)
	})
}

// update changes the health, and wakes the worker if that made a difference.
func (p *prober) update(change func(*Health)) {
	p.mu.Lock()
	before := p.health
	change(&p.health)
	changed := p.health != before
	p.mu.Unlock()
	if changed {
		p.worker.wakeUp()
	}
}

// question is a probe to be asked, and what is taken to be the answer before it is.
type question struct {
	kind    string
	spec    *corev1.Probe
	initial bool
}

// eagerMin is how soon a container that has not been ready yet is asked again: a
// server that takes 200 ms to start is not kept waiting for a whole period. The
// pause doubles until it is the period, and until then failures are not told.
const eagerMin = 100 * time.Millisecond

// loop asks again and again, and reports each result that enough answers in a
// row have made, until ctx ends or report says that it is done. Readiness that is
// not there yet is asked for eagerly.
func (p *prober) loop(ctx context.Context, q question, report func(ok bool) (done bool)) {
	clock, spec := p.worker.agent.Clock, q.spec
	tracker := probe.NewTracker(spec, q.initial)
	period, pause := probe.Period(spec), eagerMin
	if q.kind != "Readiness" || q.initial {
		pause = period
	}
	wait := p.startedAt.Add(probe.Delay(spec)).Sub(clock.Now())
	for {
		if p.worker.agent.sleep(ctx, max(0, wait)) != nil {
			return
		}
		askCtx, cancel := context.WithTimeout(ctx, probe.Timeout(spec))
		err := p.worker.ask(askCtx, &spec.ProbeHandler, p.of)
		cancel()
		if ctx.Err() != nil {
			return
		}
		if err == nil {
			pause = period
		}
		if err != nil && pause >= period {
			p.worker.event(p.of.pod, p.of.container.Name, corev1.EventTypeWarning, "Unhealthy",
				fmt.Sprintf("%s probe failed: %v", q.kind, err))
		}
		if ok, complete := tracker.Observe(err == nil); complete && report(ok) {
			return
		}
		wait = min(pause, period)
		pause = min(2*pause, period)
	}
}
