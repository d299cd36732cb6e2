package serviceaccount

type (
	Snapshot = snapshot
	Actions  = actions
)

var (
	Plan          = plan
	NewReconciler = newReconciler
)
