package replicaset

type (
	Snapshot = snapshot
	Actions  = actions
)

var (
	Plan          = plan
	Status        = status
	NewReconciler = newReconciler
)

const (
	PodsByController = podsByController
	SetsByController = setsByController
)
