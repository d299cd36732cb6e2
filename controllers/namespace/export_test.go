package namespace

type (
	Report   = report
	Resource = resource
)

var (
	Conditions    = conditions
	Deletable     = deletable
	Stages        = stages
	LookAgain     = lookAgain
	NewReconciler = newReconciler
	NewReport     = newReport
)
