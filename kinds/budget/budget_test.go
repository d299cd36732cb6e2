package budget_test

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/utils/ptr"

	"github.com/setpoint-dev/setpoint/kinds/budget"
)

var now = time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)

func pod(ready corev1.ConditionStatus) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "p"},
		Status: corev1.PodStatus{
			Phase: corev1.PodRunning, Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: ready}},
		},
	}
}

func TestSpend(t *testing.T) {
	always, healthy := policyv1.AlwaysAllow, policyv1.IfHealthyBudget
	failed := []metav1.Condition{{
		Type: policyv1.DisruptionAllowedCondition, Status: metav1.ConditionFalse, Reason: policyv1.SyncFailedReason, Message: "lost",
	}}
	crowd := map[string]metav1.Time{}
	for i := range 2001 {
		crowd[string(rune(i))] = metav1.Time{}
	}
	for name, c := range map[string]struct {
		status policyv1.PodDisruptionBudgetStatus
		policy *policyv1.UnhealthyPodEvictionPolicyType
		ready  corev1.ConditionStatus
		spent  bool
		code   int32
		cause  string
	}{
		"allowed":           {policyv1.PodDisruptionBudgetStatus{DisruptionsAllowed: 2}, nil, "True", true, 0, ""},
		"none left":         {policyv1.PodDisruptionBudgetStatus{DesiredHealthy: 3, CurrentHealthy: 3}, nil, "True", false, 429, "The disruption budget b needs 3 healthy pods and has 3 currently"},
		"more than needed":  {policyv1.PodDisruptionBudgetStatus{DesiredHealthy: 3, CurrentHealthy: 4}, nil, "True", false, 429, "The disruption budget b does not allow evicting pods currently"},
		"not counted":       {policyv1.PodDisruptionBudgetStatus{Conditions: failed}, nil, "True", false, 429, "The disruption budget b does not allow evicting pods currently because it failed sync: lost"},
		"not seen":          {policyv1.PodDisruptionBudgetStatus{ObservedGeneration: -1, DisruptionsAllowed: 1}, nil, "True", false, 429, "The disruption budget b is still being processed by the server."},
		"too many wait":     {policyv1.PodDisruptionBudgetStatus{DisruptionsAllowed: 1, DisruptedPods: crowd}, nil, "True", false, 403, "The disruption budget b does not allow evicting pods currently: too many pending evictions not confirmed by PDB controller"},
		"negative":          {policyv1.PodDisruptionBudgetStatus{DisruptionsAllowed: -1}, nil, "True", false, 403, "The disruption budget b does not allow evicting pods currently: pdb disruptions allowed is negative"},
		"unready, met":      {policyv1.PodDisruptionBudgetStatus{DesiredHealthy: 1, CurrentHealthy: 1}, &healthy, "False", false, 0, ""},
		"unready, not met":  {policyv1.PodDisruptionBudgetStatus{DesiredHealthy: 2, CurrentHealthy: 1}, nil, "False", false, 429, "The disruption budget b needs 2 healthy pods and has 1 currently"},
		"unready, whatever": {policyv1.PodDisruptionBudgetStatus{DesiredHealthy: 2, CurrentHealthy: 1}, &always, "False", false, 0, ""},
		"ready, whatever":   {policyv1.PodDisruptionBudgetStatus{DesiredHealthy: 2, CurrentHealthy: 1}, &always, "True", false, 429, "The disruption budget b needs 2 healthy pods and has 1 currently"},
	} {
		b := &policyv1.PodDisruptionBudget{
			ObjectMeta: metav1.ObjectMeta{Name: "b"}, Spec: policyv1.PodDisruptionBudgetSpec{UnhealthyPodEvictionPolicy: c.policy},
			Status: c.status,
		}
		allowed := b.Status.DisruptionsAllowed
		spent, err := budget.Spend(b, pod(c.ready), now)
		var code int32
		cause := ""
		if status, ok := err.(apierrors.APIStatus); ok {
			code = status.Status().Code
			cause = status.Status().Details.Causes[0].Message
		}
		if spent != c.spent || code != c.code || cause != c.cause {
			t.Errorf("%s: spent %v, code %d, cause %q; want %v, %d, %q", name, spent, code, cause, c.spent, c.code, c.cause)
		}
		if left := b.Status.DisruptionsAllowed; spent && (left != allowed-1 || !b.Status.DisruptedPods["p"].Time.Equal(now)) {
			t.Errorf("%s: %d are left and %v noted", name, left, b.Status.DisruptedPods)
		}
	}
}

// TestLastOneIsSaid spends the last disruption.
func TestLastOneIsSaid(t *testing.T) {
	b := &policyv1.PodDisruptionBudget{Status: policyv1.PodDisruptionBudgetStatus{DisruptionsAllowed: 1}}
	if _, err := budget.Spend(b, pod("True"), now); err != nil {
		t.Fatal(err)
	}
	if c := b.Status.Conditions; len(c) != 1 || c[0].Status != metav1.ConditionFalse || c[0].Reason != "InsufficientPods" {
		t.Errorf("conditions: %+v, want that no disruption is allowed", c)
	}
}

func TestCovers(t *testing.T) {
	web := labels.Set{"app": "web"}
	for name, c := range map[string]struct {
		selector *metav1.LabelSelector
		want     bool
	}{
		"none": {nil, false}, "empty": {&metav1.LabelSelector{}, true},
		"matches": {&metav1.LabelSelector{MatchLabels: web}, true}, "other": {&metav1.LabelSelector{MatchLabels: labels.Set{"app": "db"}}, false},
	} {
		b := &policyv1.PodDisruptionBudget{Spec: policyv1.PodDisruptionBudgetSpec{Selector: c.selector}}
		if got := budget.Covers(b, web); got != c.want {
			t.Errorf("%s selector: covers %v, want %v", name, got, c.want)
		}
	}
}

func TestProtects(t *testing.T) {
	going := pod("True")
	going.DeletionTimestamp = ptr.To(metav1.NewTime(now))
	if budget.Protects(going) || !budget.Protects(pod("False")) {
		t.Error("want a pod that runs to be protected, and one on its way out not")
	}
	for _, phase := range []corev1.PodPhase{corev1.PodPending, corev1.PodSucceeded, corev1.PodFailed} {
		p := pod("True")
		if p.Status.Phase = phase; budget.Protects(p) {
			t.Errorf("a pod that is %s is protected", phase)
		}
	}
}
