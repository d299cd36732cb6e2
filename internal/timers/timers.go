// Package timers has what timers of any clock need.
package timers

import (
	"time"

	"k8s.io/utils/clock"
)

// Reset makes a timer fire after d, and only then, whether or not it has fired and whether or not
// somebody has received that. A timer of package time needs no more than its own Reset for that; one
// of a clock that is moved by hand keeps what it sent until it is received, and when it fires again
// before that, stands still together with its clock.
//
// Only the goroutine that receives from the timer may call it.
func Reset(t clock.Timer, d time.Duration) {
	if !t.Stop() {
		select {
		case <-t.C():
		default:
		}
	}
	t.Reset(d)
}
