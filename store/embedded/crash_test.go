package embedded_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/setpoint-dev/setpoint/store"
	"github.com/setpoint-dev/setpoint/store/embedded"
)

// The test binary is also the process that is killed: with these in its environment it writes to a
// directory until it dies, and tells its standard output what was acknowledged.
const (
	crashDir   = "SETPOINT_TEST_CRASH_DIR"
	crashPoint = "SETPOINT_TEST_CRASH_POINT" // kills itself there, if not empty
)

const crashWriters = 8

func TestMain(m *testing.M) {
	if dir := os.Getenv(crashDir); dir != "" {
		writeUntilKilled(dir, os.Getenv(crashPoint))
	}
	os.Exit(m.Run())
}

// often are the points that every batch comes by.
var often = map[string]bool{"append": true, "appended": true, "publish": true, "published": true}

// writeUntilKilled has writers that each count up under two keys, which a commit changes together.
func writeUntilKilled(dir, point string) {
	var passed atomic.Int32
	after := rand.Int32N(40)
	s, err := embedded.OpenFailing(dir, embedded.Options{CheckpointBytes: 256 << 10}, func(p string) error {
		if p == point && (!often[p] || passed.Add(1) > after) {
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
			select {}
		}
		return nil
	})
	if err != nil {
		fmt.Println("open:", err)
		os.Exit(1)
	}
	var mu sync.Mutex
	var group sync.WaitGroup
	filler := bytes.Repeat([]byte("x"), 1024)
	for w := range crashWriters {
		group.Go(func() {
			for {
				n, ops := 1, pair(w, 1, filler)
				snapshot, err := s.Snapshot(context.Background())
				if err == nil {
					if entry := snapshot.Get(ops[0].Key); entry != nil {
						_, _ = fmt.Sscanf(string(entry.Value), "%d ", &n)
						n++
						ops = pair(w, n, filler)
					}
				}
				r, err := s.Commit(context.Background(), ops...)
				if err != nil {
					fmt.Println("commit:", err)
					os.Exit(1)
				}
				mu.Lock()
				fmt.Printf("%d %d %d\n", w, n, max(r.Revision, s.Revision()))
				mu.Unlock()
			}
		})
	}
	group.Wait()
}

func pair(w, n int, filler []byte) []store.Op {
	value := fmt.Appendf(nil, "%d %s", n, filler)
	return []store.Op{put(fmt.Sprintf("left/%d", w), value), put(fmt.Sprintf("right/%d", w), value)}
}

// TestKilledProcessLosesNothing kills a process that writes, again and again: at any time, and at
// the points where something has happened by half. What it had acknowledged is there, what it had
// not is there as a whole or not at all, and revisions go on above all that anybody saw (B013).
func TestKilledProcessLosesNothing(t *testing.T) {
	dir := t.TempDir()
	points := append([]string{""}, embedded.Points...)
	acked, seen := map[int]int{}, store.Revision(0)
	cycles := crashCycles(t)
	for cycle := range cycles {
		point := points[cycle%len(points)]
		seen = max(seen, crash(t, dir, point, acked))
		s := open(t, dir, embedded.Options{})
		if s.Revision() < seen {
			t.Fatalf("cycle %d, killed at %q: revision %d, and %d was acknowledged", cycle, point, s.Revision(), seen)
		}
		snapshot, err := s.Snapshot(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for w := range crashWriters {
			left := counter(t, snapshot, fmt.Sprintf("left/%d", w))
			right := counter(t, snapshot, fmt.Sprintf("right/%d", w))
			if left != right || left < acked[w] {
				t.Fatalf("cycle %d, killed at %q: writer %d is at %d and %d, and %d was acknowledged",
					cycle, point, w, left, right, acked[w])
			}
		}
		if r := commit(t, s, put("after a crash", fmt.Append(nil, cycle))); r <= seen {
			t.Fatalf("cycle %d, killed at %q: the first revision is %d, and a client had seen %d", cycle, point, r, seen)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if len(acked) < crashWriters {
		t.Errorf("only %d writers ever had a commit acknowledged", len(acked))
	}
	t.Logf("revision %d after %d kills", seen, cycles)
}

// crashCycles is how often a process is killed: 200 times, or as often as SETPOINT_TORTURE says.
func crashCycles(t *testing.T) int {
	text := os.Getenv("SETPOINT_TORTURE")
	if text == "" {
		return 200
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		t.Fatalf("SETPOINT_TORTURE is %q, want a number of cycles", text)
	}
	return n
}

func counter(t *testing.T, s store.Snapshot, path string) (n int) {
	t.Helper()
	entry := s.Get(store.Key{Resource: "pods", Path: path})
	if entry == nil {
		return 0
	}
	if _, err := fmt.Sscanf(string(entry.Value), "%d ", &n); err != nil {
		t.Fatalf("value of %s: %v", path, err)
	}
	return n
}

// crash runs a process until it is dead, and returns the largest revision it acknowledged.
func crash(t *testing.T, dir, point string, acked map[int]int) (seen store.Revision) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, os.Args[0])
	cmd.Env = append(os.Environ(), crashDir+"="+dir, crashPoint+"="+point)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines, kill := 0, rand.IntN(100)
	for scanner := bufio.NewScanner(out); scanner.Scan(); lines++ {
		var w, n int
		var r store.Revision
		if _, err := fmt.Sscan(scanner.Text(), &w, &n, &r); err != nil {
			t.Errorf("the process says: %s", scanner.Text())
			continue
		}
		acked[w], seen = max(acked[w], n), max(seen, r)
		if point == "" && lines == kill {
			if err := cmd.Process.Kill(); err != nil {
				t.Error(err)
			}
		}
	}
	_ = cmd.Wait() // it was killed
	if ctx.Err() != nil {
		t.Fatalf("the process did not get to %q within a minute", point)
	}
	return seen
}
