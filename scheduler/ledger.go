package scheduler

import (
	"maps"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/setpoint-dev/setpoint/internal/room"
)

// ledger is what the scheduler knows of nodes and of the pods on them. It is fed by events and by
// the scheduler's own decisions: a pod that was just bound counts as placed before the cache has
// heard of it, so that two quick pods never share what only one of them can have.
//
// Nodes are known by name alone: one that is deleted and made again is whatever its newest object
// says, with the pods that name it.
type ledger struct {
	mu       sync.Mutex // guards all below
	nodes    map[string]*nodeInfo
	pods     map[types.UID]*podInfo
	nominees map[types.UID]*podInfo // pods for which room is being made; see preempt.go
}

// nodeInfo is a node with what is taken of it. node is nil while only pods speak of it.
type nodeInfo struct {
	node     *corev1.Node
	free     room.Amounts // allocatable less what is asked for; may be negative
	size     room.Amounts // allocatable
	pods     map[types.UID]*podInfo
	nominees map[types.UID]*podInfo // counted in free only for pods that do not come before them
}

// podInfo is a pod that has a node, or is assumed to have one; or a nominee, and the node it hopes for.
type podInfo struct {
	pod      *corev1.Pod
	node     string
	asks     room.Amounts
	ports    []room.HostPort
	assumed  bool
	antiself bool // has required anti-affinity, which binds those who come later
}

func newPodInfo(pod *corev1.Pod, node string, assumed bool) *podInfo {
	return &podInfo{
		pod: pod, node: node, assumed: assumed,
		asks: room.AskedBy(pod), ports: room.HostPorts(pod), antiself: len(requiredAntiAffinity(pod)) > 0,
	}
}

// put counts a pod as one of the node's.
func (n *nodeInfo) put(p *podInfo) {
	n.pods[p.pod.UID] = p
	n.free.Take(p.asks)
}

// drop counts a pod no longer.
func (n *nodeInfo) drop(p *podInfo) {
	delete(n.pods, p.pod.UID)
	n.free.Give(p.asks)
}

// clone returns the node for a question of what would be; its pods can be put and dropped freely.
func (n *nodeInfo) clone() *nodeInfo {
	return &nodeInfo{node: n.node, free: n.free, size: n.size, pods: maps.Clone(n.pods)}
}

func newLedger() *ledger {
	return &ledger{
		nodes: map[string]*nodeInfo{}, pods: map[types.UID]*podInfo{}, nominees: map[types.UID]*podInfo{},
	}
}

// setNode notes a node as it is now.
func (l *ledger) setNode(node *corev1.Node) {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := l.node(node.Name)
	n.node = node
	n.size = room.Of(node.Status.Allocatable)
	n.free = n.size
	for _, p := range n.pods {
		n.free.Take(p.asks)
	}
}

// dropNode forgets a node; its pods are remembered, for the day it comes back.
func (l *ledger) dropNode(name string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if n := l.nodes[name]; n != nil {
		n.node = nil
		l.prune(name)
	}
}

// setPod notes a pod as it is now. A pod without a node keeps an assumption made about it: the
// event may be older than the binding.
func (l *ledger) setPod(pod *corev1.Pod) {
	l.mu.Lock()
	defer l.mu.Unlock()
	known := l.pods[pod.UID]
	if pod.Spec.NodeName == "" {
		if known == nil {
			l.heardOfNominee(pod)
		}
		return
	}
	if known != nil {
		l.remove(known)
	}
	if terminal(pod) {
		l.denominate(pod.UID)
		return
	}
	l.add(newPodInfo(pod, pod.Spec.NodeName, false))
}

// dropPod forgets a pod, and an assumption made about it.
func (l *ledger) dropPod(uid types.UID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.denominate(uid)
	if known := l.pods[uid]; known != nil {
		l.remove(known)
	}
}

// forget takes back an assumption that turned out not to hold.
func (l *ledger) forget(uid types.UID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if known := l.pods[uid]; known != nil && known.assumed {
		l.remove(known)
	}
}

// place decides where a pod goes, and counts it there at once, before anybody else decides: the pod
// is assumed to be bound until an event says so, or forget that it is not.
func (l *ledger) place(pod *corev1.Pod, labels labelsOf) decision {
	l.mu.Lock()
	defer l.mu.Unlock()
	if known := l.pods[pod.UID]; known != nil {
		// Bound already, as far as is known: the same answer again, and nothing is counted twice.
		return decision{node: known.node}
	}
	d := place(pod, l.nodes, labels)
	if d.node != "" {
		l.add(newPodInfo(pod, d.node, true))
	}
	return d
}

func (l *ledger) add(p *podInfo) {
	l.denominate(p.pod.UID)
	l.pods[p.pod.UID] = p
	l.node(p.node).put(p)
}

func (l *ledger) remove(p *podInfo) {
	delete(l.pods, p.pod.UID)
	l.nodes[p.node].drop(p)
	l.prune(p.node)
}

func (l *ledger) node(name string) *nodeInfo {
	n := l.nodes[name]
	if n == nil {
		n = &nodeInfo{pods: map[types.UID]*podInfo{}, nominees: map[types.UID]*podInfo{}}
		l.nodes[name] = n
	}
	return n
}

// prune lets go of a node that neither exists nor is named by a pod.
func (l *ledger) prune(name string) {
	if n := l.nodes[name]; n.node == nil && len(n.pods) == 0 && len(n.nominees) == 0 {
		delete(l.nodes, name)
	}
}

// terminal says whether a pod has ended for good and takes nothing of its node any more.
func terminal(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}
