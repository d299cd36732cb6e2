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
