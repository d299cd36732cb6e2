// Package simulated is a node.Runtime that runs nothing. Its containers start at once, run until
// they are asked to end or a test ends them, and leave no trace on the machine. Init
// containers have succeeded at once, and so have Jobs' if asked for; probes succeed. It is what makes
// pods ready in tests, and on nodes that are only there to be scheduled to.
//
// It keeps the promises of node.Runtime except that it survives nothing: what it knows is in memory.
package simulated

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"maps"
	"net"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"github.com/setpoint-dev/setpoint/node"
)

// Container names a container of a pod. Name is empty where all of a pod is meant.
type Container struct{ Namespace, Pod, Name string }

// Handlers say what happens when somebody asks something of a container. Each may be nil; they are
// called concurrently, and must return when the context or the connection ends.
type Handlers struct {
	// JobsEnd has the containers of Jobs succeed at once, instead of running until they are ended.
	JobsEnd bool
	// Exec plays a command, and returns its exit code.
	Exec func(ctx context.Context, of Container, command []string, s node.Streams) (int32, error)
	// Probe answers a probe or a hook; the error says why the answer is not a success.
	Probe func(ctx context.Context, of Container, handler *corev1.ProbeHandler) error
	// Attach plays the main process.
	Attach func(ctx context.Context, of Container, s node.Streams) error
	// Serve is what listens at a port of a pod. It must close the connection.
	Serve func(of Container, port uint16, conn net.Conn)
}

// Runtime is a node.Runtime. Make it with New; its methods may be called concurrently.
type Runtime struct {
	clock    clock.PassiveClock
	handlers Handlers
	network  *Network

	mu      sync.Mutex // guards all below
	pods    map[types.UID]*node.PodState
	changed func(types.UID)
	ended   map[node.ContainerID]chan struct{} // closed with the instance
}

var (
	_ node.Runtime = (*Runtime)(nil)
	_ node.Prober  = (*Runtime)(nil)
	_ node.Sized   = (*Runtime)(nil)
)

// Network gives pods their addresses, from 127.200.0.1 on. The runtimes that one Network makes never give
// two pods the same. The zero value is ready; its methods may be called concurrently.
type Network struct{ given atomic.Uint32 }

// networkBase is below the addresses that are given.
const networkBase = 127<<24 | 200<<16

func (n *Network) next() string {
	var ip [4]byte
	binary.BigEndian.PutUint32(ip[:], networkBase+n.given.Add(1))
	return netip.AddrFrom4(ip).String()
}

// New returns a runtime with a network of its own, in which no pod is. A nil clock is the machine's.
func New(clk clock.PassiveClock, handlers Handlers) *Runtime { return new(Network).New(clk, handlers) }

// New returns a runtime in which no pod is. A nil clock is the machine's.
func (n *Network) New(clk clock.PassiveClock, handlers Handlers) *Runtime {
	if clk == nil {
		clk = clock.RealClock{}
	}
	return &Runtime{
		clock:    clk,
		handlers: handlers,
		network:  n,
		pods:     map[types.UID]*node.PodState{},
		changed:  func(types.UID) {},
		ended:    map[node.ContainerID]chan struct{}{},
	}
}

// Capacity is that of a large machine, the same wherever a test runs.
func (r *Runtime) Capacity() corev1.ResourceList {
	return corev1.ResourceList{
		corev1.ResourceCPU:              resource.MustParse("32"),
		corev1.ResourceMemory:           resource.MustParse("128Gi"),
		corev1.ResourceEphemeralStorage: resource.MustParse("1Ti"),
		corev1.ResourcePods:             resource.MustParse("110"),
	}
}

// CreatePod gives a pod an address. Nothing listens there.
func (r *Runtime) CreatePod(_ context.Context, pod node.PodConfig) (node.PodState, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if p := r.pods[pod.UID]; p != nil {
		return copyOf(p), nil
	}
	p := &node.PodState{UID: pod.UID, Namespace: pod.Namespace, Name: pod.Name, CreatedAt: r.clock.Now()}
	if !pod.HostNetwork {
		p.IP = r.network.next()
	}
	r.pods[pod.UID] = p
	return copyOf(p), nil
}

// StartContainer notes that the instance runs, or that it has succeeded if it is to end.
func (r *Runtime) StartContainer(_ context.Context, config node.ContainerConfig) error {
	r.mu.Lock()
	p, changed := r.pods[config.ID.Pod], r.changed
	if p == nil {
		r.mu.Unlock()
		return fmt.Errorf("start container %s: there is no such pod", config.ID)
	}
	again := find(p, config.ID) != nil
	if !again {
		now := r.clock.Now()
		state := node.ContainerState{ID: config.ID, StartedAt: now}
		if config.Init || config.Job && r.handlers.JobsEnd {
			state.FinishedAt = now
		} else {
			state.Running = true
			r.ended[config.ID] = make(chan struct{})
		}
		p.Containers = append(p.Containers, state)
	}
	r.mu.Unlock()
	if !again {
		changed(config.ID.Pod)
	}
	return nil
}

