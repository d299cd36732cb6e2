package setpoint

import "time"

// Cost is what the store takes.
type Cost struct {
	// HistoryBytes is the memory that the past takes, which Options.HistoryBytes bounds, and HistorySince is
	// about when the oldest of it happened, the zero time if nothing is kept.
	HistoryBytes int64
	HistorySince time.Time
	// DiskBytes is what state and past take of this machine's disk: 0 without a DataDir, or on etcd.
	DiskBytes int64
}

// Cost returns what the store takes now.
func (c *ControlPlane) Cost() (cost Cost) {
	if kept, ok := c.store.(interface {
		HistoryBytes() int64
		HistorySince() time.Time
	}); ok {
		cost.HistoryBytes, cost.HistorySince = kept.HistoryBytes(), kept.HistorySince()
	}
	if disk, ok := c.store.(interface{ DiskBytes() int64 }); ok {
		cost.DiskBytes = disk.DiskBytes()
	}
	return cost
}
