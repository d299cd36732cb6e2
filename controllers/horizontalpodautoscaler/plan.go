// Package horizontalpodautoscaler scales what has a scale by what its pods use.
//
// Every 15 seconds each autoscaler compares what the pods of its target use with what they should, and
// sets the number of replicas so that they would. What is used is asked from whoever serves
// metrics.k8s.io; while nobody does, nothing is scaled, and the condition ScalingActive says why. Metrics
// of resources, of pods and of single containers, are known; of metrics of other kinds it is said that
// they are not.
//
// The reckoning, its tolerances, windows and limits, and the words of conditions are Kubernetes'.
package horizontalpodautoscaler

import (
	"fmt"
	"slices"
	"time"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// snapshot is what a pass decides on. Of these, only the history is changed.
type snapshot struct {
	HPA     *autoscalingv2.HorizontalPodAutoscaler
	Scale   *autoscalingv1.Scale
	Pods    []*corev1.Pod // that the scale's selector matches
	Samples func(resource corev1.ResourceName, container string) (map[string]sample, error)
	History *history
	Now     time.Time
}

// actions is what a pass does.
type actions struct {
	Replicas int32 // what the target is scaled to, if that is not what it is
	Reason   string
	Status   autoscalingv2.HorizontalPodAutoscalerStatus
}

// plan decides one pass.
func plan(s snapshot) actions {
	current := s.Scale.Spec.Replicas
	act := actions{Replicas: current, Status: *s.HPA.Status.DeepCopy()}
	act.Status.CurrentReplicas, act.Status.CurrentMetrics = current, nil
	act.set(s, autoscalingv2.AbleToScale, true, "SucceededGetScale", "the HPA controller was able to get the target's current scale")
	if len(s.History.recommended) == 0 {
		s.History.recommended = []moment{{s.Now, current}}
	}
	least := ptr.Deref(s.HPA.Spec.MinReplicas, 1)
	switch {
	case current == 0:
		act.set(s, autoscalingv2.ScalingActive, false, "ScalingDisabled", "scaling is disabled since the replica count of the target is zero")
	case current > s.HPA.Spec.MaxReplicas:
		act.Replicas, act.Reason = s.HPA.Spec.MaxReplicas, "Current number of replicas above Spec.MaxReplicas"
	case current < least:
		act.Replicas, act.Reason = least, "Current number of replicas below Spec.MinReplicas"
	default:
		act.follow(s, least)
	}
	act.Status.DesiredReplicas = act.Replicas
	return act
}

// follow does what the metrics ask for, as far as it may.
func (a *actions) follow(s snapshot, least int32) {
	current := s.Scale.Spec.Replicas
	desired, why, ok := a.ask(s)
	if !ok {
		return
	}
	a.Reason = "All metrics below target"
	if desired > current {
		a.Reason = why + " above target"
	}
	r := rulesOf(s.HPA)
	stable := s.History.stabilize(r, current, desired, s.Now)
	switch {
	case stable == desired:
		a.set(s, autoscalingv2.AbleToScale, true, "ReadyForNewScale", "recommended size matches current size")
	case desired >= current:
		a.set(s, autoscalingv2.AbleToScale, true, "ScaleUpStabilized", "recent recommendations were lower than current one, "+
			"applying the lowest recent recommendation")
	default:
		a.set(s, autoscalingv2.AbleToScale, true, "ScaleDownStabilized", "recent recommendations were higher than current one, "+
			"applying the highest recent recommendation")
	}
	a.Replicas = a.bound(s, r, stable, least)
}

// bound keeps a number of replicas within what is allowed, and says whether that made a difference.
func (a *actions) bound(s snapshot, r rules, n, least int32) int32 {
	current, most := s.Scale.Spec.Replicas, s.HPA.Spec.MaxReplicas
	mostReason, mostWords := "TooManyReplicas", "the desired replica count is more than the maximum replica count"
	if limit := max(s.History.upLimit(r, current, s.Now), current); n > current && limit < most {
		most, mostReason, mostWords = limit, "ScaleUpLimit", "the desired replica count is increasing faster than the maximum scale rate"
	}
	leastReason, leastWords := "TooFewReplicas", "the desired replica count is less than the minimum replica count"
	if limit := min(s.History.downLimit(r, current, s.Now), current); n < current && limit > least {
		least, leastReason, leastWords = limit, "ScaleDownLimit", "the desired replica count is decreasing faster than the maximum scale rate"
	}
	switch {
	case n > most:
		a.set(s, autoscalingv2.ScalingLimited, true, mostReason, mostWords)
		return most
	case n < least:
		a.set(s, autoscalingv2.ScalingLimited, true, leastReason, leastWords)
		return least
	}
	a.set(s, autoscalingv2.ScalingLimited, false, "DesiredWithinRange", "the desired count is within the acceptable range")
	return n
}

// ask returns the most replicas that any metric asks for, and which does. If a metric cannot be read, the
// others may still ask for more, and not for fewer.
func (a *actions) ask(s snapshot) (desired int32, why string, ok bool) {
	if s.Scale.Status.Selector == "" {
		a.set(s, autoscalingv2.ScalingActive, false, "InvalidSelector", "the HPA target's scale is missing a selector")
		return 0, "", false
	}
	var failed *failure
	invalid := 0
	for _, spec := range s.HPA.Spec.Metrics {
		n, name, status, bad := s.metric(spec)
		if bad != nil {
			invalid++
			if failed == nil {
				failed = bad
			}
			continue
		}
		a.Status.CurrentMetrics = append(a.Status.CurrentMetrics, status)
		if why == "" || n > desired {
			desired, why = n, name
		}
	}
	if invalid == len(s.HPA.Spec.Metrics) || invalid > 0 && desired < s.Scale.Spec.Replicas {
		if failed == nil {
			failed = &failure{"InvalidMetricSourceType", "no metrics are given"}
		}
		a.set(s, autoscalingv2.ScalingActive, false, failed.reason, "the HPA was unable to compute the replica count: "+failed.message)
		return 0, "", false
	}
	a.set(s, autoscalingv2.ScalingActive, true, "ValidMetricFound", "the HPA was able to successfully calculate a replica count from "+why)
	return desired, why, true
}

// failure is why a metric cannot be read, as a condition says it.
type failure struct{ reason, message string }

// metric returns how many replicas a metric asks for, its name, and its status.
func (s snapshot) metric(spec autoscalingv2.MetricSpec) (int32, string, autoscalingv2.MetricStatus, *failure) {
	status := autoscalingv2.MetricStatus{Type: spec.Type}
	m := measured{Pods: s.Pods, Now: s.Now}
	reason, kind := "FailedGetResourceMetric", "resource"
	switch {
	case spec.Type == autoscalingv2.ResourceMetricSourceType && spec.Resource != nil:
		m.Resource, m.Target = spec.Resource.Name, spec.Resource.Target
	case spec.Type == autoscalingv2.ContainerResourceMetricSourceType && spec.ContainerResource != nil:
		m.Resource, m.Target, m.Container = spec.ContainerResource.Name, spec.ContainerResource.Target, spec.ContainerResource.Container
		reason, kind = "FailedGetContainerResourceMetric", "container resource"
	default:
		return 0, "", status, &failure{"FailedGet" + string(spec.Type) + "Metric", fmt.Sprintf("metrics of type %s are not served", spec.Type)}
	}
	what := "utilization"
	if m.Target.AverageValue != nil {
		what = "usage"
	} else if m.Target.AverageUtilization == nil {
		return 0, "", status, &failure{reason, "invalid resource metric source: neither an average utilization target " +
			"nor an average value (usage) target was set"}
	}
	samples, err := s.Samples(m.Resource, m.Container)
	if err != nil {
		err = fmt.Errorf("unable to get metrics for resource %s: %w", m.Resource, err)
	}
	var n int32
	var read reading
	if m.Samples = samples; err == nil {
		n, read, err = m.propose(s.Scale.Spec.Replicas, rulesOf(s.HPA).tolerances())
	}
	if err != nil {
		return 0, "", status, &failure{reason, fmt.Sprintf("failed to get %s %s: %v", m.Resource, what, err)}
	}
	name := fmt.Sprintf("%s %s", m.Resource, kind)
	if what == "utilization" {
		name += " utilization (percentage of request)"
	}
	if m.Container != "" {
		status.ContainerResource = &autoscalingv2.ContainerResourceMetricStatus{Name: m.Resource, Container: m.Container, Current: read.status(m.Resource)}
	} else {
		status.Resource = &autoscalingv2.ResourceMetricStatus{Name: m.Resource, Current: read.status(m.Resource)}
	}
	return n, name, status, nil
}

func (a *actions) set(s snapshot, kind autoscalingv2.HorizontalPodAutoscalerConditionType, is bool, reason, message string) {
	setCondition(&a.Status, kind, is, reason, message, s.Now)
}

// setCondition makes a condition what it should be. Its time is when it last changed its status.
func setCondition(status *autoscalingv2.HorizontalPodAutoscalerStatus, kind autoscalingv2.HorizontalPodAutoscalerConditionType,
	is bool, reason, message string, now time.Time,
) {
	next := autoscalingv2.HorizontalPodAutoscalerCondition{
		Type: kind, Status: corev1.ConditionFalse, LastTransitionTime: metav1.NewTime(now), Reason: reason, Message: message,
	}
	if is {
		next.Status = corev1.ConditionTrue
	}
	i := slices.IndexFunc(status.Conditions, func(c autoscalingv2.HorizontalPodAutoscalerCondition) bool { return c.Type == kind })
	if i < 0 {
		status.Conditions = append(status.Conditions, next)
		return
	}
	if status.Conditions[i].Status == next.Status {
		next.LastTransitionTime = status.Conditions[i].LastTransitionTime
	}
	status.Conditions[i] = next
}
