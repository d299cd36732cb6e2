package scheduler_test

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/setpoint-dev/setpoint/scheduler"
)

func node(name, cpu string, change ...func(*corev1.Node)) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"name": name}}}
	n.Status.Allocatable = corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourceMemory: resource.MustParse("1Gi"),
		corev1.ResourcePods: resource.MustParse("10"),
	}
	for _, c := range change {
		c(n)
	}
	return n
}

func pod(name, cpu string, change ...func(*corev1.Pod)) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID(name + "-uid")}}
	p.Spec.SchedulerName = corev1.DefaultSchedulerName
	p.Spec.Containers = []corev1.Container{{Name: "c"}}
	if cpu != "" {
		p.Spec.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu)}
	}
	for _, c := range change {
		c(p)
	}
	return p
}

func on(node string) func(*corev1.Pod) { return func(p *corev1.Pod) { p.Spec.NodeName = node } }

func labelled(key, value string) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Labels = map[string]string{key: value} }
}

func zone(z string) func(*corev1.Node) { return func(n *corev1.Node) { n.Labels["zone"] = z } }

func tainted(effect corev1.TaintEffect) func(*corev1.Node) {
	return func(n *corev1.Node) { n.Spec.Taints = []corev1.Taint{{Key: "k", Value: "v", Effect: effect}} }
}

func selecting(key, value string) *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchLabels: map[string]string{key: value}}
}

func apart(p *corev1.Pod) {
	p.Spec.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{
		RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{
			{TopologyKey: "zone", LabelSelector: selecting("app", "a")}},
	}}
}

func beside(p *corev1.Pod) {
	p.Spec.Affinity = &corev1.Affinity{PodAffinity: &corev1.PodAffinity{
		RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{
			{TopologyKey: "zone", LabelSelector: selecting("app", "a")}},
	}}
}

func spread(p *corev1.Pod) {
	p.Spec.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{{
		MaxSkew: 1, TopologyKey: "zone", WhenUnsatisfiable: corev1.DoNotSchedule, LabelSelector: selecting("app", "a"),
	}}
}

func hostPort(port int32) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Spec.Containers[0].Ports = []corev1.ContainerPort{{HostPort: port, ContainerPort: port, Protocol: corev1.ProtocolTCP}}
	}
}

