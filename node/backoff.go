package node

import "time"

// A container that keeps ending is restarted at once the first time, then 10 s
// after its end, then 20 s, … 300 s; ten minutes of running without an end
// forgive it. The figures are a kubelet's.
const (
	backoffMin    = 10 * time.Second
	backoffMax    = 300 * time.Second
	backoffForget = 2 * backoffMax
)

// backoff is the delay before a container's next restart.
type backoff struct {
	delay   time.Duration
	updated time.Time // when it was last restarted
}

// delayAt is the delay that an end at the given time must wait for.
func (b backoff) delayAt(end time.Time) time.Duration {
	if end.Sub(b.updated) > backoffForget {
		return 0
	}
	return b.delay
}

// next is the back-off after a restart at now that followed an end.
func (b backoff) next(end, now time.Time) backoff {
	delay := backoffMin
	if b.delayAt(end) > 0 {
		delay = min(2*b.delay, backoffMax)
	}
	return backoff{delay: delay, updated: now}
}
