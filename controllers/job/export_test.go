package job

type (
	Snapshot = snapshot
	Actions  = actions
	Spans    = spans
)

var (
	Plan          = plan
	NewReconciler = newReconciler
)

func (s *spans) Add(index int)     { s.add(index) }
func (s spans) Has(index int) bool { return s.has(index) }
func (s spans) Size() int          { return s.size() }