func TestPlace(t *testing.T) {
	for _, c := range []struct {
		about string
		nodes []*corev1.Node
		there []*corev1.Pod
		pod   *corev1.Pod
		want  string // a node's name, or a message
	}{
		{about: "no nodes", pod: pod("p", ""), want: "no nodes available to schedule pods"},
		{about: "the emptier of two", nodes: []*corev1.Node{node("a", "4"), node("b", "4")},
			there: []*corev1.Pod{pod("x", "2", on("a"))}, pod: pod("p", "1"), want: "b"},
		{about: "nothing to choose between", nodes: []*corev1.Node{node("b", "4"), node("a", "4")},
			pod: pod("p", "1"), want: "a"},
		{about: "too little CPU, too many pods", nodes: []*corev1.Node{node("a", "1"), node("b", "2", func(n *corev1.Node) {
			n.Status.Allocatable[corev1.ResourcePods] = resource.MustParse("0")
		})}, pod: pod("p", "1500m"), want: "0/2 nodes are available: 1 Insufficient cpu, 1 Too many pods."},
		{about: "what is not asked for is never lacking", nodes: []*corev1.Node{node("a", "1")},
			there: []*corev1.Pod{pod("x", "2", on("a"))}, pod: pod("p", ""), want: "a"},
		{about: "an ended pod takes nothing", nodes: []*corev1.Node{node("a", "1")},
			there: []*corev1.Pod{pod("x", "1", on("a"), func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded })},
			pod:   pod("p", "1"), want: "a"},
		{about: "an init container that asks for more counts alone", nodes: []*corev1.Node{node("a", "1")},
			pod: pod("p", "500m", func(p *corev1.Pod) {
				p.Spec.InitContainers = []corev1.Container{{Name: "i", Resources: corev1.ResourceRequirements{
					Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("2")}}}}
			}), want: "0/1 nodes are available: 1 Insufficient cpu."},
		{about: "node selector", nodes: []*corev1.Node{node("a", "1"), node("b", "1")},
			pod: pod("p", "", func(p *corev1.Pod) { p.Spec.NodeSelector = map[string]string{"name": "b"} }), want: "b"},
		{about: "node selector that nothing has", nodes: []*corev1.Node{node("a", "1")},
			pod:  pod("p", "", func(p *corev1.Pod) { p.Spec.NodeSelector = map[string]string{"name": "c"} }),
			want: "0/1 nodes are available: 1 node(s) didn't match Pod's node affinity/selector."},
		{about: "preferred node", nodes: []*corev1.Node{node("a", "1"), node("b", "1")},
			pod: pod("p", "", func(p *corev1.Pod) {
				p.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
					PreferredDuringSchedulingIgnoredDuringExecution: []corev1.PreferredSchedulingTerm{{Weight: 1,
						Preference: corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{
							{Key: "name", Operator: corev1.NodeSelectorOpIn, Values: []string{"b"}}}}}}}}
			}), want: "b"},
		{about: "taint", nodes: []*corev1.Node{node("a", "1", tainted(corev1.TaintEffectNoSchedule))},
			pod: pod("p", ""), want: "0/1 nodes are available: 1 node(s) had untolerated taint(s)."},
		{about: "tolerated taint", nodes: []*corev1.Node{node("a", "1", tainted(corev1.TaintEffectNoSchedule))},
			pod: pod("p", "", func(p *corev1.Pod) {
				p.Spec.Tolerations = []corev1.Toleration{{Key: "k", Operator: corev1.TolerationOpExists}}
			}), want: "a"},
		{about: "a taint to avoid", nodes: []*corev1.Node{node("a", "1", tainted(corev1.TaintEffectPreferNoSchedule)), node("b", "1")},
			pod: pod("p", ""), want: "b"},
		{about: "cordoned", nodes: []*corev1.Node{node("a", "1", func(n *corev1.Node) { n.Spec.Unschedulable = true })},
			pod: pod("p", ""), want: "0/1 nodes are available: 1 node(s) were unschedulable."},
		{about: "host port", nodes: []*corev1.Node{node("a", "1")}, there: []*corev1.Pod{pod("x", "", on("a"), hostPort(80))},
			pod: pod("p", "", hostPort(80)), want: "0/1 nodes are available: 1 node(s) didn't have free ports for the requested pod ports."},
		{about: "another host port", nodes: []*corev1.Node{node("a", "1")}, there: []*corev1.Pod{pod("x", "", on("a"), hostPort(80))},
			pod: pod("p", "", hostPort(81)), want: "a"},
		{about: "apart from others", nodes: []*corev1.Node{node("a", "1", zone("1")), node("b", "1", zone("1")), node("c", "1", zone("2"))},
			there: []*corev1.Pod{pod("x", "", on("a"), labelled("app", "a"))}, pod: pod("p", "", apart), want: "c"},
		{about: "kept out by one that wants to be alone", nodes: []*corev1.Node{node("a", "1", zone("1"))},
			there: []*corev1.Pod{pod("x", "", on("a"), apart)}, pod: pod("p", "", labelled("app", "a")),
			want: "0/1 nodes are available: 1 node(s) didn't satisfy existing pods anti-affinity rules."},
		{about: "beside another", nodes: []*corev1.Node{node("a", "1", zone("1")), node("b", "1", zone("2"))},
			there: []*corev1.Pod{pod("x", "", on("b"), labelled("app", "a"))}, pod: pod("p", "", beside), want: "b"},
		{about: "beside nobody", nodes: []*corev1.Node{node("a", "1", zone("1"))}, pod: pod("p", "", beside),
			want: "0/1 nodes are available: 1 node(s) didn't match pod affinity rules."},
		{about: "the first of those that want to be together", nodes: []*corev1.Node{node("a", "1", zone("1"))},
			pod: pod("p", "", beside, labelled("app", "a")), want: "a"},
		{about: "spread over zones", nodes: []*corev1.Node{node("a", "9", zone("1")), node("b", "9", zone("2"))},
			there: []*corev1.Pod{pod("x", "", on("b"), labelled("app", "a")), pod("y", "5", on("a"))},
			pod:   pod("p", "", spread, labelled("app", "a")), want: "a"},
	} {
		t.Run(c.about, func(t *testing.T) {
			l := scheduler.NewLedger()
			for _, n := range c.nodes {
				l.SetNode(n)
			}
			for _, p := range c.there {
				l.SetPod(p)
			}
			got, message := l.Place(c.pod)
			if got+message != c.want {
				t.Errorf("placed on %q, %q; want %s", got, message, c.want)
			}
		})
	}
}

