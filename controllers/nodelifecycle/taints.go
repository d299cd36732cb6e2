package nodelifecycle

import (
	"cmp"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// implied are the taints that a condition's status puts on a node.
var implied = map[corev1.NodeConditionType]map[corev1.ConditionStatus]string{
	corev1.NodeReady: {
		corev1.ConditionFalse:   corev1.TaintNodeNotReady,
		corev1.ConditionUnknown: corev1.TaintNodeUnreachable,
	},
	corev1.NodeMemoryPressure:     {corev1.ConditionTrue: corev1.TaintNodeMemoryPressure},
	corev1.NodeDiskPressure:       {corev1.ConditionTrue: corev1.TaintNodeDiskPressure},
	corev1.NodePIDPressure:        {corev1.ConditionTrue: corev1.TaintNodePIDPressure},
	corev1.NodeNetworkUnavailable: {corev1.ConditionTrue: corev1.TaintNodeNetworkUnavailable},
}

// taintsFor returns the taints the node should have: those of others as they are, those that the
// conditions imply, and no other of these keys. What keeps pods from being placed and what evicts
// those that are there change together, so that no pod is bounced between the two. A NoExecute
// taint that does not say since when gets the time, for tolerations are counted from it.
func taintsFor(node *corev1.Node, conditions []corev1.NodeCondition, now time.Time) []corev1.Taint {
	wanted, owned := impliedTaints(node, conditions)
	var taints []corev1.Taint
	for _, taint := range node.Spec.Taints {
		i := slices.IndexFunc(wanted, func(w corev1.Taint) bool { return w.MatchTaint(&taint) })
		if i < 0 && owned(taint) {
			continue
		}
		if i >= 0 {
			wanted = slices.Delete(wanted, i, i+1)
		}
		taints = append(taints, taint)
	}
	taints = append(taints, wanted...)
	for i := range taints {
		if taints[i].Effect == corev1.TaintEffectNoExecute && taints[i].TimeAdded == nil {
			at := metav1.NewTime(now)
			taints[i].TimeAdded = &at
		}
	}
	return taints
}

// impliedTaints returns the taints that the node's state implies, and which taints are implied by
// nothing else, so that they go with the state. While a node has not said whether it is ready,
// taints that say so for it stay.
func impliedTaints(node *corev1.Node,
	conditions []corev1.NodeCondition,
) (wanted []corev1.Taint, owned func(corev1.Taint) bool) {
	keys := map[string]bool{corev1.TaintNodeUnschedulable: true}
	if node.Spec.Unschedulable {
		wanted = append(wanted, corev1.Taint{Key: corev1.TaintNodeUnschedulable,
			Effect: corev1.TaintEffectNoSchedule})
	}
	for kind, byStatus := range implied {
		i := slices.IndexFunc(conditions, func(c corev1.NodeCondition) bool { return c.Type == kind })
		if i < 0 && kind == corev1.NodeReady {
			continue
		}
		for _, key := range byStatus {
			keys[key] = true
		}
		if i < 0 || byStatus[conditions[i].Status] == "" {
			continue
		}
		key := byStatus[conditions[i].Status]
		wanted = append(wanted, corev1.Taint{Key: key, Effect: corev1.TaintEffectNoSchedule})
		if kind == corev1.NodeReady {
			wanted = append(wanted, corev1.Taint{Key: key, Effect: corev1.TaintEffectNoExecute})
		}
	}
	slices.SortFunc(wanted, compareTaint)
	return wanted, func(t corev1.Taint) bool {
		evicts := t.Key == corev1.TaintNodeNotReady || t.Key == corev1.TaintNodeUnreachable
		return keys[t.Key] && (t.Effect == corev1.TaintEffectNoSchedule || evicts &&
			t.Effect == corev1.TaintEffectNoExecute)
	}
}

func compareTaint(a, b corev1.Taint) int {
	return cmp.Or(strings.Compare(a.Key, b.Key), strings.Compare(string(a.Effect), string(b.Effect)))
}

func sameTaint(a, b corev1.Taint) bool {
	return a.MatchTaint(&b) && a.Value == b.Value && a.TimeAdded.Equal(b.TimeAdded)
}
