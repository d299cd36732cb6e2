package core_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/setpoint-dev/setpoint/store"
	"github.com/setpoint-dev/setpoint/store/internal/core"
)

// Readers wait for nobody, so something may happen between any two looks of theirs. In each of these tests it
// does.

// two returns a core with two revisions of an object.
func two(t *testing.T) *core.Core {
	t.Helper()
	c := core.New(core.Options{}, 0)
	for _, value := range []string{"1", "2"} {
		decide(t, c, put("a", value))
		c.Publish(start)
	}
	return c
}

// meanwhile does something in the next call of a reader, which has to be made before the test ends.
func meanwhile(t *testing.T, c *core.Core, do func()) {
	t.Helper()
	done := false
	c.Reader().Meanwhile(func() { done = true; do() })
	t.Cleanup(func() {
		if !done {
			t.Error("nothing happened meanwhile")
		}
	})
}

func forget(t *testing.T, c *core.Core) func() {
	return func() {
		if err := c.Compact(2); err != nil {
			t.Error(err)
		}
	}
}

// The log of a resource is in parts: an event may be in the one that was looked at, or begin another.
func TestWatchIsNotAheadOfWhatIsPublishedMeanwhile(t *testing.T) {
	c := two(t)
	w := watch(t, c.Reader(), 2)
	shown := store.Revision(2)
	for next := store.Revision(3); next < 300; next++ {
		meanwhile(t, c, func() {
			decide(t, c, put("a", fmt.Sprint(next)))
			c.Publish(start)
		})
		for range 2 {
			events, err := w.TryNext()
			if err != nil {
				t.Fatal(err)
			}
			for _, e := range events {
				shown = e.Entry.Revision
			}
			if w.Revision() != shown {
				t.Fatalf("the watch is at revision %d, and has shown %d", w.Revision(), shown)
			}
		}
		if shown != next {
			t.Fatalf("the watch has shown %d, want %d", shown, next)
		}
	}
}

func TestWatchIsWokenByWhatIsPublishedMeanwhile(t *testing.T) {
	c := two(t)
	w := watch(t, c.Reader(), 2)
	meanwhile(t, c, func() {
		decide(t, c, put("a", "3"))
		c.Publish(start)
	})
	select {
	case <-w.Ready():
	default:
		t.Error("there is an event, and the watch waits")
	}
}

func TestWatchOfWhatIsForgottenMeanwhile(t *testing.T) {
	c := two(t)
	meanwhile(t, c, forget(t, c))
	w, err := c.Reader().Watch("pods", "", 1)
	if err == nil {
		_, err = w.TryNext()
	}
	if !errors.Is(err, store.ErrCompacted) {
		t.Errorf("a watch after revision 1: %v, want it to be told that revision 2 was forgotten", err)
	}
}

func TestPastThatIsForgottenMeanwhile(t *testing.T) {
	c := two(t)
	meanwhile(t, c, forget(t, c))
	s, err := c.Reader().SnapshotAt(t.Context(), 1)
	switch {
	case err == nil && string(s.Get(key("a")).Value) != "1":
		t.Errorf("at revision 1 there is %s", s.Get(key("a")).Value)
	case err != nil && !errors.Is(err, store.ErrCompacted):
		t.Error(err)
	}
}
