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
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/setpoint-dev/setpoint/store"
	"github.com/setpoint-dev/setpoint/store/embedded"
	"github.com/setpoint-dev/setpoint/store/storetest"
)

// The test binary is also the process that is killed: with these in its environment it writes to a
// directory until it dies, and tells its standard output what was acknowledged.
const (
	crashDir   = "SETPOINT_TEST_CRASH_DIR"
	crashPoint = "SETPOINT_TEST_CRASH_POINT" // kills itself there, if not empty
	crashAfter = "SETPOINT_TEST_CRASH_AFTER" // when it has come by the point so many times
)

const crashWriters = 8

// crashOptions and segments of so many bytes have a process come by every point within a fraction of
// a second, and its log never fit one file.
var crashOptions = embedded.Options{CheckpointBytes: 64 << 10, HistoryBytes: 128 << 10}

const crashSegmentBytes = 128 << 10

func TestMain(m *testing.M) {
	if dir := os.Getenv(crashDir); dir != "" {
		embedded.SetSegmentBytes(crashSegmentBytes)
		after, _ := strconv.Atoi(os.Getenv(crashAfter)) // which crash has set
		writeUntilKilled(dir, os.Getenv(crashPoint), int32(after))
	}
	os.Exit(m.Run())
}

// writeUntilKilled has writers that each count up under two keys, which a commit changes together,
// and one that compacts.
func writeUntilKilled(dir, point string, after int32) {
	var passed atomic.Int32
	s, err := embedded.OpenFailing(dir, crashOptions, func(p string) error {
		if p == point && passed.Add(1) > after {
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
			select {}
		}
		return nil
	})
	exitIf("open", err)
	var out sync.Mutex
	var group sync.WaitGroup
	for w := range crashWriters {
		group.Go(func() {
			for n := 1 + countOf(s, w); ; n++ {
				r, err := s.Commit(context.Background(), pair(w, n)...)
				exitIf("commit", err)
				out.Lock()
				fmt.Printf("%d %d %d\n", w, n, max(r.Revision, s.Revision()))
				out.Unlock()
				if w == 0 && n%16 == 0 {
					exitIf("compact", s.Compact(context.Background(), r.Revision-crashWriters))
				}
			}
		})
	}
	group.Wait()
}

func exitIf(what string, err error) {
	if err != nil {
		fmt.Printf("%s: %v\n", what, err)
		os.Exit(1)
	}
}

var crashFiller = bytes.Repeat([]byte("x"), 1024)

func pair(w, n int) []store.Op {
	value := fmt.Appendf(nil, "%d %s", n, crashFiller)
	return []store.Op{put(fmt.Sprintf("left/%d", w), value), put(fmt.Sprintf("right/%d", w), value)}
}

// countOf is how far a writer has come.
func countOf(s *embedded.Store, w int) int {
	snapshot, err := s.Snapshot(context.Background())
	exitIf("snapshot", err)
	entry := snapshot.Get(pair(w, 0)[0].Key)
	if entry == nil {
		return 0
	}
	return number(entry)
}

// number is what a value begins with; -1, which nobody writes, if it is something else.
func number(e *store.Entry) (n int) {
	if _, err := fmt.Sscanf(string(e.Value), "%d ", &n); err != nil {
		return -1
	}
	return n
}

// TestB013_KilledProcessLosesNothing kills processes that write, again and again: at any time, and at
// the points where something has happened by half. What was acknowledged is there, what was not is
// there as a whole or not at all, the history has no gap, and revisions go on above all that anybody
// saw.
func TestB013_KilledProcessLosesNothing(t *testing.T) {
	const lanes = 4 // waiting for the disk and for processes, most of the time
	cycles := storetest.Rounds(t, 200)
	for lane := range lanes {
		t.Run(fmt.Sprint(lane), func(t *testing.T) {
			t.Parallel()
			l := newCrashLane(t, lane)
			for cycle := lane; cycle < cycles; cycle += lanes {
				points := append([]string{""}, embedded.Points...)
				l.cycle(t, points[l.rnd.IntN(len(points))], cycle)
				if t.Failed() {
					t.Fatalf("cycle %d of seed %d; the directory is kept: %s", cycle, l.seed, l.dir)
				}
			}
			if err := os.RemoveAll(l.dir); err != nil {
				t.Error(err)
			}
			t.Logf("revision %d after %d kills, %d of %d writers had answers", l.seen,
				(cycles-lane+lanes-1)/lanes, len(l.acked), crashWriters)
		})
	}
}

