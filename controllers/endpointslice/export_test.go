package endpointslice

import "github.com/setpoint-dev/setpoint/controllers/backends"

type (
	Snapshot = snapshot
	Actions  = backends.SliceChanges
)

var (
	Plan          = plan
	NewReconciler = newReconciler
)
