package node

import (
	"bytes"
	"context"
	"errors"
	"os"
	"strings"
	"sync"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/setpoint-dev/setpoint/node/probe"
)

// stopGraceMin is what is left for a container to end after a preStop hook that
// took all of the grace.
const stopGraceMin = 2 * time.Second

// subject is one instance of a container, and the pod as it was seen.
type subject struct {
	pod       *corev1.Pod
	state     *PodState
	container *corev1.Container
	id        ContainerID
}

// createPod makes the volumes and what the containers share. What it returns is
// run by the worker's goroutine.
func (w *worker) createPod(ctx context.Context, pod *corev1.Pod) func() {
	err := w.agent.volumes.prepare(ctx, w.sources(pod, nil))
	if err == nil {
		_, err = w.agent.Runtime.CreatePod(ctx, PodConfig{
			UID: pod.UID, Namespace: pod.Namespace, Name: pod.Name, HostNetwork: pod.Spec.HostNetwork,
		})
		if err == nil {
			return nil
		}
		w.event(pod, "", corev1.EventTypeWarning, "FailedCreatePodSandBox", err.Error())
	} else {
		w.event(pod, "", corev1.EventTypeWarning, "FailedMount", err.Error())
	}
	return func() { w.machine.CreateFailed(err.Error(), w.agent.Clock.Now()) }
}

// start starts an instance and runs its postStart hook.
func (w *worker) start(ctx context.Context, pod *corev1.Pod, state *PodState, a Action) func() {
	c := containerNamed(pod, a.Container)
	of := subject{pod, state, c, a.ID}
	config, err := w.config(ctx, of)
	if err == nil {
		err = w.agent.Runtime.StartContainer(ctx, config)
	}
	if err != nil {
		reason := ReasonRunContainerError
		var start *StartError
		if errors.As(err, &start) {
			reason = start.Reason
		}
		w.event(pod, c.Name, corev1.EventTypeWarning, "Failed", "Error: "+err.Error())
		return func() { w.machine.StartFailed(c.Name, reason, err.Error(), w.agent.Clock.Now()) }
	}
	w.event(pod, c.Name, corev1.EventTypeNormal, "Created", "Container created")
	if instance, ok := w.instance(ctx, a.ID); ok && instance.Reason == ReasonStartError {
		w.event(pod, c.Name, corev1.EventTypeWarning, "Failed", "Error: "+instance.Message)
		return nil
	}
	w.event(pod, c.Name, corev1.EventTypeNormal, "Started", "Container started")
	if c.Lifecycle == nil || c.Lifecycle.PostStart == nil {
		return nil
	}
	if err := w.hook(ctx, c.Lifecycle.PostStart, of); err != nil && ctx.Err() == nil {
		w.event(pod, c.Name, corev1.EventTypeWarning, "FailedPostStartHook", "PostStartHook failed: "+err.Error())
		a.Grace, a.Message = w.grace(pod), "FailedPostStartHook"
		w.stop(ctx, pod, state, a, false)
	}
	return nil
}

func (w *worker) grace(pod *corev1.Pod) time.Duration {
	return (&step{Input: Input{Pod: pod}}).grace()
}

// instance asks the runtime about one instance.
func (w *worker) instance(ctx context.Context, id ContainerID) (ContainerState, bool) {
	states, err := w.agent.Runtime.Pods(ctx, id.Pod)
	if err != nil || len(states) == 0 {
		return ContainerState{}, false
	}
	for _, c := range states[0].Containers {
		if c.ID == id {
			return c, true
		}
	}
	return ContainerState{}, false
}

// config resolves everything a container refers to. Its errors are
// CreateContainerConfigErrors: they wait for somebody to mend something.
func (w *worker) config(ctx context.Context, of subject) (ContainerConfig, error) {
	c := of.container
	env, err := w.sources(of.pod, of.state).environment(ctx, c)
	if err != nil {
		return ContainerConfig{}, &StartError{Reason: ReasonCreateConfigError, Message: err.Error()}
	}
	mounts, err := w.agent.volumes.mounts(of.pod, c, env.values)
	if err != nil {
		return ContainerConfig{}, &StartError{Reason: ReasonCreateConfigError, Message: err.Error()}
	}
	config := ContainerConfig{
		ID: of.id, Image: c.Image, Env: env.list(), Mounts: mounts, WorkingDir: c.WorkingDir,
		Resources: resourcesOf(c), Stdin: c.Stdin, StdinOnce: c.StdinOnce, TTY: c.TTY,
		Init: isInit(of.pod, c) && !sidecar(c), Job: ofJob(of.pod) && !isInit(of.pod, c),
	}
	// Arguments alone go to the image's program, which only some runtimes have.
	if len(c.Command) > 0 {
		config.Command = append(expandAll(c.Command, env.values), expandAll(c.Args, env.values)...)
	}
	return config, setUser(&config, of.pod.Spec.SecurityContext, c.SecurityContext)
}

