package embedded_test

import (
	"bytes"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"

	"golang.org/x/sys/unix"

	"github.com/setpoint-dev/setpoint/store"
	"github.com/setpoint-dev/setpoint/store/embedded"
)

// giving is a store with a history without bounds, whose points fail as told, and which has a checkpoint.
type giving struct {
	*testing.T
	*embedded.Store
	checkpoint store.Revision
	written    int

	mu     sync.Mutex
	fails  map[string][]error // what is to go wrong, one after the other
	passed map[string]int
}

// give runs a test of one in a bubble: no time passes, so nobody looks by himself whether there is room again.
func give(t *testing.T, test func(g *giving)) {
	synctest.Test(t, func(t *testing.T) {
		g := &giving{T: t, fails: map[string][]error{}, passed: map[string]int{}}
		options := embedded.Options{CheckpointBytes: 64 << 10, HistoryBytes: 1 << 40}
		var err error
		if g.Store, err = embedded.OpenFailing(t.TempDir(), options, g.point); err != nil {
			t.Fatal(err)
		}
		defer g.Close()
		g.write("checkpointed", 1)
		g.checkpoint = g.Revision()
		test(g)
	})
}

func (g *giving) point(name string) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.passed[name]++
	fails := g.fails[name]
	if len(fails) == 0 {
		return nil
	}
	g.fails[name] = fails[1:]
	return fails[0]
}

// fail has a point fail the next time.
func (g *giving) fail(point string, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.fails[point] = append(g.fails[point], err)
}

func (g *giving) count(point string) int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.passed[point]
}

// replace writes one of five objects again, no larger than it was.
func (g *giving) replace() {
	g.Helper()
	g.written++
	commit(g.T, g, put(fmt.Sprint(g.written%5), fmt.Appendf(bytes.Repeat([]byte("v"), 8<<10), "%09d", g.written)))
	synctest.Wait() // for a checkpoint that it has begun
}

// write goes on until a point was passed so often.
func (g *giving) write(point string, times int) {
	g.Helper()
	for g.count(point) < times {
		if g.replace(); g.written > 1000 {
			g.Fatalf("%s was passed %d times, want %d", point, g.count(point), times)
		}
	}
}

func (g *giving) begins(what string, want store.Revision) {
	g.Helper()
	if got := g.Compacted(); got != want {
		g.Errorf("%s: the history begins at %d, want %d", what, got, want)
	}
}

// There is no room for a checkpoint: what only the history needs goes, and the next is tried at once, if
// that made some.
func TestHistoryGoesForACheckpoint(t *testing.T) {
	give(t, func(g *giving) {
		g.begins("before", 0)
		g.fail("checkpoint", unix.ENOSPC)
		g.fail("checkpoint", unix.ENOSPC)
		g.write("checkpoint", 2)
		g.begins("a checkpoint did not fit", g.checkpoint)
		for _, after := range []string{"the history was given up", "nothing was left to give up"} {
			g.replace()
			if n := g.count("checkpoint"); n != 3 {
				g.Errorf("after %s %d checkpoints were tried, want 3", after, n)
			}
		}
	})
}

// There is none for the log: what only the history needs goes, and the commit goes through. So does the
// history before each checkpoint that is written until there is room again.
func TestHistoryGoesForACommit(t *testing.T) {
	give(t, func(g *giving) {
		g.fail("append", unix.ENOSPC)
		g.fail("checkpoint", errors.New("not yet"))
		g.replace()
		g.begins("a commit did not fit", g.checkpoint)
		g.write("checkpointed", 2)
		g.begins("a checkpoint was written", g.Revision())
	})
}
