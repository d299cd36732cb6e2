package cronjob

type (
	Snapshot = snapshot
	Actions  = actions
)

var (
	Plan          = plan
	NewReconciler = newReconciler
	ScheduleOf    = scheduleOf
)
