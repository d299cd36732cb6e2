package memory_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"testing"
	"time"
	"weak"

	"github.com/setpoint-dev/setpoint/store"
	"github.com/setpoint-dev/setpoint/store/memory"
	"github.com/setpoint-dev/setpoint/store/storetest"
)

func TestStore(t *testing.T) {
	storetest.Run(t, func(t *testing.T) store.Store {
		s := memory.New(memory.Options{})
		t.Cleanup(func() { s.Close() })
		return s
	})
}

func put(path string, value []byte) store.Op {
	return store.Op{
		Key: store.Key{Resource: "pods", Path: path}, Type: store.Put, Expect: store.Any,
		Value: value, RevisionAt: -1,
	}
}

func commit(t testing.TB, s store.Store, ops ...store.Op) store.Result {
	t.Helper()
	r, err := s.Commit(context.Background(), ops...)
	if err != nil {
		t.Fatalf("Commit: %v", err)
	}
	return r
}

func watch(t testing.TB, s store.Store, after store.Revision) store.Watch {
	t.Helper()
	w, err := s.Watch("pods", "", after)
	if err != nil {
		t.Fatalf("Watch: %v", err)
	}
	return w
}

func get(t *testing.T, s store.Store, path string) string {
	t.Helper()
	snapshot, err := s.Snapshot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	entry := snapshot.Get(store.Key{Resource: "pods", Path: path})
	if entry == nil {
		return ""
	}
	return string(entry.Value)
}

func TestForkGoesItsOwnWay(t *testing.T) {
	s := memory.New(memory.Options{})
	commit(t, s, put("a", []byte("1")), put("b", []byte("1")))
	fork := s.Fork()
	if fork.Revision() != 1 || fork.Compacted() != 1 {
		t.Errorf("the fork is at %d compacted to %d, want 1 and 1", fork.Revision(), fork.Compacted())
	}
	w := watch(t, s, 1)
	commit(t, fork, put("a", []byte("fork")))
	commit(t, s, put("b", []byte("origin")))
	commit(t, s, put("c", []byte("origin")))
	for _, test := range []struct {
		s         *memory.Store
		path, get string
	}{{s, "a", "1"}, {s, "b", "origin"}, {s, "c", "origin"}, {fork, "a", "fork"}, {fork, "b", "1"}, {fork, "c", ""}} {
		if got := get(t, test.s, test.path); got != test.get {
			t.Errorf("%s is %q, want %q", test.path, got, test.get)
		}
	}
	if events, err := w.TryNext(); len(events) != 2 || err != nil {
		t.Errorf("a watch of the origin has %d events, %v; want 2", len(events), err)
	}
}

func TestHistoryIsBoundedByAge(t *testing.T) {
	now := time.Unix(0, 0)
	s := memory.New(memory.Options{HistoryAge: time.Minute, Now: func() time.Time { return now }})
	for i := range 1000 {
		now = now.Add(time.Second)
		commit(t, s, put("a", fmt.Append(nil, i)))
	}
	// A commit a second, so the revision is the second; a mark is up to a sixty-fourth off.
	if kept := s.Revision() - s.Compacted(); kept < 59 || kept > 62 {
		t.Errorf("%d seconds of history are kept, want a minute", kept)
	}
}

// TestHistoryAgesWithoutCommits looks at a store to which nothing happens any more.
func TestHistoryAgesWithoutCommits(t *testing.T) {
	now := time.Unix(0, 0)
	s := memory.New(memory.Options{HistoryAge: time.Hour, Now: func() time.Time { return now }})
	for i := range 5 {
		commit(t, s, put("a", fmt.Append(nil, i)))
		now = now.Add(time.Second)
	}
	slow := watch(t, s, 0)
	now = now.Add(59 * time.Minute)
	if s.Compacted() != 0 {
		t.Errorf("within the hour the history was compacted to %d", s.Compacted())
	}
	now = now.Add(time.Minute + time.Second)
	if s.Compacted() != s.Revision() {
		t.Errorf("an hour after the last commit the history begins at %d, want %d", s.Compacted(), s.Revision())
	}
	if _, err := s.Watch("pods", "", 2); !errors.Is(err, store.ErrCompacted) {
		t.Errorf("Watch: %v, want ErrCompacted", err)
	}
	if _, err := s.SnapshotAt(t.Context(), 2); !errors.Is(err, store.ErrCompacted) {
		t.Errorf("SnapshotAt: %v, want ErrCompacted", err)
	}
	if _, err := slow.TryNext(); !errors.Is(err, store.ErrCompacted) {
		t.Errorf("TryNext of a watch that had read nothing: %v, want ErrCompacted", err)
	}
}

