package nodelifecycle_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/setpoint-dev/setpoint/controllers/controllertest"
	"github.com/setpoint-dev/setpoint/controllers/nodelifecycle"
)

var start = controllertest.Start

func newNode(ready corev1.ConditionStatus) *corev1.Node {
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "n1", UID: "n1", CreationTimestamp: metav1.NewTime(start.Add(-time.Hour))},
		Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{
			{Type: corev1.NodeReady, Status: ready},
			{Type: corev1.NodeMemoryPressure, Status: corev1.ConditionFalse},
			{Type: corev1.NodeDiskPressure, Status: corev1.ConditionFalse},
			{Type: corev1.NodePIDPressure, Status: corev1.ConditionFalse},
		}},
	}
}

func taint(key string, effect corev1.TaintEffect, ago time.Duration) corev1.Taint {
	t := corev1.Taint{Key: key, Effect: effect}
	if effect == corev1.TaintEffectNoExecute {
		t.TimeAdded = ptr.To(metav1.NewTime(start.Add(-ago)))
	}
	return t
}

func TestB100_TaintsChangeTogether(t *testing.T) {
	node := newNode(corev1.ConditionTrue)
	node.Spec.Taints = []corev1.Taint{{Key: "example.com/own", Effect: corev1.TaintEffectNoSchedule}}
	act := nodelifecycle.PlanNode(node, true, start)
	want := []corev1.Taint{
		{Key: "example.com/own", Effect: corev1.TaintEffectNoSchedule},
		taint(corev1.TaintNodeUnreachable, corev1.TaintEffectNoExecute, 0),
		taint(corev1.TaintNodeUnreachable, corev1.TaintEffectNoSchedule, 0),
	}
	if act.Taints == nil {
		t.Fatal("a silent node is not tainted")
	}
	if diff := cmp.Diff(want, *act.Taints); diff != "" {
		t.Errorf("taints of a silent node (-want +got):\n%s", diff)
	}
	if !act.Lost || len(act.Conditions) != 4 || act.Conditions[0].Status != corev1.ConditionUnknown {
		t.Errorf("lost %v, conditions %v; want that all are unknown", act.Lost, act.Conditions)
	}
	node.Spec.Taints, node.Status.Conditions = *act.Taints, act.Conditions
	if again := nodelifecycle.PlanNode(node, true, start.Add(time.Hour)); again.Taints != nil || again.Conditions != nil {
		t.Errorf("a second pass over a silent node plans %+v", again)
	}
	node.Status.Conditions = newNode(corev1.ConditionTrue).Status.Conditions
	act = nodelifecycle.PlanNode(node, false, start.Add(time.Hour))
	if act.Taints == nil {
		t.Fatal("a node that is back keeps its taints")
	}
	if diff := cmp.Diff(want[:1], *act.Taints); diff != "" {
		t.Errorf("taints of a node that is back (-want +got):\n%s", diff)
	}
}

func TestTaintsFollowConditions(t *testing.T) {
	node := newNode(corev1.ConditionFalse)
	node.Spec.Unschedulable = true
	node.Status.Conditions[1].Status = corev1.ConditionTrue
	node.Spec.Taints = []corev1.Taint{taint(corev1.TaintNodeUnreachable, corev1.TaintEffectNoExecute, time.Minute)}
	got := map[string]bool{}
	for _, t := range *nodelifecycle.PlanNode(node, false, start).Taints {
		got[t.Key+":"+string(t.Effect)] = true
	}
	want := map[string]bool{
		"node.kubernetes.io/not-ready:NoSchedule": true, "node.kubernetes.io/not-ready:NoExecute": true,
		"node.kubernetes.io/memory-pressure:NoSchedule": true, "node.kubernetes.io/unschedulable:NoSchedule": true,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("taints (-want +got):\n%s", diff)
	}
}

func TestNodeThatHasSaidNothingKeepsItsTaints(t *testing.T) {
	node := newNode(corev1.ConditionTrue)
	node.Status.Conditions = nil
	node.Spec.Taints = []corev1.Taint{taint(corev1.TaintNodeNotReady, corev1.TaintEffectNoSchedule, 0)}
	if act := nodelifecycle.PlanNode(node, false, start); act.Taints != nil {
		t.Errorf("taints become %v", *act.Taints)
	}
}

