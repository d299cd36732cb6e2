package scheduler

import (
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// ledger is what the scheduler knows of nodes and of the pods on them. It is fed by events and by
// the scheduler's own decisions: a pod that was just bound counts as placed before the cache has
// heard of it, so that two quick pods never share what only one of them can have.
//
// Nodes are known by name alone: one that is deleted and made again is whatever its newest object
// says, with the pods that name it.
type ledger struct {
	mu    sync.Mutex // guards all below
	nodes map[string]*nodeInfo
	pods  map[types.UID]*podInfo
}

// nodeInfo is a node with what is taken of it. node is nil while only pods speak of it.
type nodeInfo struct {
	node *corev1.Node
	free resources // allocatable less what is asked for; may be negative
	size resources // allocatable
	pods map[types.UID]*podInfo
}

// podInfo is a pod that has a node, or is assumed to have one.
type podInfo struct {
	pod      *corev1.Pod
	node     string
	asks     resources
	ports    []hostPort
	assumed  bool
	antiself bool // has required anti-affinity, which binds those who come later
}

func newLedger() *ledger {
	return &ledger{nodes: map[string]*nodeInfo{}, pods: map[types.UID]*podInfo{}}
}

// setNode notes a node as it is now.
func (l *ledger) setNode(node *corev1.Node) {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := l.node(node.Name)
	n.node = node
	n.size = resourcesOf(node.Status.Allocatable)
	n.free = n.size
	for _, p := range n.pods {
		n.free.take(p.asks)
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
		return
	}
	if known != nil {
		l.remove(known)
	}
	if !terminal(pod) {
		l.add(&podInfo{pod: pod, node: pod.Spec.NodeName})
	}
}

// dropPod forgets a pod, and an assumption made about it.
func (l *ledger) dropPod(uid types.UID) {
	l.mu.Lock()
	defer l.mu.Unlock()
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
		l.add(&podInfo{pod: pod, node: d.node, assumed: true})
	}
	return d
}

func (l *ledger) add(p *podInfo) {
	p.asks = asksOf(p.pod)
	p.ports = hostPorts(p.pod)
	p.antiself = len(requiredAntiAffinity(p.pod)) > 0
	l.pods[p.pod.UID] = p
	n := l.node(p.node)
	n.pods[p.pod.UID] = p
	n.free.take(p.asks)
}

func (l *ledger) remove(p *podInfo) {
	delete(l.pods, p.pod.UID)
	n := l.nodes[p.node]
	delete(n.pods, p.pod.UID)
	n.free.give(p.asks)
	l.prune(p.node)
}

func (l *ledger) node(name string) *nodeInfo {
	n := l.nodes[name]
	if n == nil {
		n = &nodeInfo{pods: map[types.UID]*podInfo{}}
		l.nodes[name] = n
	}
	return n
}

// prune lets go of a node that neither exists nor is named by a pod.
func (l *ledger) prune(name string) {
	if n := l.nodes[name]; n.node == nil && len(n.pods) == 0 {
		delete(l.nodes, name)
	}
}

// terminal says whether a pod has ended for good and takes nothing of its node any more.
func terminal(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}
