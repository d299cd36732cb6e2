package workqueue

import (
	"math"
	"time"
)

// bucket is a token bucket that may be overdrawn: who finds it empty is told how long to wait, and
// waits in turn.
type bucket struct {
	interval time.Duration // that one token takes to grow
	slack    time.Duration // that a full bucket is ahead by
	full     time.Duration // when it will have caught up; may be in the past
}

func newBucket(rate float64, burst int) bucket {
	if rate <= 0 || math.IsInf(rate, 1) {
		return bucket{}
	}
	interval := time.Duration(float64(time.Second) / rate)
	return bucket{interval: interval, slack: interval * time.Duration(max(burst, 1)-1)}
}

// take takes a token and returns how long to wait for it.
func (b *bucket) take(now time.Duration) time.Duration {
	at := max(b.full, now)
	b.full = saturatingAdd(at, b.interval)
	return max(0, at-now-b.slack)
}

// histogram counts durations in buckets whose bounds are powers of ten from a microsecond to a
// thousand seconds. It is a few words of arithmetic, so that it can be kept under the queue's lock.
type histogram struct {
	count uint64
	sum   time.Duration
	tens  [10]uint64 // tens[i]: up to boundOf(i); what is longer is only in count
}

func boundOf(i int) time.Duration {
	d := time.Microsecond
	for range i {
		d *= 10
	}
	return d
}

func (h *histogram) observe(d time.Duration) {
	h.count++
	h.sum += d
	bound := time.Microsecond
	for i := range h.tens {
		if d <= bound {
			h.tens[i]++
			return
		}
		bound *= 10
	}
}

// counters are the numbers that only grow.
type counters struct {
	adds, retries       uint64
	queueTime, workTime histogram
}
