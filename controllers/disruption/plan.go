// Package disruption keeps the status of each PodDisruptionBudget: how many of its pods are healthy, how
// many have to be, and so how many may be evicted. What an eviction takes from that is the API server's
// business; see package budget. It also takes back marks of disruptions that did not come.
//
// While a budget cannot be counted it allows nothing.
package disruption

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/setpoint-dev/setpoint/controllers/podfacts"
	"github.com/setpoint-dev/setpoint/kinds/budget"
)

// snapshot is what a pass decides on.
type snapshot struct {
	Budget *policyv1.PodDisruptionBudget
	Pods   []*corev1.Pod // that the budget covers
	// Scale is how many pods the controllers of these pods want together, if needsScale.
	Scale int32
	Now   time.Time
}

// actions is what a pass does.
type actions struct {
	Status policyv1.PodDisruptionBudgetStatus
	// Overdue are pods that were evicted and are still there.
	Overdue []*corev1.Pod
	// Wait is how long until the first evicted pod is overdue; zero means never.
	Wait time.Duration
}

// needsScale says whether a budget is reckoned from how many pods there should be, and not only from
// those that there are.
func needsScale(b *policyv1.PodDisruptionBudget) bool {
	return b.Spec.MaxUnavailable != nil || b.Spec.MinAvailable != nil && b.Spec.MinAvailable.Type == intstr.String
}

// plan counts. Possible errors: a percentage that cannot be read.
func plan(s snapshot) (actions, error) {
	expected, desired, err := s.expected()
	if err != nil {
		return actions{}, err
	}
	act := actions{Status: policyv1.PodDisruptionBudgetStatus{
		ObservedGeneration: s.Budget.Generation,
		DesiredHealthy:     desired,
		ExpectedPods:       expected,
		Conditions:         append([]metav1.Condition(nil), s.Budget.Status.Conditions...),
	}}
	for _, pod := range s.Pods {
		if pod.DeletionTimestamp != nil {
			continue
		}
		if evicted, ok := s.Budget.Status.DisruptedPods[pod.Name]; ok {
			left := evicted.Add(budget.DeletionTimeout).Sub(s.Now)
			if left > 0 {
				act.disrupted(pod.Name, evicted, left)
				continue
			}
			act.Overdue = append(act.Overdue, pod)
		}
		if podfacts.Ready(pod) {
			act.Status.CurrentHealthy++
		}
	}
	// A budget that covers no pods yet allows nothing: it may have been counted before its first came.
	if expected > 0 {
		act.Status.DisruptionsAllowed = max(0, act.Status.CurrentHealthy-desired)
	}
	budget.SetCondition(&act.Status, s.Now)
	return act, nil
}

func (a *actions) disrupted(pod string, at metav1.Time, left time.Duration) {
	if a.Status.DisruptedPods == nil {
		a.Status.DisruptedPods = map[string]metav1.Time{}
	}
	a.Status.DisruptedPods[pod] = at
	a.Wait = podfacts.Sooner(a.Wait, left)
}

// expected returns how many pods there should be, and how many of them healthy.
func (s snapshot) expected() (pods, healthy int32, err error) {
	part := func(of *intstr.IntOrString) (int32, error) {
		n, err := intstr.GetScaledValueFromIntOrPercent(of, int(s.Scale), true)
		return int32(n), err
	}
	switch spec := &s.Budget.Spec; {
	case spec.MaxUnavailable != nil:
		n, err := part(spec.MaxUnavailable)
		return s.Scale, max(0, s.Scale-n), err
	case spec.MinAvailable == nil:
		return 0, 0, nil
	case spec.MinAvailable.Type == intstr.Int:
		return int32(len(s.Pods)), spec.MinAvailable.IntVal, nil
	default:
		n, err := part(spec.MinAvailable)
		return s.Scale, n, err
	}
}

// failed returns the status of a budget that cannot be counted.
func failed(b *policyv1.PodDisruptionBudget, why error, now time.Time) policyv1.PodDisruptionBudgetStatus {
	next := *b.Status.DeepCopy()
	next.DisruptionsAllowed = 0
	meta.SetStatusCondition(&next.Conditions, metav1.Condition{
		Type: policyv1.DisruptionAllowedCondition, Status: metav1.ConditionFalse,
		Reason: policyv1.SyncFailedReason, Message: why.Error(),
		ObservedGeneration: next.ObservedGeneration, LastTransitionTime: metav1.NewTime(now),
	})
	return next
}
