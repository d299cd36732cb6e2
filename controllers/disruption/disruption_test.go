package disruption_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/setpoint-dev/setpoint/controllers/controllertest"
	"github.com/setpoint-dev/setpoint/controllers/disruption"
)

var web = map[string]string{"app": "web"}

// budget is one of pods of web.
func budget(least, most string) *policyv1.PodDisruptionBudget {
	b := &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "b", Generation: 3}}
	b.Spec.Selector = &metav1.LabelSelector{MatchLabels: web}
	if least != "" {
		b.Spec.MinAvailable = ptr.To(intstr.Parse(least))
	}
	if most != "" {
		b.Spec.MaxUnavailable = ptr.To(intstr.Parse(most))
	}
	return b
}

// pods returns so many ready ones and then so many others, called p0, p1 and so on.
func pods(ready, others int) (list []*corev1.Pod) {
	for i := range ready + others {
		status := corev1.ConditionTrue
		if i >= ready {
			status = corev1.ConditionFalse
		}
		name := fmt.Sprint("p", i)
		list = append(list, &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID(name), Labels: web},
			Status:     corev1.PodStatus{Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: status}}},
		})
	}
	return list
}

func TestPlanCounts(t *testing.T) {
	for _, c := range []struct {
		least, most   string
		ready, others int
		scale         int32
		want          string // allowed, healthy, desired, expected
	}{
		{"2", "", 3, 0, 0, "1 3 2 3"},
		{"2", "", 1, 2, 0, "0 1 2 3"},
		{"0", "", 0, 0, 0, "0 0 0 0"},
		{"50%", "", 3, 0, 5, "0 3 3 5"},
		{"50%", "", 4, 0, 5, "1 4 3 5"},
		{"", "1", 4, 1, 5, "0 4 4 5"},
		{"", "30%", 4, 0, 4, "2 4 2 4"},
		{"", "10", 4, 0, 4, "4 4 0 4"},
		{"", "", 4, 0, 0, "0 4 0 0"},
	} {
		act, err := disruption.Plan(disruption.Snapshot{
			Budget: budget(c.least, c.most), Pods: pods(c.ready, c.others), Scale: c.scale, Now: controllertest.Start,
		})
		if err != nil {
			t.Fatal(err)
		}
		s := act.Status
		got := fmt.Sprint(s.DisruptionsAllowed, s.CurrentHealthy, s.DesiredHealthy, s.ExpectedPods)
		if got != c.want || s.ObservedGeneration != 3 || len(s.Conditions) != 1 || (s.Conditions[0].Status == "True") != (s.DisruptionsAllowed > 0) {
			t.Errorf("at least %q, at most %q: %s, %+v; want %s", c.least, c.most, got, s.Conditions, c.want)
		}
	}
}

// TestEvictedPodsCountAsGone has three ready pods: one that was just evicted, one that was evicted and has
// stayed, and one that is on its way out.
func TestEvictedPodsCountAsGone(t *testing.T) {
	b := budget("1", "")
	b.Status.DisruptedPods = map[string]metav1.Time{
		"p0": metav1.NewTime(controllertest.Start.Add(-30 * time.Second)),
		"p1": metav1.NewTime(controllertest.Start.Add(-3 * time.Minute)),
		"p9": metav1.NewTime(controllertest.Start),
	}
	list := pods(3, 0)
	list[2].DeletionTimestamp = ptr.To(metav1.NewTime(controllertest.Start))
	act, err := disruption.Plan(disruption.Snapshot{Budget: b, Pods: list, Now: controllertest.Start})
	if err != nil {
		t.Fatal(err)
	}
	if act.Status.CurrentHealthy != 1 || act.Wait != 90*time.Second || len(act.Overdue) != 1 || act.Overdue[0].Name != "p1" {
		t.Errorf("%d healthy, waits %v, overdue %v; want 1, 90s and p1", act.Status.CurrentHealthy, act.Wait, act.Overdue)
	}
	if diff := cmp.Diff(map[string]metav1.Time{"p0": b.Status.DisruptedPods["p0"]}, act.Status.DisruptedPods); diff != "" {
		t.Errorf("disrupted (-want +got):\n%s", diff)
	}
}

// TestScaleIsTheDeployments has two sets of one deployment, which wants six pods.
func TestScaleIsTheDeployments(t *testing.T) {
	d := &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "d", UID: "d"},
		Spec:       appsv1.DeploymentSpec{Replicas: ptr.To[int32](6)},
	}
	objects := []client.Object{d, budget("", "50%")}
	list := pods(5, 0)
	for i, name := range []string{"old", "new"} {
		rs := &appsv1.ReplicaSet{
			ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID(name), OwnerReferences: []metav1.OwnerReference{
				*metav1.NewControllerRef(d, appsv1.SchemeGroupVersion.WithKind("Deployment")),
			}},
			Spec: appsv1.ReplicaSetSpec{Replicas: ptr.To[int32](100)},
		}
		for _, pod := range list[2*i : 2*i+2] { // the last pod is nobody's
			pod.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(rs, appsv1.SchemeGroupVersion.WithKind("ReplicaSet"))}
			objects = append(objects, pod)
		}
		objects = append(objects, rs)
	}
	c := controllertest.NewClient(t, controllertest.NewClock(), nil, append(objects, list[4])...)
	r := disruption.NewReconciler(c, controllertest.NewClock(), events.NewFakeRecorder(10))
	pass := func() (policyv1.PodDisruptionBudgetStatus, error) {
		_, err := r.Reconcile(t.Context(), reconcile.Request{NamespacedName: client.ObjectKey{Namespace: "ns", Name: "b"}})
		b := budget("", "")
		if err := c.Get(t.Context(), client.ObjectKeyFromObject(b), b); err != nil {
			t.Fatal(err)
		}
		return b.Status, err
	}
	s, err := pass()
	if err != nil || s.ExpectedPods != 6 || s.DesiredHealthy != 3 || s.DisruptionsAllowed != 2 {
		t.Errorf("error %v, %+v; want six pods, three of them healthy, two to be disrupted", err, s)
	}
	c.Writes()
	if _, err := pass(); err != nil || len(c.Writes()) > 0 {
		t.Errorf("error %v, or what is right was written again", err)
	}
	if err := c.Delete(t.Context(), d); err != nil {
		t.Fatal(err)
	}
	s, err = pass()
	if err == nil || s.DisruptionsAllowed != 0 || s.Conditions[0].Reason != policyv1.SyncFailedReason {
		t.Errorf("without the deployment: error %v, %+v; want that nothing is allowed, and why", err, s)
	}
}
