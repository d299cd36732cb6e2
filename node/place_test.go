package node_test

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
)

func asks(name corev1.ResourceName, amount string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Spec.Containers[0].Resources.Requests = corev1.ResourceList{name: resource.MustParse(amount)}
	}
}

func onPort(ip string, port int32) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Spec.Containers[0].Ports = []corev1.ContainerPort{{HostIP: ip, HostPort: port, ContainerPort: port, Protocol: "TCP"}}
	}
}

func selects(key, value string) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Spec.NodeSelector = map[string]string{key: value} }
}

// nodeNow awaits the Node.
func (m *machine) nodeNow(is func(*corev1.Node) bool) *corev1.Node {
	m.t.Helper()
	w, err := m.Watch(m.t.Context(), &corev1.NodeList{})
	if err != nil {
		m.t.Fatal(err)
	}
	defer w.Stop()
	for {
		var node corev1.Node
		if m.Get(m.t.Context(), types.NamespacedName{Name: "n1"}, &node) == nil && is(&node) {
			return &node
		}
		<-w.ResultChan()
	}
}

// rejects awaits that the agent does not take the pod.
func (m *machine) rejects(pod *corev1.Pod, reason, message string) {
	m.t.Helper()
	got := m.await(pod, "rejected", phase(corev1.PodFailed)).Status
	if want := "Pod was rejected: " + message; got.Reason != reason || got.Message != want {
		m.t.Errorf("%s: got %s: %s\nwant %s: %s", pod.Name, got.Reason, got.Message, reason, want)
	}
	if len(got.ContainerStatuses) > 0 || got.StartTime == nil {
		m.t.Errorf("%s: status is %+v, want a start and no containers", pod.Name, got)
	}
	if !m.has(reason + ": " + message) {
		m.t.Errorf("%s: no event tells of %s: %s", pod.Name, reason, message)
	}
	if err := m.Delete(m.t.Context(), pod); err != nil {
		m.t.Fatal(err)
	}
	m.await(pod, "gone", gone)
}

// A node takes no pod that does not fit beside those it has, whoever bound it: else two schedulers, or one
// that heard late, could give away twice what it has once.
func TestPodsThatDoNotFitAreRejected(t *testing.T) {
	const portsTaken = "Predicate NodePorts failed: node(s) didn't have free ports for the requested pod ports"
	m := newMachine(t)
	m.boot()
	node := m.nodeNow(func(n *corev1.Node) bool { return n.Status.Allocatable.Cpu().Sign() > 0 })
	capacity := node.Status.Allocatable.Cpu().MilliValue()

	first := m.run("first", func(p *corev1.Pod) {
		onPort("", 8080)(p)
		asks("cpu", "500m")(p)
		p.Finalizers = []string{"test/hold"} // keeps the fake server from deleting it at once
	}, forever)
	m.await(first, "ready", ready)
	second := m.run("second", onPort("127.0.0.1", 8080), "exit 1")
	m.rejects(second, "NodePorts", portsTaken)
	m.rejects(m.run("large", asks("cpu", "1000"), "exit 1"), "OutOfcpu", fmt.Sprintf(
		"Node didn't have enough resource: cpu, requested: 1000000, used: 500, capacity: %d", capacity))
	m.rejects(m.run("rest", asks("cpu", fmt.Sprint(capacity-499, "m")), "exit 1"), "OutOfcpu", fmt.Sprintf(
		"Node didn't have enough resource: cpu, requested: %d, used: 500, capacity: %[2]d", capacity-499, capacity))
	m.rejects(m.run("elsewhere", selects("disk", "ssd"), "exit 1"), "NodeAffinity",
		"Predicate NodeAffinity failed: node(s) didn't match Pod's node affinity/selector")
	m.rejects(m.run("windows", func(p *corev1.Pod) { p.Spec.OS = &corev1.PodOS{Name: "windows"} }, "exit 1"),
		"PodOSNotSupported", "Failed to admit pod as the OS field doesn't match node OS")
	m.await(m.run("device", asks("example.com/unknown", "1"), forever), "ready", ready)
	m.await(m.run("beside", onPort("", 8081), forever), "ready", ready)

	// What the Node says now counts, and not what it said ten seconds ago.
	if err := m.Patch(t.Context(), node, rawMerge([]byte(`{"metadata":{"labels":{"disk":"ssd"}}}`))); err != nil {
		t.Fatal(err)
	}
	m.await(m.run("here", selects("disk", "ssd"), forever), "ready", ready)

	// Those that have begun keep their place when the agent ends and begins anew.
	m.stop()
	late := m.run("a", onPort("", 8080), "exit 1") // of which the agent hears first
	m.boot()
	m.rejects(late, "NodePorts", portsTaken)

	// Who has ended, or was ended, leaves it.
	if err := m.Delete(t.Context(), first); err != nil {
		t.Fatal(err)
	}
	m.await(first, "ended", func(p *corev1.Pod) bool { return phase(corev1.PodFailed)(p) || phase(corev1.PodSucceeded)(p) })
	ends := m.run("ends", func(p *corev1.Pod) { onPort("", 8080)(p); p.Spec.RestartPolicy = "Never" }, "exit 0")
	m.await(ends, "over", phase(corev1.PodSucceeded))
	m.await(m.run("next", onPort("", 8080), forever), "ready", ready)
}

// A node that is to be empty takes no pod that would have to leave at once.
func TestPodsThatDoNotTolerateAreRejected(t *testing.T) {
	m := newMachine(t)
	m.boot()
	m.nodeNow(func(n *corev1.Node) bool { return n.Status.Allocatable.Cpu().Sign() > 0 })
	m.stop()
	node := m.nodeNow(func(*corev1.Node) bool { return true })
	taint := []byte(`{"spec":{"taints":[{"key":"away","effect":"NoExecute"},{"key":"busy","effect":"NoSchedule"}]}}`)
	if err := m.Patch(t.Context(), node, rawMerge(taint)); err != nil {
		t.Fatal(err)
	}
	stays := m.run("stays", func(p *corev1.Pod) {
		p.Spec.Tolerations = []corev1.Toleration{{Key: "away", Operator: corev1.TolerationOpExists}}
	}, forever)
	m.boot()
	m.await(stays, "ready", ready)
	m.rejects(m.run("leaves", nil, "exit 1"), "TaintToleration",
		"Predicate TaintToleration failed: node(s) had taints that the pod didn't tolerate")
}
