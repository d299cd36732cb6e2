// Package budget decides which evictions of pods a PodDisruptionBudget allows.
//
// The status of a budget says how many more pods may be disrupted. The disruption controller counts that
// anew whenever pods change; each eviction that is allowed takes one away, in the same commit that
// deletes the pod, and notes the pod, so that a controller which has not heard of the eviction yet does
// not count the pod as healthy. Everything here is a pure function.
package budget

import (
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/utils/ptr"
)

const (
	// DeletionTimeout is how long a pod that was evicted counts as gone though nothing is seen of its
	// end. It is Kubernetes' value.
	DeletionTimeout = 2 * time.Minute
	// disruptedMax bounds how many evictions may wait for the controller. It is Kubernetes' value.
	disruptedMax = 2000
	// retryAfterSeconds is when to ask again while the controller has not seen the newest budget.
	retryAfterSeconds = 10
)

// Covers says whether a budget is about pods with some labels. One without a selector is about none, and
// one whose selector is empty about all of its namespace.
func Covers(b *policyv1.PodDisruptionBudget, set labels.Set) bool {
	selector, err := metav1.LabelSelectorAsSelector(b.Spec.Selector)
	return err == nil && selector.Matches(set)
}

// Protects says whether the eviction of a pod takes anything from a budget: not if the pod has ended, has
// not begun or is on its way out.
func Protects(pod *corev1.Pod) bool {
	return pod.DeletionTimestamp == nil && pod.Status.Phase != corev1.PodPending &&
		pod.Status.Phase != corev1.PodSucceeded && pod.Status.Phase != corev1.PodFailed
}

// Spend takes the eviction of a pod out of a budget, in its status, and says whether that changed. An
// unready pod costs nothing if the budget lets such pods go always, or is met without it.
// Possible errors: 429 if no disruption is allowed, 403 if the status is not to be trusted. Either has a
// cause that names the budget.
func Spend(b *policyv1.PodDisruptionBudget, pod *corev1.Pod, now time.Time) (changed bool, err error) {
	s := &b.Status
	if !ready(pod) {
		always := ptr.Deref(b.Spec.UnhealthyPodEvictionPolicy, "") == policyv1.AlwaysAllow
		if always || s.CurrentHealthy >= s.DesiredHealthy && s.DesiredHealthy > 0 {
			return false, nil
		}
	}
	switch {
	case s.ObservedGeneration < b.Generation:
		return false, tooMany(retryAfterSeconds, "The disruption budget %s is still being processed by the server.", b.Name)
	case s.DisruptionsAllowed < 0:
		return false, forbidden(b.Name, "pdb disruptions allowed is negative", "pdb disruptions allowed is negative")
	case len(s.DisruptedPods) > disruptedMax:
		return false, forbidden(b.Name, "DisruptedPods map too big - too many evictions not confirmed by PDB controller",
			"too many pending evictions not confirmed by PDB controller")
	case s.DisruptionsAllowed == 0:
		return false, tooMany(0, "%s", why(b))
	}
	if s.DisruptionsAllowed--; s.DisruptionsAllowed == 0 {
		SetCondition(s, now)
	}
	if s.DisruptedPods == nil {
		s.DisruptedPods = map[string]metav1.Time{}
	}
	s.DisruptedPods[pod.Name] = metav1.NewTime(now)
	return true, nil
}

func ready(pod *corev1.Pod) bool {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

// why says why a budget allows no disruption.
func why(b *policyv1.PodDisruptionBudget) string {
	c := meta.FindStatusCondition(b.Status.Conditions, policyv1.DisruptionAllowedCondition)
	told := c != nil && c.Status == metav1.ConditionFalse && c.Message != ""
	switch {
	case told && c.Reason == policyv1.SyncFailedReason:
		return fmt.Sprintf("The disruption budget %s does not allow evicting pods currently because it failed sync: %s",
			b.Name, c.Message)
	case b.Status.CurrentHealthy <= b.Status.DesiredHealthy:
		return fmt.Sprintf("The disruption budget %s needs %d healthy pods and has %d currently",
			b.Name, b.Status.DesiredHealthy, b.Status.CurrentHealthy)
	case told:
		return fmt.Sprintf("The disruption budget %s does not allow evicting pods currently (%s): %s",
			b.Name, c.Reason, c.Message)
	}
	return fmt.Sprintf("The disruption budget %s does not allow evicting pods currently", b.Name)
}

func tooMany(retryAfterSeconds int, format string, args ...any) error {
	err := apierrors.NewTooManyRequests("Cannot evict pod as it would violate the pod's disruption budget.", retryAfterSeconds)
	addCause(err, fmt.Sprintf(format, args...))
	return err
}

func forbidden(name, message, cause string) error {
	err := apierrors.NewForbidden(policyv1.Resource("poddisruptionbudget"), name, errors.New(message))
	addCause(err, fmt.Sprintf("The disruption budget %s does not allow evicting pods currently: %s", name, cause))
	return err
}

func addCause(err *apierrors.StatusError, message string) {
	err.ErrStatus.Details.Causes = append(err.ErrStatus.Details.Causes,
		metav1.StatusCause{Type: policyv1.DisruptionBudgetCause, Message: message})
}

// SetCondition has the condition of a status say whether disruptions are allowed.
func SetCondition(s *policyv1.PodDisruptionBudgetStatus, now time.Time) {
	c := metav1.Condition{
		Type: policyv1.DisruptionAllowedCondition, Status: metav1.ConditionTrue, Reason: policyv1.SufficientPodsReason,
		ObservedGeneration: s.ObservedGeneration, LastTransitionTime: metav1.NewTime(now),
	}
	if s.DisruptionsAllowed <= 0 {
		c.Status, c.Reason = metav1.ConditionFalse, policyv1.InsufficientPodsReason
	}
	meta.SetStatusCondition(&s.Conditions, c)
}
