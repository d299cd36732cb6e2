package replicaset_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/setpoint-dev/setpoint/controllers/controllertest"
	"github.com/setpoint-dev/setpoint/controllers/replicaset"
)

var start = controllertest.Start

func newSet(replicas int32) *appsv1.ReplicaSet {
	labels := map[string]string{"app": "web"}
	return &appsv1.ReplicaSet{
		ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "ns", UID: "set", Generation: 1},
		Spec: appsv1.ReplicaSetSpec{
			Replicas: ptr.To(replicas),
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}},
		},
	}
}

type podOption func(*corev1.Pod)

func newPod(name string, options ...podOption) *corev1.Pod {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, Namespace: "ns", UID: types.UID(name), Labels: map[string]string{"app": "web"},
			CreationTimestamp: metav1.NewTime(start.Add(-time.Hour)),
			OwnerReferences:   []metav1.OwnerReference{*metav1.NewControllerRef(newSet(0), appsv1.SchemeGroupVersion.WithKind("ReplicaSet"))},
		},
		Spec:   corev1.PodSpec{NodeName: "n1"},
		Status: corev1.PodStatus{Phase: corev1.PodRunning},
	}
	for _, option := range options {
		option(pod)
	}
	return pod
}

func ready(ago time.Duration) podOption {
	return func(p *corev1.Pod) {
		p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(start.Add(-ago))}}
	}
}

func phase(phase corev1.PodPhase) podOption { return func(p *corev1.Pod) { p.Status.Phase = phase } }
func node(name string) podOption            { return func(p *corev1.Pod) { p.Spec.NodeName = name } }
func age(d time.Duration) podOption {
	return func(p *corev1.Pod) { p.CreationTimestamp = metav1.NewTime(start.Add(-d)) }
}
func cost(value string) podOption {
	return func(p *corev1.Pod) { p.Annotations = map[string]string{corev1.PodDeletionCost: value} }
}
func restarted(n int32) podOption {
	return func(p *corev1.Pod) { p.Status.ContainerStatuses = []corev1.ContainerStatus{{RestartCount: n}} }
}
func deleted(p *corev1.Pod) { p.DeletionTimestamp = ptr.To(metav1.NewTime(start)) }

func plan(set *appsv1.ReplicaSet, pods ...*corev1.Pod) replicaset.Actions {
	return replicaset.Plan(replicaset.Snapshot{Set: set, Pods: pods, Now: start, Related: func() []*corev1.Pod { return pods }})
}

func TestPlanCountsActivePodsOnly(t *testing.T) {
	act := plan(newSet(3), newPod("a", ready(time.Hour)), newPod("b", deleted), newPod("c", phase(corev1.PodSucceeded)))
	if act.Create != 2 || act.Remove != nil {
		t.Errorf("create %d, remove %v; want 2 created and none removed", act.Create, names(act.Remove))
	}
}

func TestPlanIsBounded(t *testing.T) {
	if act := plan(newSet(2000)); act.Create != 500 {
		t.Errorf("a pass creates %d pods, want at most 500", act.Create)
	}
}

func TestB068_DeletingSetNeitherCreatesNorDeletes(t *testing.T) {
	set := newSet(3)
	set.DeletionTimestamp = ptr.To(metav1.NewTime(start))
	if act := plan(set); act.Create != 0 {
		t.Errorf("a set that is being deleted creates %d pods", act.Create)
	}
	*set.Spec.Replicas = 0
	if act := plan(set, newPod("a")); len(act.Remove) != 0 {
		t.Errorf("a set that is being deleted removes %v", names(act.Remove))
	}
}

func TestPlanWaitsForMinReadySeconds(t *testing.T) {
	set := newSet(1)
	set.Spec.MinReadySeconds = 30
	if act := plan(set, newPod("a", ready(10*time.Second))); act.Wait != 20*time.Second {
		t.Errorf("wait %v, want 20s", act.Wait)
	}
	if act := plan(set, newPod("a", ready(30*time.Second))); act.Wait != 0 {
		t.Errorf("wait %v with all pods available, want none", act.Wait)
	}
}

// TestVictims checks each rule of the order by two pods that differ in nothing before it.
func TestVictims(t *testing.T) {
	for _, c := range []struct {
		rule         string
		victim, kept *corev1.Pod
		others       []*corev1.Pod
	}{
		{"not placed first", newPod("x", node("")), newPod("k", phase(corev1.PodPending)), nil},
		{"pending before running", newPod("x", phase(corev1.PodPending)), newPod("k"), nil},
		{"not ready before ready", newPod("x"), newPod("k", ready(time.Minute)), nil},
		{"cheap before dear", newPod("x", ready(time.Hour), cost("-5")), newPod("k", ready(time.Minute), cost("5")), nil},
		{"crowded node first", newPod("x", ready(time.Hour)), newPod("k", ready(time.Minute), node("n2")), []*corev1.Pod{newPod("o", ready(time.Hour), cost("9"))}},
		{"newly ready first", newPod("x", ready(time.Minute)), newPod("k", ready(time.Hour)), nil},
		{"often restarted first", newPod("x", restarted(5)), newPod("k", restarted(1)), nil},
		{"young before old", newPod("x", age(time.Minute)), newPod("k", age(time.Hour)), nil},
		{"about one age, by uid", newPod("a", age(60*time.Minute)), newPod("k", age(59*time.Minute)), nil},
	} {
		for _, pods := range [][]*corev1.Pod{{c.victim, c.kept}, {c.kept, c.victim}} {
			pods = append(pods, c.others...)
			act := plan(newSet(int32(len(pods)-1)), pods...)
			if diff := cmp.Diff([]string{c.victim.Name}, names(act.Remove)); diff != "" {
				t.Errorf("%s (-want +got):\n%s", c.rule, diff)
			}
		}
	}
}

