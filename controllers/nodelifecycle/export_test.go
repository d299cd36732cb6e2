package nodelifecycle

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
