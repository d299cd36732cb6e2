package node

import (
	"context"
	"fmt"
	goruntime "runtime"
	"slices"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	schedulingcorev1 "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"k8s.io/klog/v2"

	"github.com/setpoint-dev/setpoint/internal/room"
)

// Rejection is why a node does not take a pod that it was given: by somebody who is not the scheduler, or
// who knew less than the node does. The texts are a kubelet's.
type Rejection struct{ Reason, Message string }

// The reasons that more than one place needs.
const (
	reasonAffinity    = "NodeAffinity"
	reasonOutOfPrefix = "OutOf"
)

// places are the pods that have their place on the node. All of them together fit, but for those that
// were there before the agent was.
type places struct {
	mu   sync.Mutex
	held map[types.UID]*corev1.Pod
}

// hold keeps the place of a pod that has begun, at its newest version.
func (p *places) hold(pod *corev1.Pod) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.held[pod.UID] = pod
}

// leave gives a place back.
func (p *places) leave(uid types.UID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.held, uid)
}

// take gives a pod a place, or says why there is none.
func (p *places) take(pod *corev1.Pod, node *corev1.Node) *Rejection {
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, held := p.held[pod.UID]; !held {
		if r := refuse(pod, node, p.held); r != nil {
			return r
		}
	}
	p.held[pod.UID] = pod
	return nil
}

// refuse says why a pod can't be on a node beside others, or nil.
func refuse(pod *corev1.Pod, node *corev1.Node, others map[types.UID]*corev1.Pod) *Rejection {
	if os, given := pod.Labels[corev1.LabelOSStable]; given && os != goruntime.GOOS {
		return &Rejection{"PodOSSelectorNodeLabelDoesNotMatch",
			"Failed to admit pod as the `kubernetes.io/os` label doesn't match node label"}
	}
	if os := pod.Spec.OS; os != nil && string(os.Name) != goruntime.GOOS {
		return &Rejection{"PodOSNotSupported", "Failed to admit pod as the OS field doesn't match node OS"}
	}
	if r := outOf(pod, node, others); r != nil {
		return r
	}
	if ok, err := nodeaffinity.GetRequiredNodeAffinity(pod).Match(node); err != nil || !ok {
		return unfulfilled(reasonAffinity, "node(s) didn't match Pod's node affinity/selector")
	}
	ports := room.HostPorts(pod)
	for _, other := range others {
		for _, taken := range room.HostPorts(other) {
			if slices.ContainsFunc(ports, taken.Collides) {
				return unfulfilled("NodePorts", "node(s) didn't have free ports for the requested pod ports")
			}
		}
	}
	ends := func(t *corev1.Taint) bool { return t.Effect == corev1.TaintEffectNoExecute }
	_, untolerated := schedulingcorev1.FindMatchingUntoleratedTaint(
		klog.Logger{}, node.Spec.Taints, pod.Spec.Tolerations, ends, true)
	if untolerated {
		return unfulfilled("TaintToleration", "node(s) had taints that the pod didn't tolerate")
	}
	return nil
}

func unfulfilled(reason, why string) *Rejection {
	return &Rejection{reason, fmt.Sprintf("Predicate %s failed: %s", reason, why)}
}

// outOf names the first resource of which others leave too little. One that the node has never heard of
// is not the node's to give, if its name has a domain.
func outOf(pod *corev1.Pod, node *corev1.Node, others map[types.UID]*corev1.Pod) *Rejection {
	size, asked := room.Of(node.Status.Allocatable), room.AskedBy(pod)
	free := size
	for _, other := range others {
		free.Take(room.AskedBy(other))
	}
	for _, name := range free.Lacking(asked) {
		if _, known := node.Status.Allocatable[name]; !known && strings.Contains(string(name), "/") {
			continue
		}
		return &Rejection{reasonOutOfPrefix + string(name), fmt.Sprintf(
			"Node didn't have enough resource: %s, requested: %d, used: %d, capacity: %d",
			name, asked.Get(name), size.Get(name)-free.Get(name), size.Get(name))}
	}
	return nil
}

// place gives the pod its place on the node, and returns why it has none. That is decided once, before
// anything of it is begun, and not before all pods are known that have begun.
func (w *worker) place(ctx context.Context, pod *corev1.Pod, state *PodState) *Rejection {
	decided := w.rejected != nil || begun(pod) || state != nil
	if decided || pod.DeletionTimestamp != nil || ended(pod.Status.Phase) {
		return w.rejected
	}
	select {
	case <-w.agent.listed:
	case <-ctx.Done():
		return nil
	}
	w.rejected = w.agent.places.take(pod, w.agent.node.known())
	if w.rejected != nil && w.rejected.Reason == reasonAffinity {
		// Somebody may have labelled the node just now.
		if node := w.agent.node.ask(ctx); node != nil {
			w.rejected = w.agent.places.take(pod, node)
		}
	}
	if r := w.rejected; r != nil {
		w.event(pod, "", corev1.EventTypeWarning, r.Reason, r.Message)
	}
	return w.rejected
}

// keepPlace keeps the pod's place, at its newest version, or gives it back when nothing of the pod is left.
// Whoever hears of its end can rely on that: nothing tells of it before.
func (w *worker) keepPlace(pod *corev1.Pod, state *PodState, phase corev1.PodPhase) {
	if ended(phase) && !running(state) || pod.DeletionTimestamp != nil && state == nil {
		w.agent.places.leave(w.uid)
	} else {
		w.agent.places.hold(pod)
	}
}

// begun says that an agent has taken the pod.
func begun(pod *corev1.Pod) bool { return pod.Status.StartTime != nil }

func running(state *PodState) bool {
	return state != nil && slices.ContainsFunc(state.Containers, func(c ContainerState) bool { return c.Running })
}
