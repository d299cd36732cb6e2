package disruption

type Snapshot = snapshot

var (
	Plan              = plan
	NewReconciler     = newReconciler
	NewMarkReconciler = newMarkReconciler
)
