package scheduler_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/setpoint-dev/setpoint/scheduler"
	"github.com/setpoint-dev/setpoint/setpointtest"
)

func priority(p int32) func(*corev1.Pod) {
	return func(pod *corev1.Pod) { pod.Spec.Priority = &p }
}

func started(minute int64) func(*corev1.Pod) {
	return func(pod *corev1.Pod) { pod.Status.StartTime = ptr.To(metav1.Unix(60*minute, 0)) }
}

func leaving(pod *corev1.Pod) { pod.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)} }

func allows(n int32, key, value string) policyv1.PodDisruptionBudget {
	b := policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: value}}
	b.Spec.Selector = selecting(key, value)
	b.Status.DisruptionsAllowed = n
	return b
}

func TestPreempt(t *testing.T) {
	for _, c := range []struct {
		about   string
		nodes   []*corev1.Node
		there   []*corev1.Pod
		budgets []policyv1.PodDisruptionBudget
		pod     *corev1.Pod
		node    string
		victims []string
	}{
		{about: "nobody of the same priority", nodes: []*corev1.Node{node("a", "2")},
			there: []*corev1.Pod{pod("x", "2", on("a"), priority(5))}, pod: pod("p", "1", priority(5))},
		{about: "one of a lower one", nodes: []*corev1.Node{node("a", "2")},
			there: []*corev1.Pod{pod("x", "2", on("a"), priority(4))}, pod: pod("p", "1", priority(5)),
			node: "a", victims: []string{"x"}},
		{about: "a pod without a priority has zero", nodes: []*corev1.Node{node("a", "2")},
			there: []*corev1.Pod{pod("x", "2", on("a"))}, pod: pod("p", "1", priority(1)),
			node: "a", victims: []string{"x"}},
		{about: "not by one that never does", nodes: []*corev1.Node{node("a", "2")},
			there: []*corev1.Pod{pod("x", "2", on("a"))}, pod: pod("p", "1", priority(1), func(p *corev1.Pod) {
				p.Spec.PreemptionPolicy = ptr.To(corev1.PreemptNever)
			})},
		{about: "not where it would not help", nodes: []*corev1.Node{node("a", "2")},
			there: []*corev1.Pod{pod("x", "1", on("a"))}, pod: pod("p", "3", priority(1))},
		{about: "not on a node that the pod does not want", nodes: []*corev1.Node{node("a", "2"), node("b", "2")},
			there: []*corev1.Pod{pod("x", "2", on("a")), pod("y", "2", on("b"), priority(1))},
			pod: pod("p", "1", priority(5), func(p *corev1.Pod) {
				p.Spec.NodeSelector = map[string]string{"name": "b"}
			}), node: "b", victims: []string{"y"}},
		{about: "not on a cordoned node", nodes: []*corev1.Node{node("a", "2", func(n *corev1.Node) { n.Spec.Unschedulable = true })},
			there: []*corev1.Pod{pod("x", "2", on("a"))}, pod: pod("p", "1", priority(5))},
		{about: "no more than has to be, the least important ones", nodes: []*corev1.Node{node("a", "4")},
			there: []*corev1.Pod{pod("x", "1", on("a"), priority(3)), pod("y", "1", on("a"), priority(1)),
				pod("z", "1", on("a"), priority(2)), pod("w", "1", on("a"), priority(9))},
			pod: pod("p", "2", priority(5)), node: "a", victims: []string{"z", "y"}},
		{about: "a small one is spared if a large one has to go anyway", nodes: []*corev1.Node{node("a", "4")},
			there: []*corev1.Pod{pod("large", "3", on("a"), priority(2)), pod("small", "1", on("a"), priority(1))},
			pod:   pod("p", "3", priority(5)), node: "a", victims: []string{"large"}},
		{about: "those that started last, of one priority", nodes: []*corev1.Node{node("a", "2")},
			there: []*corev1.Pod{pod("old", "1", on("a"), started(1)), pod("new", "1", on("a"), started(2))},
			pod:   pod("p", "1", priority(5)), node: "a", victims: []string{"new"}},
		{about: "the node whose victims are of lower priority", nodes: []*corev1.Node{node("a", "2"), node("b", "2")},
			there: []*corev1.Pod{pod("x", "2", on("a"), priority(2)), pod("y", "1", on("b"), priority(1)),
				pod("z", "1", on("b"), priority(1))},
			pod: pod("p", "2", priority(5)), node: "b", victims: []string{"y", "z"}},
		{about: "the node with fewer victims", nodes: []*corev1.Node{node("a", "2"), node("b", "2")},
			there: []*corev1.Pod{pod("x", "2", on("b")), pod("y", "1", on("a")), pod("z", "1", on("a"))},
			pod:   pod("p", "2", priority(5)), node: "b", victims: []string{"x"}},
		{about: "the node whose victim has run for less", nodes: []*corev1.Node{node("a", "2"), node("b", "2")},
			there: []*corev1.Pod{pod("x", "2", on("a"), started(1)), pod("y", "2", on("b"), started(2))},
			pod:   pod("p", "2", priority(5)), node: "b", victims: []string{"y"}},
		{about: "the node where a budget is kept", nodes: []*corev1.Node{node("a", "2"), node("b", "2")},
			there:   []*corev1.Pod{pod("x", "2", on("a"), labelled("app", "kept")), pod("y", "2", on("b"), priority(4))},
			budgets: []policyv1.PodDisruptionBudget{allows(0, "app", "kept")},
			pod:     pod("p", "2", priority(5)), node: "b", victims: []string{"y"}},
		{about: "a budget is not kept if there is no choice", nodes: []*corev1.Node{node("a", "2")},
			there:   []*corev1.Pod{pod("x", "2", on("a"), labelled("app", "kept"))},
			budgets: []policyv1.PodDisruptionBudget{allows(0, "app", "kept")},
			pod:     pod("p", "2", priority(5)), node: "a", victims: []string{"x"}},
		{about: "as many as a budget allows", nodes: []*corev1.Node{node("a", "3")},
			there: []*corev1.Pod{pod("x", "1", on("a"), labelled("app", "kept")),
				pod("y", "1", on("a"), labelled("app", "kept")), pod("z", "1", on("a"), priority(4))},
			budgets: []policyv1.PodDisruptionBudget{allows(1, "app", "kept")},
			pod:     pod("p", "2", priority(5)), node: "a", victims: []string{"z", "x"}},
		{about: "a port", nodes: []*corev1.Node{node("a", "2")},
			there: []*corev1.Pod{pod("x", "", on("a"), hostPort(80)), pod("y", "", on("a"))},
			pod:   pod("p", "", priority(5), hostPort(80)), node: "a", victims: []string{"x"}},
		{about: "one that keeps others away", nodes: []*corev1.Node{node("a", "2", zone("1"))},
			there: []*corev1.Pod{pod("x", "", on("a"), apart), pod("y", "", on("a"))},
			pod:   pod("p", "", priority(5), labelled("app", "a")), node: "a", victims: []string{"x"}},
		{about: "never one that has to be there", nodes: []*corev1.Node{node("a", "2", zone("1")), node("b", "2", zone("2"))},
			there: []*corev1.Pod{pod("x", "2", on("a"), labelled("app", "a"))}, pod: pod("p", "1", priority(5), beside)},
		{about: "nobody, where enough is leaving", nodes: []*corev1.Node{node("a", "2"), node("b", "2")},
			there: []*corev1.Pod{pod("x", "2", on("a")), pod("y", "1", on("b"), leaving, priority(4)), pod("z", "1", on("b"))},
			pod:   pod("p", "1", priority(5)), node: "a", victims: []string{"x"}},
	} {
		t.Run(c.about, func(t *testing.T) {
			l := scheduler.NewLedger()
			for _, n := range c.nodes {
				l.SetNode(n)
			}
			for _, p := range c.there {
				l.SetPod(p)
			}
			if on, _ := l.Place(c.pod); on != "" {
				t.Fatalf("it fits on %s, and needs nobody to go", on)
			}
			node, victims := l.Preempt(c.pod, c.budgets...)
			if node != c.node || !cmp.Equal(victims, c.victims) {
				t.Errorf("room is made on %q by %q, want on %q by %q", node, victims, c.node, c.victims)
			}
		})
	}
}

