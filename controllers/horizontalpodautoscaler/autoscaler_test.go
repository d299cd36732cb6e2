package horizontalpodautoscaler_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/setpoint-dev/setpoint/controllers/controllertest"
	autoscaler "github.com/setpoint-dev/setpoint/controllers/horizontalpodautoscaler"
)

var now = controllertest.Start

// pod asks for one processor, has run for an hour, and is ready if it says "ready".
func pod(name, state string) *corev1.Pod {
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Resources: corev1.ResourceRequirements{
			Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1"), corev1.ResourceMemory: resource.MustParse("100M")},
		}}}},
		Status: corev1.PodStatus{
			Phase: corev1.PodRunning, StartTime: ptr.To(metav1.NewTime(now.Add(-time.Hour))),
			Conditions: []corev1.PodCondition{{
				Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(now.Add(-50 * time.Minute)),
			}},
		},
	}
	switch state {
	case "pending":
		p.Status.Phase = corev1.PodPending
	case "going":
		p.DeletionTimestamp = ptr.To(metav1.NewTime(now))
	case "new":
		p.Status.StartTime = ptr.To(metav1.NewTime(now.Add(-time.Minute)))
		p.Status.Conditions[0].Status = corev1.ConditionFalse
	}
	return p
}

func cpu(percent int32) []autoscalingv2.MetricSpec {
	return []autoscalingv2.MetricSpec{{Type: autoscalingv2.ResourceMetricSourceType, Resource: &autoscalingv2.ResourceMetricSource{
		Name: corev1.ResourceCPU, Target: autoscalingv2.MetricTarget{Type: autoscalingv2.UtilizationMetricType, AverageUtilization: &percent},
	}}}
}

// world is an autoscaler of 1 to 20 replicas that wants half of a processor used, and what it sees.
// Pods are written as "ready 700": what they use, in thousandths of a processor; "-" is not known.
func world(replicas int32, pods ...string) autoscaler.Snapshot {
	s := autoscaler.Snapshot{
		HPA: &autoscalingv2.HorizontalPodAutoscaler{Spec: autoscalingv2.HorizontalPodAutoscalerSpec{
			MinReplicas: ptr.To[int32](1), MaxReplicas: 20, Metrics: cpu(50),
		}},
		Scale: &autoscalingv1.Scale{
			Spec:   autoscalingv1.ScaleSpec{Replicas: replicas},
			Status: autoscalingv1.ScaleStatus{Replicas: replicas, Selector: "app=web"},
		},
		History: &autoscaler.History{}, Now: now,
	}
	samples := map[string]autoscaler.Sample{}
	for i, text := range pods {
		state, used, _ := strings.Cut(text, " ")
		name := fmt.Sprint("p", i)
		s.Pods = append(s.Pods, pod(name, state))
		var n int64
		if _, err := fmt.Sscan(used, &n); err == nil {
			samples[name] = autoscaler.Used(n, now)
		}
	}
	s.Samples = func(corev1.ResourceName, string) (map[string]autoscaler.Sample, error) { return samples, nil }
	return s
}

func condition(s autoscalingv2.HorizontalPodAutoscalerStatus, kind autoscalingv2.HorizontalPodAutoscalerConditionType) string {
	for _, c := range s.Conditions {
		if c.Type == kind {
			return fmt.Sprint(c.Status, " ", c.Reason)
		}
	}
	return ""
}

// later forgets what was recommended, so that a scaling down is not held back.
func later(s autoscaler.Snapshot) autoscaler.Snapshot {
	autoscaler.Plan(s)
	s.Now = now.Add(6 * time.Minute)
	return s
}

func TestReplicasFollowUse(t *testing.T) {
	for name, c := range map[string]struct {
		replicas int32
		pods     []string
		want     int32
	}{
		"as it should be":                   {2, []string{"ready 500", "ready 500"}, 2},
		"within a tenth":                    {2, []string{"ready 540", "ready 550"}, 2},
		"more":                              {2, []string{"ready 900", "ready 800"}, 4},
		"less":                              {4, []string{"ready 100", "ready 100", "ready 100", "ready 100"}, 1},
		"unknown ones are idle for more":    {3, []string{"ready 900", "ready 900", "ready -"}, 4},
		"unknown ones are busy for less":    {3, []string{"ready 100", "ready 100", "ready -"}, 3},
		"an unknown one turns nothing":      {2, []string{"ready 600", "ready -"}, 2},
		"pending ones count as idle":        {3, []string{"ready 900", "ready 900", "pending -"}, 4},
		"what starts up does not count":     {3, []string{"ready 500", "ready 500", "new 1000"}, 3},
		"those that go do not count":        {2, []string{"ready 900", "ready 900", "going 10"}, 4},
		"no more than twice as many":        {3, []string{"ready 5000", "ready 5000", "ready 5000"}, 6},
		"or four":                           {1, []string{"ready 9000"}, 4},
		"but never more than the most":      {15, strings.Split(strings.Repeat("ready 2000,", 15), ",")[:15], 20},
		"no pods at all":                    {3, nil, 3},
		"none that is measured":             {1, []string{"ready -"}, 1},
		"above what may be":                 {30, nil, 20},
		"none, which turns the scaling off": {0, nil, 0},
	} {
		act := autoscaler.Plan(later(world(c.replicas, c.pods...)))
		if act.Replicas != c.want || act.Status.DesiredReplicas != c.want {
			t.Errorf("%s: %d replicas, want %d; %+v", name, act.Replicas, c.want, act.Status.Conditions)
		}
	}
}