func TestATaintWithoutATimeGetsOne(t *testing.T) {
	node := newNode(corev1.ConditionTrue)
	node.Spec.Taints = []corev1.Taint{{Key: "example.com/own", Effect: corev1.TaintEffectNoExecute}}
	act := nodelifecycle.PlanNode(node, false, start)
	if act.Taints == nil || !(*act.Taints)[0].TimeAdded.Time.Equal(start) {
		t.Fatalf("taints %v, want the time added", act.Taints)
	}
	node.Spec.Taints = *act.Taints
	if again := nodelifecycle.PlanNode(node, false, start.Add(time.Minute)); again.Taints != nil {
		t.Errorf("a second pass changes the taints to %v", *again.Taints)
	}
}

func TestB101_ToleranceCountsFromTheTaint(t *testing.T) {
	tolerate := func(seconds ...int64) *corev1.Pod {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", CreationTimestamp: metav1.NewTime(start.Add(-time.Hour))}, Spec: corev1.PodSpec{NodeName: "n1"}}
		for _, s := range seconds {
			pod.Spec.Tolerations = append(pod.Spec.Tolerations, corev1.Toleration{
				Key: corev1.TaintNodeUnreachable, Operator: corev1.TolerationOpExists, TolerationSeconds: ptr.To(s),
			})
		}
		return pod
	}
	forever := tolerate()
	forever.Spec.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
	young := tolerate(300)
	young.CreationTimestamp = metav1.NewTime(start.Add(-10 * time.Second))
	for _, c := range []struct {
		name  string
		pod   *corev1.Pod
		evict bool
		wait  time.Duration
	}{
		{"tolerated for 300 s, 100 s ago", tolerate(300), false, 200 * time.Second},
		{"tolerated for 60 s, 100 s ago", tolerate(60), true, 0},
		{"the shorter of two", tolerate(300, 120), false, 20 * time.Second},
		{"not tolerated", tolerate(), true, 0},
		{"tolerated for ever", forever, false, 0},
		{"made after the taint", young, false, 290 * time.Second},
	} {
		node := newNode(corev1.ConditionUnknown)
		node.Spec.Taints = []corev1.Taint{taint(corev1.TaintNodeUnreachable, corev1.TaintEffectNoExecute, 100*time.Second)}
		act := nodelifecycle.PlanPod(c.pod, node, start)
		if act.Evict != c.evict || act.Wait != c.wait || act.End {
			t.Errorf("%s: %+v, want evict %v after %v", c.name, act, c.evict, c.wait)
		}
	}
}

func TestPodsThatNobodyWillEnd(t *testing.T) {
	gone := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{DeletionTimestamp: ptr.To(metav1.NewTime(start))}}
	if act := nodelifecycle.PlanPod(gone, nil, start); !act.End {
		t.Error("a pod that is being deleted and was never placed stays")
	}
	gone.Spec.NodeName = "n1"
	if act := nodelifecycle.PlanPod(gone, newNode(corev1.ConditionUnknown), start); act.End {
		t.Error("a pod on a node that may come back is ended by force")
	}
	node := newNode(corev1.ConditionUnknown)
	node.Spec.Taints = []corev1.Taint{taint(corev1.TaintNodeOutOfService, corev1.TaintEffectNoExecute, 0)}
	if act := nodelifecycle.PlanPod(gone, node, start); !act.End {
		t.Error("a pod on a node that is out of service stays")
	}
}

func TestEndedPodsAreBounded(t *testing.T) {
	var pods []*corev1.Pod
	for i := range 5 {
		pods = append(pods, &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("p", i), CreationTimestamp: metav1.NewTime(start.Add(time.Duration(-i) * time.Minute))},
			Status:     corev1.PodStatus{Phase: corev1.PodSucceeded},
		})
	}
	pods[1].Status.Phase, pods[1].Status.Reason = corev1.PodFailed, "Evicted"
	pods[4].Status.Phase = corev1.PodRunning
	var got []string
	for _, pod := range nodelifecycle.PlanEnded(pods, 2) {
		got = append(got, pod.Name)
	}
	if diff := cmp.Diff([]string{"p1", "p3"}, got); diff != "" {
		t.Errorf("removed (-want +got):\n%s", diff)
	}
	if got := nodelifecycle.PlanEnded(pods, 4); got != nil {
		t.Errorf("with room for all, %d are removed", len(got))
	}
}
