package timers_test

import (
	"testing"
	"time"

	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/setpoint-dev/setpoint/internal/timers"
)

func TestResetOfATimerThatNobodyReceivedFrom(t *testing.T) {
	fake := clocktesting.NewFakeClock(time.Unix(0, 0))
	timer := fake.NewTimer(time.Second)
	fake.Step(time.Second)

	timers.Reset(timer, time.Second)
	select {
	case at := <-timer.C():
		t.Fatalf("fired at %v, before its time", at)
	default:
	}
	fake.Step(time.Second) // would stand still forever
	if at := <-timer.C(); !at.Equal(time.Unix(2, 0)) {
		t.Errorf("fired at %v, want after two seconds", at)
	}
}

func TestResetOfARunningTimerKeepsOneShot(t *testing.T) {
	for name, c := range map[string]clock.Clock{"real": clock.RealClock{}, "fake": clocktesting.NewFakeClock(time.Unix(0, 0))} {
		timer := c.NewTimer(time.Hour)
		timers.Reset(timer, time.Millisecond)
		if fake, ok := c.(*clocktesting.FakeClock); ok {
			fake.Step(time.Millisecond)
		}
		<-timer.C()
		if timer.Stop() {
			t.Errorf("%s: still running after it fired", name)
		}
	}
}