// StopContainer ends the instance as the signal to terminate would.
func (r *Runtime) StopContainer(_ context.Context, id node.ContainerID, _ time.Duration) error {
	r.End(id, 128+15)
	return nil
}

// End ends a running instance with an exit code; a test says so when a container should have ended.
func (r *Runtime) End(id node.ContainerID, code int32) {
	r.mu.Lock()
	changed := r.changed
	c := find(r.pods[id.Pod], id)
	ends := c != nil && c.Running
	if ends {
		c.Running, c.FinishedAt, c.ExitCode = false, r.clock.Now(), code
		c.Signal = max(0, code-128)
		close(r.ended[id])
		delete(r.ended, id)
	}
	r.mu.Unlock()
	if ends {
		changed(id.Pod)
	}
}

// Exec succeeds and prints nothing, unless the handlers say otherwise.
func (r *Runtime) Exec(ctx context.Context, id node.ContainerID, command []string, s node.Streams) (int32, error) {
	if s.Stdin != nil {
		defer s.Stdin.Close()
	}
	if r.handlers.Exec == nil {
		return 0, nil
	}
	return r.handlers.Exec(ctx, r.containerOf(id), command, s)
}

// Probe succeeds, unless the handlers say otherwise. A command is asked of Exec, as any other.
func (r *Runtime) Probe(ctx context.Context, id node.ContainerID, handler *corev1.ProbeHandler) error {
	switch {
	case r.handlers.Probe != nil:
		return r.handlers.Probe(ctx, r.containerOf(id), handler)
	case handler.Exec != nil:
		code, err := r.Exec(ctx, id, handler.Exec.Command, node.Streams{Stdout: io.Discard, Stderr: io.Discard})
		if err == nil && code != 0 {
			err = fmt.Errorf("command %q exited with code %d", handler.Exec.Command, code)
		}
		return err
	}
	return nil
}

// Attach waits until the instance ends, unless the handlers say otherwise.
func (r *Runtime) Attach(ctx context.Context, id node.ContainerID, s node.Streams) error {
	if s.Stdin != nil {
		defer s.Stdin.Close()
	}
	if r.handlers.Attach != nil {
		return r.handlers.Attach(ctx, r.containerOf(id), s)
	}
	r.mu.Lock()
	ended, ok := r.ended[id]
	r.mu.Unlock()
	if !ok {
		return nil
	}
	select {
	case <-ended:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Dial is refused, unless the handlers say otherwise.
func (r *Runtime) Dial(_ context.Context, pod types.UID, port uint16) (net.Conn, error) {
	if r.handlers.Serve == nil {
		return nil, fmt.Errorf("nothing listens at port %d: the pod is simulated", port)
	}
	ours, theirs := net.Pipe()
	of := r.containerOf(node.ContainerID{Pod: pod})
	go r.handlers.Serve(of, port, theirs) // ends when it likes, at the latest with the connection
	return ours, nil
}

// Resize does nothing.
func (r *Runtime) Resize(context.Context, node.ContainerID, node.Resources) error { return nil }

// containerOf names a container as people do.
func (r *Runtime) containerOf(id node.ContainerID) Container {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := Container{Name: id.Name}
	if p := r.pods[id.Pod]; p != nil {
		c.Namespace, c.Pod = p.Namespace, p.Name
	}
	return c
}

// RemovePod forgets a pod.
func (r *Runtime) RemovePod(_ context.Context, uid types.UID) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.pods, uid)
	for id, ended := range r.ended {
		if id.Pod == uid {
			close(ended)
			delete(r.ended, id)
		}
	}
	return nil
}

// Pods returns the pods that are asked for, or all.
func (r *Runtime) Pods(_ context.Context, uids ...types.UID) ([]node.PodState, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(uids) == 0 {
		uids = slices.Collect(maps.Keys(r.pods))
	}
	var pods []node.PodState
	for _, uid := range uids {
		if p := r.pods[uid]; p != nil {
			pods = append(pods, copyOf(p))
		}
	}
	return pods, nil
}

// Notify names who is told of changes. It is called without a lock, by whoever made the change.
func (r *Runtime) Notify(changed func(types.UID)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.changed = changed
}

// find returns the instance, or nil if there is none, or no pod.
func find(p *node.PodState, id node.ContainerID) *node.ContainerState {
	if p == nil {
		return nil
	}
	for i := range p.Containers {
		if p.Containers[i].ID == id {
			return &p.Containers[i]
		}
	}
	return nil
}

func copyOf(p *node.PodState) node.PodState {
	c := *p
	c.Containers = slices.Clone(p.Containers)
	return c
}