// TestB013_KilledAtEachPoint kills processes at each of the points, one after another in one directory.
func TestB013_KilledAtEachPoint(t *testing.T) {
	l := newCrashLane(t, 0)
	for i, point := range embedded.Points {
		t.Run(point, func(t *testing.T) {
			for n := range 3 {
				l.cycle(t, point, 3*i+n)
			}
		})
	}
	if t.Failed() {
		t.Fatalf("seed %d; the directory is kept: %s", l.seed, l.dir)
	}
	if err := os.RemoveAll(l.dir); err != nil {
		t.Error(err)
	}
}

// crashLane is a directory and what its processes have acknowledged so far.
type crashLane struct {
	dir   string
	seed  uint64
	rnd   *rand.Rand
	acked map[int]int    // by writer
	seen  store.Revision // the largest
}

func newCrashLane(t *testing.T, lane int) *crashLane {
	t.Helper()
	dir, err := os.MkdirTemp("", "setpoint-crash-") // which outlives a test that fails
	if err != nil {
		t.Fatal(err)
	}
	seed := storetest.Seed(t)
	return &crashLane{dir: dir, seed: seed, rnd: rand.New(rand.NewPCG(seed, uint64(lane))), acked: map[int]int{}}
}

// cycle kills a process, and looks at what is there.
func (l *crashLane) cycle(t *testing.T, point string, cycle int) {
	l.crash(t, point)
	s, err := embedded.Open(l.dir, crashOptions)
	if err != nil {
		t.Errorf("killed at %q: Open: %v", point, err)
		return
	}
	defer s.Close()
	if err := l.check(s); err != nil {
		t.Errorf("killed at %q: %v", point, err)
	}
	r, err := s.Commit(t.Context(), put("after a crash", fmt.Appendf(nil, "%d ", cycle)))
	if err != nil || r.Revision <= l.seen {
		t.Errorf("killed at %q: the first revision is %d, %v, and a client had seen %d", point, r.Revision, err, l.seen)
	}
}

// check compares a store with what was acknowledged.
func (l *crashLane) check(s *embedded.Store) error {
	if s.Revision() < l.seen {
		return fmt.Errorf("revision %d, and %d was acknowledged", s.Revision(), l.seen)
	}
	begin, err := s.SnapshotAt(context.Background(), s.Compacted())
	if err != nil {
		return err
	}
	known := map[string]int{}
	entries, _ := begin.List("pods", store.ListOptions{})
	for _, e := range entries {
		known[e.Key.Path] = number(e)
	}
	w, err := s.Watch("pods", "", s.Compacted())
	for more := true; more && err == nil; {
		var events []*store.Event
		events, err = w.TryNext()
		for _, ev := range events {
			path, n := ev.Entry.Key.Path, number(ev.Entry)
			if n != known[path]+1 && path != "after a crash" {
				return fmt.Errorf("in the history %d of %s comes after %d", n, path, known[path])
			}
			known[path] = n
		}
		more = len(events) > 0
	}
	for n := range crashWriters {
		left, right, now := known[fmt.Sprintf("left/%d", n)], known[fmt.Sprintf("right/%d", n)], countOf(s, n)
		if left != right || left != now || left < l.acked[n] {
			return fmt.Errorf("writer %d is at %d and %d by its history, at %d, and %d was acknowledged",
				n, left, right, now, l.acked[n])
		}
	}
	return err
}

// crash runs a process until it is dead, and notes what it acknowledged.
func (l *crashLane) crash(t *testing.T, point string) {
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute) // that a machine is slow is no failure
	defer cancel()
	cmd := exec.CommandContext(ctx, os.Args[0])
	after := l.rnd.IntN(3)
	if !strings.HasPrefix(point, "checkpoint") {
		after = l.rnd.IntN(20)
	}
	cmd.Env = append(os.Environ(), crashDir+"="+l.dir, crashPoint+"="+point, crashAfter+"="+strconv.Itoa(after))
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	lines, kill := 0, l.rnd.IntN(100)
	for scanner := bufio.NewScanner(out); scanner.Scan(); lines++ {
		var w, n int
		var r store.Revision
		if _, err := fmt.Sscan(scanner.Text(), &w, &n, &r); err != nil {
			t.Errorf("the process says: %s", scanner.Text())
			continue
		}
		l.acked[w], l.seen = max(l.acked[w], n), max(l.seen, r)
		if point == "" && lines == kill {
			if err := cmd.Process.Kill(); err != nil {
				t.Error(err)
			}
		}
	}
	_ = cmd.Wait() // it was killed
	if ctx.Err() != nil {
		t.Fatalf("the process did not get to %q within minutes", point)
	}
}