func TestAmountAsTarget(t *testing.T) {
	s := world(2, "ready 900", "ready 700")
	s.HPA.Spec.Metrics[0].Resource.Target = autoscalingv2.MetricTarget{AverageValue: ptr.To(resource.MustParse("200m"))}
	s.HPA.Spec.Behavior = nil
	act := autoscaler.Plan(s)
	got := act.Status.CurrentMetrics[0].Resource.Current
	if act.Replicas != 4 || got.AverageValue.MilliValue() != 800 || got.AverageUtilization != nil {
		t.Errorf("%d replicas, %+v; want 4 for now, and 800m", act.Replicas, got)
	}
	if got := condition(act.Status, autoscalingv2.ScalingLimited); got != "True ScaleUpLimit" {
		t.Errorf("limited: %s", got)
	}
}

// TestScalingDownWaits has the load go for a moment, and then for good.
func TestScalingDownWaits(t *testing.T) {
	s := world(4, "ready 500", "ready 500", "ready 500", "ready 500")
	autoscaler.Plan(s)
	idle := world(4, "ready 100", "ready 100", "ready 100", "ready 100")
	idle.History = s.History
	for _, c := range []struct {
		after time.Duration
		want  int32
		able  string
	}{
		{time.Minute, 4, "True ScaleDownStabilized"}, {299 * time.Second, 4, "True ScaleDownStabilized"},
		{301 * time.Second, 1, "True ReadyForNewScale"},
	} {
		idle.Now = now.Add(c.after)
		act := autoscaler.Plan(idle)
		if able := condition(act.Status, autoscalingv2.AbleToScale); act.Replicas != c.want || able != c.able {
			t.Errorf("after %v: %d replicas, %s; want %d, %s", c.after, act.Replicas, able, c.want, c.able)
		}
	}
}

func TestBehaviorLimitsTheRate(t *testing.T) {
	pods, percent := autoscalingv2.PodsScalingPolicy, autoscalingv2.PercentScalingPolicy
	policies := []autoscalingv2.HPAScalingPolicy{{Type: pods, Value: 2, PeriodSeconds: 60}, {Type: percent, Value: 50, PeriodSeconds: 60}}
	least, most, off := autoscalingv2.MinChangePolicySelect, autoscalingv2.MaxChangePolicySelect, autoscalingv2.DisabledPolicySelect
	busy, idle := strings.Split(strings.Repeat("ready 5000,", 10), ",")[:10], strings.Split(strings.Repeat("ready 1,", 10), ",")[:10]
	for _, c := range []struct {
		pods   []string
		choice *autoscalingv2.ScalingPolicySelect
		before int32 // replicas half a minute ago
		want   int32
		limit  string
	}{
		{busy, &least, 10, 12, "True ScaleUpLimit"},
		{busy, &most, 10, 15, "True ScaleUpLimit"},
		{busy, &off, 10, 10, "True ScaleUpLimit"},
		{busy, &least, 8, 10, "True ScaleUpLimit"},
		{busy, &least, 9, 11, "True ScaleUpLimit"},
		{idle, &least, 10, 8, "True ScaleDownLimit"},
		{idle, &most, 10, 5, "True ScaleDownLimit"},
		{idle, &off, 10, 10, "True ScaleDownLimit"},
		{idle, &least, 13, 10, "True ScaleDownLimit"},
	} {
		s := world(10, c.pods...)
		rules := &autoscalingv2.HPAScalingRules{SelectPolicy: c.choice, Policies: policies, StabilizationWindowSeconds: ptr.To[int32](0)}
		s.HPA.Spec.Behavior = &autoscalingv2.HorizontalPodAutoscalerBehavior{ScaleUp: rules, ScaleDown: rules}
		if c.before != 10 {
			s.History.Scaled(c.before, 10, now.Add(-30*time.Second))
		}
		act := autoscaler.Plan(s)
		if limit := condition(act.Status, autoscalingv2.ScalingLimited); act.Replicas != c.want || limit != c.limit {
			t.Errorf("from %d by %s: %d replicas, %s; want %d, %s", c.before, *c.choice, act.Replicas, limit, c.want, c.limit)
		}
	}
}

// TestWhatCannotBeReadIsSaid has no source of metrics, a kind of metric that is not known, and both beside one
// that can be read.
func TestWhatCannotBeReadIsSaid(t *testing.T) {
	s := world(2, "ready 900", "ready 900")
	s.Samples = func(corev1.ResourceName, string) (map[string]autoscaler.Sample, error) {
		return nil, errors.New("nobody serves them")
	}
	act := autoscaler.Plan(s)
	c := act.Status.Conditions[1]
	want := "the HPA was unable to compute the replica count: failed to get cpu utilization: unable to get metrics for resource cpu: nobody serves them"
	if act.Replicas != 2 || c.Type != autoscalingv2.ScalingActive || c.Reason != "FailedGetResourceMetric" || c.Message != want {
		t.Errorf("%d replicas, %+v; want 2, and %q", act.Replicas, c, want)
	}
	for used, want := range map[string]int32{"ready 900": 4, "ready 100": 2} { // for more, one is enough; for fewer, not
		s := later(world(2, used, used))
		s.HPA.Spec.Metrics = append(cpu(50), autoscalingv2.MetricSpec{Type: autoscalingv2.PodsMetricSourceType})
		act := autoscaler.Plan(s)
		if act.Replicas != want {
			t.Errorf("with another kind of metric, %s: %d replicas, want %d", used, act.Replicas, want)
		}
		if active := condition(act.Status, autoscalingv2.ScalingActive); want == 2 && active != "False FailedGetPodsMetric" {
			t.Errorf("active: %s", active)
		}
	}
	s = world(2, "ready 900", "ready 900")
	s.Scale.Status.Selector = ""
	if active := condition(autoscaler.Plan(s).Status, autoscalingv2.ScalingActive); active != "False InvalidSelector" {
		t.Errorf("without a selector: %s", active)
	}
}
