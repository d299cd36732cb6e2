package horizontalpodautoscaler

import (
	"errors"
	"fmt"
	"math"
	"time"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"

	"github.com/setpoint-dev/setpoint/controllers/podfacts"
)

const (
	// A pod that has started may use much and do little: what it uses of the processor does not count
	// in this time while it is not ready, nor later if it has never been ready but for so long at first.
	// These are Kubernetes' values.
	startUp      = 5 * time.Minute
	firstReadyIn = 30 * time.Second
)

// sample is what a pod, or one of its containers, used of a resource, in thousandths.
type sample struct {
	value  int64
	at     time.Time
	window time.Duration // that it was measured in
}

// measured is what a metric is reckoned from.
type measured struct {
	Resource  corev1.ResourceName
	Container string // of which it is; "" for whole pods
	Target    autoscalingv2.MetricTarget
	Samples   map[string]sample // by pod
	Pods      []*corev1.Pod     // that the target selects
	Now       time.Time
}

// groups are pods by how they count.
type groups struct {
	counted          map[string]int64 // what each used
	unready, missing []string
}

// group sorts the pods. Those on their way out, and that have failed, are in no group.
func (m measured) group() groups {
	g := groups{counted: map[string]int64{}}
	for _, pod := range m.Pods {
		if pod.DeletionTimestamp != nil || pod.Status.Phase == corev1.PodFailed {
			continue
		}
		s, found := m.Samples[pod.Name]
		switch {
		case pod.Status.Phase == corev1.PodPending:
			g.unready = append(g.unready, pod.Name)
		case !found:
			g.missing = append(g.missing, pod.Name)
		case m.Resource == corev1.ResourceCPU && startsUp(pod, s, m.Now):
			g.unready = append(g.unready, pod.Name)
		default:
			g.counted[pod.Name] = s.value
		}
	}
	return g
}

// startsUp says whether what a pod uses of the processor is not yet what it will.
func startsUp(pod *corev1.Pod, s sample, now time.Time) bool {
	ready := podfacts.Condition(pod, corev1.PodReady)
	if ready == nil || pod.Status.StartTime == nil {
		return true
	}
	began, no := pod.Status.StartTime.Time, ready.Status == corev1.ConditionFalse
	if began.Add(startUp).After(now) {
		return no || s.at.Before(ready.LastTransitionTime.Add(s.window))
	}
	return no && began.Add(firstReadyIn).After(ready.LastTransitionTime.Time)
}

// reading is how much of a target is used.
type reading struct {
	ratio       float64
	average     int64  // of a pod, in thousandths
	utilization *int32 // in percent of what is requested, for a target of that kind
}

// read relates what pods use to the target; requests are nil for a target that is an amount.
func (m measured) read(used, requests map[string]int64) (reading, error) {
	var total, requested, n int64
	for name, value := range used {
		if request, ok := requests[name]; ok || requests == nil {
			total, requested, n = total+value, requested+request, n+1
		}
	}
	if n == 0 || requests != nil && requested == 0 {
		return reading{}, errors.New("no metrics returned matched known pods")
	}
	if requests == nil {
		return reading{ratio: float64(total/n) / float64(m.Target.AverageValue.MilliValue()), average: total / n}, nil
	}
	percent := int32(total * 100 / requested)
	return reading{float64(percent) / float64(*m.Target.AverageUtilization), total / n, &percent}, nil
}

// propose returns how many replicas the metric asks for, when there are so many now, and its reading.
// Pods that are not measured count against a change: as fully used when fewer would do, and as idle when
// more would be needed.
func (m measured) propose(current int32, t tolerance) (int32, reading, error) {
	if len(m.Pods) == 0 {
		return 0, reading{}, errors.New("no pods returned by selector while calculating replica count")
	}
	g := m.group()
	if len(g.counted) == 0 {
		return 0, reading{}, errors.New("did not receive metrics for targeted pods (pods might be unready)")
	}
	var requests map[string]int64
	if m.Target.AverageValue == nil {
		var err error
		if requests, err = m.requests(); err != nil {
			return 0, reading{}, err
		}
	}
	now, err := m.read(g.counted, requests)
	if err != nil {
		return 0, reading{}, err
	}
	upWithUnready := len(g.unready) > 0 && now.ratio > 1
	if !upWithUnready && len(g.missing) == 0 {
		if t.within(now.ratio) {
			return current, now, nil
		}
		return int32(math.Ceil(now.ratio * float64(len(g.counted)))), now, nil
	}
	m.assume(&g, now.ratio, requests, upWithUnready)
	then, err := m.read(g.counted, requests)
	if err != nil {
		return 0, now, err
	}
	next := int32(math.Ceil(then.ratio * float64(len(g.counted))))
	turns := now.ratio < 1 && then.ratio > 1 || now.ratio > 1 && then.ratio < 1
	against := then.ratio < 1 && next > current || then.ratio > 1 && next < current
	if turns || against || t.within(then.ratio) {
		next = current
	}
	return next, now, nil
}

// assume counts pods that are not measured.
func (m measured) assume(g *groups, ratio float64, requests map[string]int64, upWithUnready bool) {
	for _, name := range g.missing {
		switch {
		case ratio > 1:
			g.counted[name] = 0
		case ratio < 1 && requests == nil:
			g.counted[name] = m.Target.AverageValue.MilliValue()
		case ratio < 1:
			g.counted[name] = requests[name] * int64(max(100, *m.Target.AverageUtilization)) / 100
		}
	}
	if upWithUnready {
		for _, name := range g.unready {
			g.counted[name] = 0
		}
	}
}

// requests returns what each pod requests of the resource, in thousandths.
func (m measured) requests() (map[string]int64, error) {
	out := map[string]int64{}
	for _, pod := range m.Pods {
		if m.Container == "" && pod.Spec.Resources != nil {
			if q, ok := pod.Spec.Resources.Requests[m.Resource]; ok {
				out[pod.Name] = q.MilliValue()
				continue
			}
		}
		found := m.Container == ""
		for _, c := range countedContainers(pod) {
			if m.Container != "" && c.Name != m.Container {
				continue
			}
			q, ok := c.Resources.Requests[m.Resource]
			if !ok {
				return nil, fmt.Errorf("missing request for %s in container %s of Pod %s", m.Resource, c.Name, pod.Name)
			}
			found = true
			out[pod.Name] += q.MilliValue()
		}
		if !found {
			return nil, fmt.Errorf("container %s not present in pod %s", m.Container, pod.Name)
		}
	}
	return out, nil
}

// countedContainers are a pod's containers and those of its init containers that go on running.
func countedContainers(pod *corev1.Pod) []corev1.Container {
	all := pod.Spec.Containers
	for _, c := range pod.Spec.InitContainers {
		if ptr.Deref(c.RestartPolicy, "") == corev1.ContainerRestartPolicyAlways {
			all = append(all[:len(all):len(all)], c)
		}
	}
	return all
}

// tolerance is by how much a ratio may be off before anything is done.
type tolerance struct{ up, down float64 }

func (t tolerance) within(ratio float64) bool { return 1-t.down <= ratio && ratio <= 1+t.up }

// status is the reading as a status has it.
func (r reading) status(name corev1.ResourceName) autoscalingv2.MetricValueStatus {
	format := resource.DecimalSI
	if name == corev1.ResourceMemory {
		format = resource.BinarySI
	}
	return autoscalingv2.MetricValueStatus{AverageUtilization: r.utilization, AverageValue: resource.NewMilliQuantity(r.average, format)}
}
