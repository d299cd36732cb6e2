package main

import (
	"testing"
	"time"

	"github.com/setpoint-dev/setpoint"
)

func TestHistoryCost(t *testing.T) {
	for _, test := range []struct {
		age   time.Duration
		bytes int64
		now   setpoint.Cost
		want  string
	}{
		{9 * time.Minute, 128 << 20, setpoint.Cost{},
			"history: 9m, or 128 MB of memory if that is less; 100 writes a second of 1 KB take 119 MB of it; now 0 B"},
		{720 * time.Hour, 4 << 30, setpoint.Cost{HistoryBytes: 3 << 20, DiskBytes: 48 << 20},
			"history: 720h, or 4.0 GB of memory if that is less; 100 writes a second of 1 KB fill that in 5h10m41s, " +
				"and would need 556.2 GB for 720h; now 3 MB, and 48 MB of the disk for all there is"},
	} {
		if got := historyCost(test.age, test.bytes, test.now); got != test.want {
			t.Errorf("got  %s\nwant %s", got, test.want)
		}
	}
}
