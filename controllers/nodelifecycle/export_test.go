package nodelifecycle

import "sigs.k8s.io/controller-runtime/pkg/handler"

type Heartbeat = heartbeat

var (
	PlanNode          = planNode
	PlanPod           = planPod
	PlanEnded         = planEnded
	NewNodeReconciler = newNodeReconciler
	NewPodReconciler  = newPodReconciler
	NodeName          = nodeName
)

const PodsByNode = podsByNode

// WithDefaults fills what is zero.
func (o Options) WithDefaults() Options { return o.withDefaults() }

// OnLease is what the reconciler's controller makes of the events of leases.
func (r *NodeReconciler) OnLease() handler.Funcs { return r.onLease() }