// TestNomineeIsNotOvertaken has pods ask for the room that is being made for another.
func TestNomineeIsNotOvertaken(t *testing.T) {
	l := scheduler.NewLedger()
	l.SetNode(node("a", "2"))
	l.SetPod(pod("x", "2", on("a")))
	p := pod("p", "2", priority(5))
	if on, victims := l.Preempt(p); on != "a" || len(victims) != 1 {
		t.Fatalf("room is made on %q by %q", on, victims)
	}
	l.SetPod(p) // an event from before the nomination
	l.SetPod(pod("x", "2", on("a"), leaving))
	l.SetNode(node("b", "2"))
	l.SetPod(pod("y", "2", on("b"), priority(-1))) // would cost less
	if on, victims := l.Preempt(p); on != "a" || victims != nil {
		t.Errorf("asked again, room is made on %q by %q; want on a, by those who leave", on, victims)
	}
	l.DropPod(pod("x", ""))
	if on, _ := l.Place(pod("lower", "1", priority(4))); on != "" {
		t.Error("one of lower priority took the nominee's place")
	}
	if on, _ := l.Place(pod("higher", "1", priority(6))); on != "a" {
		t.Error("one of higher priority was kept from a nominee's place")
	}
	l.DropPod(pod("higher", ""))
	if on, _ := l.Place(p); on != "a" {
		t.Error("the nominee was kept from its own place")
	}
}

// TestNomineesNodeComesFirst has another node become free that would be the better one.
func TestNomineesNodeComesFirst(t *testing.T) {
	l := scheduler.NewLedger()
	l.SetNode(node("a", "9"))
	l.SetNode(node("b", "2"))
	p := pod("p", "2", priority(5))
	p.Status.NominatedNodeName = "b"
	if on, _ := l.Place(p); on != "b" {
		t.Errorf("placed on %q, want b, for which it was nominated", on)
	}
}

