package node

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// Machine decides what is to be done for one pod, and what its status is. It is
// stepped: each Step sees the pod as declared and as it is, and returns a Plan.
// It does nothing itself, reads no clock, and keeps only what can't be seen
// again: back-offs, and what went wrong before a container came to be. One
// goroutine may use it.
type Machine struct {
	backoffs  map[string]backoff   // by container
	failures  map[string]failure   // of starts that made no instance, by container
	creation  failure              // of making the pod
	unhealthy map[ContainerID]bool // stopped because a probe failed
	announced map[ContainerID]bool // whose back-off was told
	asked     time.Time            // when the pod's end was first seen to be wanted
}

// NewMachine returns a Machine for a pod of which nothing is remembered.
func NewMachine() *Machine {
	return &Machine{
		backoffs:  map[string]backoff{},
		failures:  map[string]failure{},
		unhealthy: map[ContainerID]bool{},
		announced: map[ContainerID]bool{},
	}
}

// Input is all that a step depends on. Nothing in it is changed.
type Input struct {
	Pod     *corev1.Pod
	Runtime *PodState              // nil when the runtime has no such pod
	Health  map[ContainerID]Health // of running instances
	Busy    map[string]Work        // actions being carried out, by container; "" for the pod
	HostIP  string
	Now     time.Time

	Rejected *Rejection // why the node does not take the pod, nil when it does
}

// Health is what the probes of a running instance say.
type Health struct {
	Started bool
	Ready   bool
	Failed  string // why it must be restarted, for people; empty when it needn't
}

// Work is an action that has begun and not ended.
type Work struct {
	Kind  ActionKind
	Until time.Time // for Stop: when the grace ends
}

// ActionKind says what to do.
type ActionKind string

// The actions.
const (
	CreatePod    ActionKind = "CreatePod"    // volumes, address
	Start        ActionKind = "Start"        // one instance of a container
	Stop         ActionKind = "Stop"         // one instance, with grace
	RemovePod    ActionKind = "RemovePod"    // from the machine
	DeleteObject ActionKind = "DeleteObject" // from the API, now that nothing is left
)

// Action is one thing to do. Actions of one plan are independent.
type Action struct {
	Kind      ActionKind
	Container string // of Start and Stop
	ID        ContainerID
	Grace     time.Duration // of Stop
	Message   string        // of Stop: why, for people
}

// Plan is the outcome of a step.
type Plan struct {
	Actions []Action
	Status  corev1.PodStatus
	Events  []Event
	Next    time.Time // step again by then; zero means only when something changes
}

// Event is something to tell people about a container.
type Event struct {
	Container string
	Type      string
	Reason    string
	Message   string
}

// failure is why something could not be begun, and when to try again.
type failure struct {
	reason, message string
	retry           time.Time
	delay           time.Duration
}

// A start or a creation that fails is tried again after 1 s, 2 s, … 30 s: what
// it waits for, such as a ConfigMap, wakes it by itself, and the rest is rare.
const (
	failureDelayMin = time.Second
	failureDelayMax = 30 * time.Second
)

func (f failure) again(reason, message string, now time.Time) failure {
	delay := min(max(failureDelayMin, 2*f.delay), failureDelayMax)
	return failure{reason: reason, message: message, delay: delay, retry: now.Add(delay)}
}

// StartFailed records that a start made no instance.
func (m *Machine) StartFailed(container, reason, message string, now time.Time) {
	m.failures[container] = m.failures[container].again(reason, message, now)
}

// CreateFailed records that the pod could not be made.
func (m *Machine) CreateFailed(message string, now time.Time) {
	m.creation = m.creation.again(ReasonContainerCreating, message, now)
}

// Retry ends the waiting after failures: what they waited for may be there.
func (m *Machine) Retry() {
	m.creation.retry = time.Time{}
	for name, f := range m.failures {
		f.retry = time.Time{}
		m.failures[name] = f
	}
}

// step is one step of a Machine, in the making.
type step struct {
	*Machine
	Input
	view view
	plan Plan
}

// Step decides. Equal inputs and history give equal plans, and a plan whose
// actions are in Input.Busy is not repeated.
func (m *Machine) Step(in Input) Plan {
	s := &step{Machine: m, Input: in, view: look(in, m.unhealthy)}
	switch {
	case in.Pod.DeletionTimestamp != nil:
		s.delete()
	case s.terminal():
		s.stopAll("the pod has ended")
	case in.Rejected != nil:
	case s.overdue():
		s.stopAll("the pod was active longer than activeDeadlineSeconds")
	case in.Runtime == nil:
		s.create()
	default:
		s.run()
	}
	s.plan.Status = s.status()
	return s.plan
}

func (s *step) terminal() bool {
	phase := s.Pod.Status.Phase
	return phase == corev1.PodSucceeded || phase == corev1.PodFailed
}