func TestHistoryIsBoundedBySize(t *testing.T) {
	s := memory.New(memory.Options{HistoryBytes: 1 << 20})
	value := make([]byte, 10_000)
	for i := range 1000 {
		commit(t, s, put("a", fmt.Append(value, i)))
	}
	// An event keeps its value and the one before.
	if kept := s.Revision() - s.Compacted(); kept < 45 || kept > 52 {
		t.Errorf("%d events are kept, want about fifty", kept)
	}
	if _, err := s.Watch("pods", "", 1); !errors.Is(err, store.ErrCompacted) {
		t.Errorf("Watch: %v, want ErrCompacted", err)
	}
}

// What a call returns is bounded by size, too: whoever gets stuck with it keeps little alive.
func TestWatchReturnsFewLargeEvents(t *testing.T) {
	s := memory.New(memory.Options{})
	defer s.Close()
	w := watch(t, s, 0)
	const objects, size = 20, 40 << 10
	for i := range objects {
		key := store.Key{Resource: "pods", Path: fmt.Sprintf("a/%d", i)}
		op := store.Op{Key: key, Type: store.Put, Value: make([]byte, size), RevisionAt: -1}
		if _, err := s.Commit(t.Context(), op); err != nil {
			t.Fatal(err)
		}
	}
	for total := 0; total < objects; {
		events, err := w.TryNext()
		if n := len(events); err != nil || n == 0 || n*size > 128<<10 {
			t.Fatalf("a call returned %d events of %d bytes after %d, %v", n, size, total, err)
		}
		total += len(events)
	}
}

// TestStalledWatchKeepsNothingAlive looks for the memory of an event that a watch has not read,
// after the event was compacted (B018).
func TestStalledWatchKeepsNothingAlive(t *testing.T) {
	s := memory.New(memory.Options{})
	stalled := watch(t, s, 0)
	var entries []weak.Pointer[store.Entry]
	for i := range 100 {
		entries = append(entries, weak.Make(commit(t, s, put("a", fmt.Append(nil, i))).Entries[0]))
	}
	if err := s.Compact(t.Context(), 90); err != nil {
		t.Fatal(err)
	}
	runtime.GC()
	for i, entry := range entries[:88] { // 91 has 90 as its Prev
		if entry.Value() != nil {
			t.Fatalf("entry %d of 100 is still in memory, compacted to 90", i+1)
		}
	}
	if _, err := stalled.TryNext(); !errors.Is(err, store.ErrCompacted) {
		t.Errorf("TryNext: %v, want ErrCompacted", err)
	}
}

func TestCommitsWakeOnlyTheirResource(t *testing.T) {
	s := memory.New(memory.Options{})
	w, err := s.Watch("nodes", "", 0)
	if err != nil {
		t.Fatal(err)
	}
	ready := w.Ready()
	commit(t, s, put("a", nil))
	select {
	case <-ready:
		t.Error("a commit to pods woke a watch of nodes")
	default:
	}
}

func TestDeliveringAnEventAllocatesNothing(t *testing.T) {
	s := memory.New(memory.Options{})
	w := watch(t, s, 0)
	const n = 10_000
	for i := range n {
		commit(t, s, put("a", fmt.Append(nil, i)))
	}
	got := 0
	allocations := testing.AllocsPerRun(1, func() {
		for {
			events, err := w.TryNext()
			if err != nil {
				t.Fatal(err)
			}
			if got += len(events); len(events) == 0 {
				break
			}
			if got >= n/2 && got < n/2+len(events) {
				break // AllocsPerRun runs once to warm up; it gets the first half
			}
		}
	})
	if got != n || allocations > 10 {
		t.Errorf("%d events, %.0f allocations; want %d and at most 10", got, allocations, n)
	}
}
