// Package nodelifecycle tells from leases which nodes are alive, taints those that are not, and
// ends pods that cannot run where they are.
//
// Three controllers share the folder. The first watches one node: an agent that has not renewed its
// lease for a grace period is silent, and what the node's conditions say becomes unknown; taints
// follow the conditions, all in one write. Pods of a node that no longer exists are ended after a
// quarantine and a live check. The second watches one pod: it is evicted when a NoExecute taint of
// its node is not, or no longer, tolerated. The third bounds how many ended pods are kept.
//
// Deadlines are counted from what is stored (a taint's timeAdded) and not from when the controller
// started; that an agent is silent is counted from what this process has seen, so that neither a
// skewed clock nor a stopped control plane makes a living node look dead.
package nodelifecycle

import (
	"slices"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// heartbeat is the last sign of life of a node's agent, as seen by this process.
type heartbeat struct {
	UID     types.UID
	Renewed time.Time // as the lease says
	Posted  time.Time // as the Ready condition says
	At      time.Time // by the clock of this process
	Awaited bool      // the next is awaited: a pass comes when the grace period of one is over
}

// observe returns the heartbeat after a look at the node and its lease, which may be nil. Another
// node of the same name starts anew.
func (h heartbeat) observe(node *corev1.Node, lease *coordinationv1.Lease, now time.Time) heartbeat {
	next := heartbeat{UID: node.UID, At: now}
	if lease != nil && lease.Spec.RenewTime != nil {
		next.Renewed = lease.Spec.RenewTime.Time
	}
	if ready := condition(node, corev1.NodeReady); ready != nil {
		next.Posted = ready.LastHeartbeatTime.Time
	}
	if h.UID == node.UID && !next.Renewed.After(h.Renewed) && next.Posted.Equal(h.Posted) {
		return h
	}
	return next
}

// renewed returns the heartbeat after a lease was seen that says when it was renewed.
func (h heartbeat) renewed(at, now time.Time) heartbeat {
	if at.After(h.Renewed) {
		h.Renewed, h.At = at, now
	}
	return h
}

// grace is how long after a heartbeat a node counts as silent.
type grace struct {
	Running time.Duration // once its agent has posted a status
	Startup time.Duration // before
}

// left returns how long the node has until it is silent; it is not positive if it is.
func (g grace) left(h heartbeat, node *corev1.Node, now time.Time) time.Duration {
	limit := g.Running
	if condition(node, corev1.NodeReady) == nil {
		limit = g.Startup
	}
	return h.At.Add(limit).Sub(now)
}

// nodeActions is what a pass writes; nil is nothing.
type nodeActions struct {
	Conditions []corev1.NodeCondition // all of them
	Taints     *[]corev1.Taint        // all of them
	// Lost says that the node was ready, or had said that it is not, and is now unknown.
	Lost bool
}

// planNode decides one pass over a node.
func planNode(node *corev1.Node, silent bool, now time.Time) nodeActions {
	var act nodeActions
	conditions := node.Status.Conditions
	if silent {
		next, changed := unknown(node, now)
		if changed {
			before := condition(node, corev1.NodeReady)
			act.Lost = before != nil && before.Status != corev1.ConditionUnknown
			act.Conditions = next
		}
		conditions = next
	}
	if taints := taintsFor(node, conditions, now); !slices.EqualFunc(taints, node.Spec.Taints,
		sameTaint) {
		act.Taints = &taints
	}
	return act
}

// reported are the conditions that only the agent can know.
var reported = []corev1.NodeConditionType{
	corev1.NodeReady, corev1.NodeMemoryPressure, corev1.NodeDiskPressure, corev1.NodePIDPressure,
}

// unknown returns the conditions of a node whose agent is silent.
func unknown(node *corev1.Node, now time.Time) (_ []corev1.NodeCondition, changed bool) {
	next := slices.Clone(node.Status.Conditions)
	for _, kind := range reported {
		i := slices.IndexFunc(next, func(c corev1.NodeCondition) bool { return c.Type == kind })
		switch {
		case i < 0:
			next = append(next, corev1.NodeCondition{
				Type: kind, Status: corev1.ConditionUnknown, Reason: "NodeStatusNeverUpdated",
				Message:           "The node's agent never posted a status.",
				LastHeartbeatTime: node.CreationTimestamp, LastTransitionTime: metav1.NewTime(now),
			})
			changed = true
		case next[i].Status != corev1.ConditionUnknown:
			next[i].Status = corev1.ConditionUnknown
			next[i].Reason = "NodeStatusUnknown"
			next[i].Message = "The node's agent stopped posting its status."
			next[i].LastTransitionTime = metav1.NewTime(now)
			changed = true
		}
	}
	return next, changed
}

func condition(node *corev1.Node, kind corev1.NodeConditionType) *corev1.NodeCondition {
	for i := range node.Status.Conditions {
		if node.Status.Conditions[i].Type == kind {
			return &node.Status.Conditions[i]
		}
	}
	return nil
}

func nodeReady(node *corev1.Node) bool {
	ready := condition(node, corev1.NodeReady)
	return ready != nil && ready.Status == corev1.ConditionTrue
}
