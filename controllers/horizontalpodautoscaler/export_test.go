package horizontalpodautoscaler

import "time"

type (
	Snapshot = snapshot
	History  = history
	Sample   = sample
)

var (
	Plan          = plan
	NewReconciler = newReconciler
)

// Used is a sample of so many thousandths.
func Used(value int64, at time.Time) Sample {
	return sample{value: value, at: at, window: 30 * time.Second}
}

// Scaled takes down that replicas went from one number to another.
func (h *History) Scaled(from, to int32, at time.Time) { h.scaled(from, to, at) }