// TestB066_RejectedPodsAreReplacedMoreAndMoreSlowly runs a set for a simulated hour on a node that
// rejects every pod at once.
func TestB066_RejectedPodsAreReplacedMoreAndMoreSlowly(t *testing.T) {
	for _, replicas := range []int32{1, 5} {
		set := newSet(replicas)
		var pods []*corev1.Pod
		now, created := start, 0
		for now.Before(start.Add(time.Hour)) {
			act := replicaset.Plan(replicaset.Snapshot{Set: set, Pods: pods, Now: now})
			for range act.Create {
				created++
				pods = append(pods, newPod(fmt.Sprint(created), phase(corev1.PodFailed), age(start.Sub(now))))
			}
			if act.Create == 0 && act.Wait == 0 {
				t.Fatalf("replicas %d: with %d of %d pods there is nothing to do and nothing to wait for", replicas, 0, replicas)
			}
			now = now.Add(max(act.Wait, time.Millisecond))
		}
		if limit := 25 * int(replicas); created > limit || created < 5*int(replicas) {
			t.Errorf("replicas %d: %d pods created in an hour, want between %d and %d", replicas, created, 5*replicas, limit)
		}
	}
}

func TestPauseEndsWhenAPodWorks(t *testing.T) {
	failed := []*corev1.Pod{}
	for i := range 6 {
		failed = append(failed, newPod(fmt.Sprint("f", i), phase(corev1.PodFailed), age(time.Duration(6-i)*time.Second)))
	}
	if act := plan(newSet(2), failed...); act.Create != 0 {
		t.Fatal("six failures in a row do not pause the set: the test shows nothing")
	}
	works := newPod("works", ready(0), age(time.Second/2))
	if act := plan(newSet(2), append(failed, works)...); act.Create != 1 {
		t.Errorf("create %d after a newer pod became ready, want 1", act.Create)
	}
}

func TestStatus(t *testing.T) {
	set := newSet(3)
	set.Spec.MinReadySeconds = 60
	set.Spec.Template.Labels = map[string]string{"app": "web", "extra": "yes"}
	snap := replicaset.Snapshot{Set: set, Now: start, Pods: []*corev1.Pod{
		newPod("a", ready(time.Hour), func(p *corev1.Pod) { p.Labels["extra"] = "yes" }),
		newPod("b", ready(time.Second)),
		newPod("c"),
		newPod("d", deleted),
		newPod("e", phase(corev1.PodFailed)),
	}}
	want := appsv1.ReplicaSetStatus{
		Replicas: 3, FullyLabeledReplicas: 1, ReadyReplicas: 2, AvailableReplicas: 1,
		TerminatingReplicas: ptr.To(int32(1)), ObservedGeneration: 1,
	}
	if diff := cmp.Diff(want, replicaset.Status(snap, replicaset.Actions{}, nil)); diff != "" {
		t.Errorf("status (-want +got):\n%s", diff)
	}
}

func TestStatusFailureCondition(t *testing.T) {
	set := newSet(1)
	snap := replicaset.Snapshot{Set: set, Now: start}
	set.Status = replicaset.Status(snap, replicaset.Actions{Create: 1}, errors.New("quota"))
	want := []appsv1.ReplicaSetCondition{{
		Type: appsv1.ReplicaSetReplicaFailure, Status: corev1.ConditionTrue, Reason: "FailedCreate",
		Message: "quota", LastTransitionTime: metav1.NewTime(start),
	}}
	if diff := cmp.Diff(want, set.Status.Conditions); diff != "" {
		t.Fatalf("after a failure (-want +got):\n%s", diff)
	}
	snap.Now = start.Add(time.Minute)
	if again := replicaset.Status(snap, replicaset.Actions{Create: 1}, errors.New("quota, again")); !cmp.Equal(set.Status, again) {
		t.Errorf("a failure that repeats changes the status:\n%s", cmp.Diff(set.Status, again))
	}
	if after := replicaset.Status(snap, replicaset.Actions{}, nil); len(after.Conditions) != 0 {
		t.Errorf("after a success the conditions are %v", after.Conditions)
	}
}

func names(pods []*corev1.Pod) []string {
	var result []string
	for _, pod := range pods {
		result = append(result, pod.Name)
	}
	return result
}