// overdue says whether activeDeadlineSeconds have passed, and else sees to it
// that the next step is not after that.
func (s *step) overdue() bool {
	limit, start := s.Pod.Spec.ActiveDeadlineSeconds, s.Pod.Status.StartTime
	if limit == nil || start == nil {
		return false
	}
	deadline := start.Add(time.Duration(*limit) * time.Second)
	if s.Now.Before(deadline) {
		s.again(deadline)
		return false
	}
	return true
}

func (s *step) again(at time.Time) {
	if s.plan.Next.IsZero() || at.Before(s.plan.Next) {
		s.plan.Next = at
	}
}

func (s *step) act(a Action) { s.plan.Actions = append(s.plan.Actions, a) }

// create makes what the containers share.
func (s *step) create() {
	if _, busy := s.Busy[""]; busy {
		return
	}
	if s.Now.Before(s.creation.retry) {
		s.again(s.creation.retry)
		return
	}
	s.act(Action{Kind: CreatePod})
}

// run brings the containers to where they should be: the init containers one
// after the other, then all others at once, and sidecars as long as those run.
func (s *step) run() {
	s.creation = failure{}
	for i := range s.Pod.Spec.InitContainers {
		c := &s.Pod.Spec.InitContainers[i]
		if !s.initialize(c) {
			return
		}
	}
	ended := true
	for i := range s.Pod.Spec.Containers {
		c := &s.Pod.Spec.Containers[i]
		s.ensure(c)
		ended = ended && s.view.over(c)
	}
	for i := range s.Pod.Spec.EphemeralContainers {
		s.once(ephemeral(s.Pod, i), ended)
	}
	if ended {
		s.stopSidecars("the containers it serves have ended")
	}
}

// once starts an ephemeral container, which runs one time, or stops it when the
// pod's work is done.
func (s *step) once(c *corev1.Container, ended bool) {
	if ended {
		s.stop(c, s.grace(), "the containers of its pod have ended")
	} else if _, ran := s.view.latest(c.Name); !ran {
		s.start(c, ContainerID{Pod: s.Pod.UID, Name: c.Name})
	}
}

// initialize brings one init container on, and reports whether the next may
// begin.
func (s *step) initialize(c *corev1.Container) bool {
	if sidecar(c) {
		if s.view.mainsOver() {
			return true // they have ended; it is stopped, not kept up
		}
		s.ensure(c)
		current, ok := s.view.latest(c.Name)
		return s.view.mainsBegun || ok && current.Running && s.health(c, current.ID).Started
	}
	if s.view.mainsBegun {
		return true
	}
	current, ok := s.view.latest(c.Name)
	switch {
	case ok && !current.Running && current.ExitCode == 0:
		return true
	case ok && !current.Running && !s.view.restarts(c, current):
		s.stopSidecars("an init container has failed")
	default:
		s.ensure(c)
	}
	return false
}

func (s *step) stopSidecars(why string) {
	for i := len(s.Pod.Spec.InitContainers) - 1; i >= 0; i-- {
		if c := &s.Pod.Spec.InitContainers[i]; sidecar(c) {
			s.stop(c, s.grace(), why)
		}
	}
}

// ensure starts a container that should run and does not, and stops one whose
// probes say that it must be restarted.
func (s *step) ensure(c *corev1.Container) {
	current, ok := s.view.latest(c.Name)
	switch {
	case !ok:
		s.start(c, ContainerID{Pod: s.Pod.UID, Name: c.Name})
	case current.Running:
		s.settle(current.ID)
		if why := s.Health[current.ID].Failed; why != "" {
			s.unhealthy[current.ID] = true
			s.stop(c, s.probeGrace(c, current.ID), why)
		}
	case s.view.restarts(c, current):
		s.restart(c, current)
	}
}

// health is what the probes say of an instance. Until its postStart hook has ended it is neither started
// nor ready.
func (s *step) health(c *corev1.Container, id ContainerID) Health {
	h := s.Health[id]
	if c.Lifecycle != nil && c.Lifecycle.PostStart != nil && s.Busy[c.Name].Kind == Start {
		h.Started, h.Ready = false, false
	}
	return h
}

// settle forgets what is remembered for the start of an instance, now that it
// runs.
func (s *step) settle(id ContainerID) {
	delete(s.failures, id.Name)
	for old := range s.unhealthy {
		if old.Name == id.Name && old.Attempt < id.Attempt {
			delete(s.unhealthy, old)
		}
	}
}