// TestDecidedPodsTakeTheirPlace decides about many pods at once, before any event has come back.
func TestDecidedPodsTakeTheirPlace(t *testing.T) {
	l := scheduler.NewLedger()
	l.SetNode(node("a", "2"))
	l.SetNode(node("b", "2"))
	type outcome struct{ node, message string }
	decided := make(chan outcome)
	const pods = 5
	for i := range pods {
		go func() {
			p := pod(fmt.Sprint("p", i), "1")
			where, message := l.Place(p)
			l.SetPod(p) // an event from before the binding
			decided <- outcome{where, message}
		}()
	}
	got := map[outcome]int{}
	for range pods {
		got[<-decided]++
	}
	want := map[outcome]int{{"a", ""}: 2, {"b", ""}: 2, {"", "0/2 nodes are available: 2 Insufficient cpu."}: 1}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(outcome{})); diff != "" {
		t.Errorf("decided (-want +got):\n%s", diff)
	}
}

// TestCopiesOfOneControllerAreKeptApart prefers a fuller machine that has no copy yet.
func TestCopiesOfOneControllerAreKeptApart(t *testing.T) {
	owned := func(p *corev1.Pod) {
		p.OwnerReferences = []metav1.OwnerReference{{UID: "set", Controller: ptr.To(true)}}
	}
	l := scheduler.NewLedger()
	l.SetNode(node("a", "8"))
	l.SetNode(node("b", "8"))
	l.SetPod(pod("copy", "100m", on("a"), owned))
	l.SetPod(pod("other", "4", on("b")))
	if got, _ := l.Place(pod("p", "100m", owned)); got != "b" {
		t.Errorf("placed on %q, want b", got)
	}
}

// TestB105_NodeMadeAgainIsTheNewOne deletes a node and adds a smaller one of its name.
func TestB105_NodeMadeAgainIsTheNewOne(t *testing.T) {
	l := scheduler.NewLedger()
	l.SetNode(node("a", "4"))
	l.SetPod(pod("x", "1", on("a")))
	l.DropNode("a")
	if got, message := l.Place(pod("p", "1")); got != "" || message != "no nodes available to schedule pods" {
		t.Errorf("placed on %q (%s), which is gone", got, message)
	}
	l.SetNode(node("a", "1500m"))
	if got, _ := l.Place(pod("p", "1")); got != "" {
		t.Errorf("placed on %q, which is full with the pod that was there before", got)
	}
	l.DropPod(pod("x", "1"))
	if got, _ := l.Place(pod("p", "1")); got != "a" {
		t.Errorf("placed on %q, want a", got)
	}
	l.DropPod(pod("p", "1"))
	l.DropNode("a")
	if n := l.Known(); n != 0 {
		t.Errorf("%d things are remembered of a world that is empty", n)
	}
}
