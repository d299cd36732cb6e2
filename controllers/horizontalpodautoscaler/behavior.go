package horizontalpodautoscaler

import (
	"math"
	"time"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	"k8s.io/utils/ptr"
)

const (
	// downWindow is for how long the highest recommendation holds, where nothing is said of that.
	downWindow = 300 * time.Second
	// toleranceDefault is by how much a target may be missed, where nothing is said of that.
	toleranceDefault = 0.1
	// Without a behavior, replicas are doubled at most, or become four.
	upFactor, upLeast = 2, 4
)

// moment is a number of replicas at a time.
type moment struct {
	at time.Time
	n  int32
}

// history is what is remembered of one autoscaler, oldest first: what was recommended, and by how much it
// was scaled up and down. It is lost with the process, and begins anew with what is there.
type history struct{ recommended, up, down []moment }

// rules are how an autoscaler may scale; nil policies are the limits of one without a behavior.
type rules struct {
	up, down             *autoscalingv2.HPAScalingRules
	upWindow, downWindow time.Duration
}

func rulesOf(hpa *autoscalingv2.HorizontalPodAutoscaler) rules {
	r := rules{downWindow: downWindow}
	b := hpa.Spec.Behavior
	if b == nil {
		return r
	}
	window := func(rules *autoscalingv2.HPAScalingRules, otherwise time.Duration) time.Duration {
		if rules == nil || rules.StabilizationWindowSeconds == nil {
			return otherwise
		}
		return time.Duration(*rules.StabilizationWindowSeconds) * time.Second
	}
	return rules{b.ScaleUp, b.ScaleDown, window(b.ScaleUp, 0), window(b.ScaleDown, downWindow)}
}

// tolerances are how far from their targets readings may be.
func (r rules) tolerances() tolerance {
	of := func(rules *autoscalingv2.HPAScalingRules) float64 {
		if rules == nil || rules.Tolerance == nil {
			return toleranceDefault
		}
		return rules.Tolerance.AsApproximateFloat64()
	}
	return tolerance{up: of(r.up), down: of(r.down)}
}

// stabilize returns what may be done of what is desired: no more than the least that was recommended
// within the window for more, and no less than the most within that for fewer.
func (h *history) stabilize(r rules, current, desired int32, now time.Time) int32 {
	most, least := desired, desired
	for _, m := range h.recommended {
		if m.at.After(now.Add(-r.upWindow)) {
			least = min(least, m.n)
		}
		if m.at.After(now.Add(-r.downWindow)) {
			most = max(most, m.n)
		}
	}
	h.recommended = append(since(h.recommended, now.Add(-max(r.upWindow, r.downWindow))), moment{now, desired})
	return min(max(current, least), most)
}

// since leaves out what was before a time.
func since(moments []moment, cutoff time.Time) []moment {
	for len(moments) > 0 && !moments[0].at.After(cutoff) {
		moments = moments[1:]
	}
	return moments
}

// scaled takes down that an autoscaler was scaled. A policy looks back half an hour at most.
func (h *history) scaled(from, to int32, now time.Time) {
	const periodMax = 30 * time.Minute
	h.up, h.down = since(h.up, now.Add(-periodMax)), since(h.down, now.Add(-periodMax))
	if to > from {
		h.up = append(h.up, moment{now, to - from})
	} else {
		h.down = append(h.down, moment{now, from - to})
	}
}

func sum(moments []moment) (total int32) {
	for _, m := range moments {
		total += m.n
	}
	return total
}

// start is how many replicas there were when the period of a policy began.
func (h *history) start(current int32, p autoscalingv2.HPAScalingPolicy, now time.Time) int32 {
	cutoff := now.Add(-time.Duration(p.PeriodSeconds) * time.Second)
	return current - sum(since(h.up, cutoff)) + sum(since(h.down, cutoff))
}

// upLimit is the most replicas that there may be now.
func (h *history) upLimit(r rules, current int32, now time.Time) int32 {
	if r.up == nil {
		return max(upFactor*current, upLeast)
	}
	return h.limit(r.up, 1, current, now, func(start int32, p autoscalingv2.HPAScalingPolicy) int32 {
		if p.Type == autoscalingv2.PercentScalingPolicy {
			return int32(math.Ceil(float64(start) * (1 + float64(p.Value)/100)))
		}
		return start + p.Value
	})
}

// downLimit is the fewest replicas that there may be now.
func (h *history) downLimit(r rules, current int32, now time.Time) int32 {
	if r.down == nil {
		return 0
	}
	return h.limit(r.down, -1, current, now, func(start int32, p autoscalingv2.HPAScalingPolicy) int32 {
		if p.Type == autoscalingv2.PercentScalingPolicy {
			return int32(float64(start) * (1 - float64(p.Value)/100))
		}
		return start - p.Value
	})
}

// limit is what the policies of one direction, 1 for up and -1 for down, allow: of several the one that
// goes farthest, or least far.
func (h *history) limit(s *autoscalingv2.HPAScalingRules, direction, current int32, now time.Time,
	allow func(start int32, p autoscalingv2.HPAScalingPolicy) int32,
) int32 {
	choice := ptr.Deref(s.SelectPolicy, autoscalingv2.MaxChangePolicySelect)
	if choice == autoscalingv2.DisabledPolicySelect || len(s.Policies) == 0 {
		return current
	}
	least := choice == autoscalingv2.MinChangePolicySelect
	var limit int32
	for i, p := range s.Policies {
		to := allow(h.start(current, p, now), p)
		if farther := to*direction > limit*direction; i == 0 || farther != least {
			limit = to
		}
	}
	return limit
}