// restart starts the next instance, unless it must wait for its back-off.
func (s *step) restart(c *corev1.Container, last ContainerState) {
	if _, busy := s.Busy[c.Name]; busy {
		return
	}
	b := s.backoffs[c.Name]
	if until := last.FinishedAt.Add(b.delayAt(last.FinishedAt)); s.Now.Before(until) {
		s.view.waiting[c.Name] = corev1.ContainerStateWaiting{
			Reason: ReasonCrashLoopBackOff,
			Message: fmt.Sprintf("back-off %s restarting failed container=%s pod=%s_%s(%s)",
				b.delay, c.Name, s.Pod.Name, s.Pod.Namespace, s.Pod.UID),
		}
		if !s.announced[last.ID] {
			s.announced[last.ID] = true
			s.plan.Events = append(s.plan.Events, Event{
				Container: c.Name, Type: corev1.EventTypeWarning, Reason: "BackOff",
				Message: fmt.Sprintf("Back-off restarting failed container %s in pod %s_%s(%s)",
					c.Name, s.Pod.Name, s.Pod.Namespace, s.Pod.UID),
			})
		}
		s.again(until)
		return
	}
	next := last.ID
	next.Attempt++
	if s.start(c, next) {
		s.backoffs[c.Name] = b.next(last.FinishedAt, s.Now)
		delete(s.announced, last.ID)
	}
}

// start reports whether it was decided to start the instance now.
func (s *step) start(c *corev1.Container, id ContainerID) bool {
	if f, failed := s.failures[c.Name]; failed {
		s.view.waiting[c.Name] = corev1.ContainerStateWaiting{Reason: f.reason, Message: f.message}
		if s.Now.Before(f.retry) {
			s.again(f.retry)
			return false
		}
	}
	if _, busy := s.Busy[c.Name]; busy {
		return false
	}
	s.act(Action{Kind: Start, Container: c.Name, ID: id})
	return true
}

// stop stops the running instance of a container, or shortens the grace of a
// stop that has begun.
func (s *step) stop(c *corev1.Container, grace time.Duration, why string) {
	current, ok := s.view.latest(c.Name)
	if !ok || !current.Running {
		return
	}
	work := s.Busy[c.Name]
	if work.Kind == Stop && !s.Now.Add(grace).Before(work.Until) {
		return
	}
	s.act(Action{Kind: Stop, Container: c.Name, ID: current.ID, Grace: grace, Message: why})
}

// stopAll stops the containers, and once they have ended the sidecars.
func (s *step) stopAll(why string) {
	if s.asked.IsZero() {
		s.asked = s.Now
	}
	// The grace is counted from when the agent was first asked, so that clocks
	// that differ between machines cut nobody short.
	grace := max(0, s.asked.Add(s.grace()).Sub(s.Now))
	for i := range s.Pod.Spec.Containers {
		s.stop(&s.Pod.Spec.Containers[i], grace, why)
	}
	for i := range s.Pod.Spec.EphemeralContainers {
		s.stop(ephemeral(s.Pod, i), grace, why)
	}
	for i := range s.Pod.Spec.InitContainers {
		if c := &s.Pod.Spec.InitContainers[i]; !sidecar(c) {
			s.stop(c, grace, why)
		}
	}
	// When the grace is over, they need not wait for the containers to end.
	if s.view.mainsRunning() && grace > 0 {
		return
	}
	for i := len(s.Pod.Spec.InitContainers) - 1; i >= 0; i-- {
		if c := &s.Pod.Spec.InitContainers[i]; sidecar(c) {
			s.stop(c, grace, why)
		}
	}
}

// delete ends a pod whose object is to be deleted: its processes, then what it
// has on the machine, then the object.
func (s *step) delete() {
	s.stopAll("the pod is being deleted")
	if s.view.anyRunning() || len(s.Busy) > 0 {
		return
	}
	if s.Runtime != nil {
		s.act(Action{Kind: RemovePod})
		return
	}
	s.act(Action{Kind: DeleteObject})
}

// grace is the time a container has to end.
func (s *step) grace() time.Duration {
	if g := s.Pod.DeletionGracePeriodSeconds; g != nil && s.Pod.DeletionTimestamp != nil {
		return time.Duration(*g) * time.Second
	}
	if g := s.Pod.Spec.TerminationGracePeriodSeconds; g != nil {
		return time.Duration(*g) * time.Second
	}
	return corev1.DefaultTerminationGracePeriodSeconds * time.Second
}

// probeGrace is the time a container has to end when its probe failed.
func (s *step) probeGrace(c *corev1.Container, id ContainerID) time.Duration {
	probe := c.LivenessProbe
	if !s.Health[id].Started {
		probe = c.StartupProbe
	}
	if probe != nil && probe.TerminationGracePeriodSeconds != nil {
		return time.Duration(*probe.TerminationGracePeriodSeconds) * time.Second
	}
	return s.grace()
}

// sidecar says whether an init container is one that runs beside the others.
func sidecar(c *corev1.Container) bool {
	return c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways
}