// TestB106_NomineeThatIsGoneKeepsNothing ends the nomination in each of the ways there are.
func TestB106_NomineeThatIsGoneKeepsNothing(t *testing.T) {
	nominee := func() *corev1.Pod {
		p := pod("p", "2", priority(5))
		p.Status.NominatedNodeName = "a"
		return p
	}
	for about, end := range map[string]func(scheduler.Ledger){
		"deleted":           func(l scheduler.Ledger) { l.DropPod(nominee()) },
		"being deleted":     func(l scheduler.Ledger) { p := nominee(); leaving(p); l.SetPod(p) },
		"ended":             func(l scheduler.Ledger) { p := nominee(); p.Status.Phase = corev1.PodFailed; l.SetPod(p) },
		"nominated no more": func(l scheduler.Ledger) { l.SetPod(pod("p", "2", priority(5))) },
		"placed elsewhere":  func(l scheduler.Ledger) { p := nominee(); p.Spec.NodeName = "b"; l.SetPod(p) },
	} {
		t.Run(about, func(t *testing.T) {
			l := scheduler.NewLedger()
			l.SetNode(node("a", "2"))
			l.SetPod(nominee())
			if on, _ := l.Place(pod("q", "1")); on != "" {
				t.Fatal("the nominee keeps nothing")
			}
			end(l)
			if on, _ := l.Place(pod("q", "1")); on != "a" {
				t.Error("what was kept for the nominee is not free")
			}
		})
	}
}

// TestNominationThatIsNotWrittenIsNone deletes the pod while it is being decided about.
func TestNominationThatIsNotWrittenIsNone(t *testing.T) {
	b := newBench(t, node("a", "2"), pod("x", "2", on("a")), pod("p", "2", priority(5)))
	b.beforePatch = func() {
		if err := b.client.Delete(t.Context(), pod("p", "")); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := b.reconcile(t, "p"); err != nil {
		t.Fatal(err)
	}
	if b.get(t, "x").DeletionTimestamp != nil {
		t.Error("x has to go for a pod that is gone")
	}
	b.beforePatch = nil
	b.PodEvents().Delete(t.Context(), deleteOf(pod("x", "2", on("a"))), discard{})
	if err := b.client.Create(t.Context(), pod("q", "1")); err != nil {
		t.Fatal(err)
	}
	if _, err := b.reconcile(t, "q"); err != nil || b.get(t, "q").Spec.NodeName != "a" {
		t.Errorf("a pod that is gone keeps its place: %v", err)
	}
}

// TestHigherPriorityTakesTheNode runs the scheduler on a control plane: a pod of low priority with a
// long time to end makes way for one of high priority.
func TestHigherPriorityTakesTheNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cp := setpointtest.Start(t, setpointtest.Nodes(1))
		high := &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: "high"}, Value: 1000}
		low, urgent := whole("low"), whole("urgent")
		low.Finalizers = []string{"example.com/wait"}
		urgent.Spec.PriorityClassName = "high"
		for _, obj := range []client.Object{high, low} {
			if err := cp.Client.Create(t.Context(), obj); err != nil {
				t.Fatal(err)
			}
		}
		cp.Await(low, "it runs", func() bool { return low.Status.Phase == corev1.PodRunning })
		if err := cp.Client.Create(t.Context(), urgent); err != nil {
			t.Fatal(err)
		}
		cp.Await(urgent, "it is nominated", func() bool { return urgent.Status.NominatedNodeName == low.Spec.NodeName })
		cp.Await(low, "it is told to go", func() bool { return low.DeletionTimestamp != nil })
		var why corev1.PodCondition
		for _, c := range low.Status.Conditions {
			if c.Type == corev1.DisruptionTarget {
				why = c
			}
		}
		want := corev1.PodCondition{
			Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: "PreemptionByScheduler",
			Message:            "default-scheduler: preempting to accommodate a higher priority pod",
			LastTransitionTime: why.LastTransitionTime,
		}
		if diff := cmp.Diff(want, why); diff != "" {
			t.Errorf("the victim's condition (-want +got):\n%s", diff)
		}
		low.Finalizers = nil
		if err := cp.Client.Patch(t.Context(), low, client.RawPatch("application/merge-patch+json",
			[]byte(`{"metadata":{"finalizers":null}}`))); err != nil {
			t.Fatal(err)
		}
		cp.Await(urgent, "it runs", func() bool { return urgent.Status.Phase == corev1.PodRunning })
		if urgent.Status.NominatedNodeName != "" {
			t.Errorf("a pod that has its node is still nominated for %q", urgent.Status.NominatedNodeName)
		}
	})
}

// whole is a pod that takes most of a simulated node.
func whole(name string) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}}
	p.Spec.Containers = []corev1.Container{{Name: "c", Image: "none", Resources: corev1.ResourceRequirements{
		Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("20")},
	}}}
	return p
}