// setUser says who the container runs as: its own context before the pod's.
func setUser(config *ContainerConfig, p *corev1.PodSecurityContext, c *corev1.SecurityContext) error {
	nonRoot := false
	if p != nil {
		config.User, config.Group, config.Groups = p.RunAsUser, p.RunAsGroup, p.SupplementalGroups
		nonRoot = isTrue(p.RunAsNonRoot)
		if p.FSGroup != nil {
			config.Groups = append(config.Groups[:len(config.Groups):len(config.Groups)], *p.FSGroup)
		}
	}
	if c != nil {
		if c.RunAsUser != nil {
			config.User = c.RunAsUser
		}
		if c.RunAsGroup != nil {
			config.Group = c.RunAsGroup
		}
		if c.RunAsNonRoot != nil {
			nonRoot = *c.RunAsNonRoot
		}
	}
	root := config.User != nil && *config.User == 0 || config.User == nil && os.Getuid() == 0
	if nonRoot && root {
		return &StartError{
			Reason:  ReasonCreateConfigError,
			Message: "container has runAsNonRoot and would run as root: set runAsUser",
		}
	}
	return nil
}

// stop runs the preStop hook of an instance, unless that was done, and ends it.
func (w *worker) stop(ctx context.Context, pod *corev1.Pod, state *PodState, a Action, again bool) {
	c := containerNamed(pod, a.Container)
	deadline := w.agent.Clock.Now().Add(a.Grace)
	if !again {
		w.event(pod, c.Name, corev1.EventTypeNormal, "Killing", killing(c.Name, a.Message))
		if c.Lifecycle != nil && c.Lifecycle.PreStop != nil && a.Grace > 0 {
			hookCtx, cancel := context.WithTimeout(ctx, a.Grace)
			err := w.hook(hookCtx, c.Lifecycle.PreStop, subject{pod, state, c, a.ID})
			cancel()
			if err != nil && ctx.Err() == nil {
				w.event(pod, c.Name, corev1.EventTypeWarning, "FailedPreStopHook", "PreStopHook failed: "+err.Error())
			}
			a.Grace = max(stopGraceMin, deadline.Sub(w.agent.Clock.Now()))
		}
	}
	w.untilDone(ctx, "stopping container "+c.Name, func() error {
		err := w.agent.Runtime.StopContainer(ctx, a.ID, a.Grace)
		a.Grace = 0
		return err
	})
}

// killing is the message of an event, as a kubelet words it.
func killing(container, why string) string {
	if strings.HasPrefix(why, "Container ") {
		return why
	}
	return "Stopping container " + container
}

// hook runs a lifecycle handler.
func (w *worker) hook(ctx context.Context, h *corev1.LifecycleHandler, of subject) error {
	if h.Sleep != nil {
		return w.agent.sleep(ctx, time.Duration(h.Sleep.Seconds)*time.Second)
	}
	handler := &corev1.ProbeHandler{Exec: h.Exec, HTTPGet: h.HTTPGet, TCPSocket: h.TCPSocket}
	return w.ask(ctx, handler, of)
}

// ask asks an instance once how it is; the error says why that is not well.
func (w *worker) ask(ctx context.Context, handler *corev1.ProbeHandler, of subject) error {
	if p, ok := w.agent.Runtime.(Prober); ok {
		return p.Probe(ctx, of.id, handler)
	}
	return probe.Check(ctx, handler, w.target(of))
}

func ofJob(pod *corev1.Pod) bool {
	owner := metav1.GetControllerOf(pod)
	return owner != nil && owner.Kind == "Job" && strings.HasPrefix(owner.APIVersion, batchv1.GroupName+"/")
}

// target is what the probes and hooks of an instance ask.
func (w *worker) target(of subject) probe.Target {
	ip := w.agent.Address
	if of.state != nil && of.state.IP != "" {
		ip = of.state.IP
	}
	return probe.Target{
		IP: ip, Ports: of.container.Ports,
		Exec: func(ctx context.Context, command []string) (int, []byte, error) {
			out := &bounded{left: execOutputMax}
			code, err := w.agent.Runtime.Exec(ctx, of.id, command, Streams{Stdout: out, Stderr: out})
			return int(code), out.Bytes(), err
		},
	}
}

// execOutputMax bounds what is kept of the output of a probe or hook: it is read
// by people, in the message of an event.
const execOutputMax = 10 << 10

// bounded keeps the first bytes and drops the rest. Two streams may share it.
type bounded struct {
	mu   sync.Mutex
	text bytes.Buffer
	left int
}

func (b *bounded) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := min(len(p), b.left)
	b.left -= n
	b.text.Write(p[:n])
	return len(p), nil
}

func (b *bounded) Bytes() []byte {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Bytes()
}

func resourcesOf(c *corev1.Container) Resources {
	return Resources{
		MemoryMax:   c.Resources.Limits.Memory().Value(),
		CPUMilli:    c.Resources.Requests.Cpu().MilliValue(),
		CPUMilliMax: c.Resources.Limits.Cpu().MilliValue(),
	}
}

func ignoreGone(err error) error {
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil // gone, or another pod by the same name
	}
	return err
}
