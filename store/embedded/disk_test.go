package embedded_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/setpoint-dev/setpoint/store"
	"github.com/setpoint-dev/setpoint/store/embedded"
)

func open(t *testing.T, dir string, options embedded.Options) *embedded.Store {
	t.Helper()
	s, err := embedded.Open(dir, options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func put(path string, value []byte) store.Op {
	return store.Op{
		Key: store.Key{Resource: "pods", Path: path}, Type: store.Put, Expect: store.Any,
		Value: value, RevisionAt: -1,
	}
}

func commit(t *testing.T, s store.Store, ops ...store.Op) store.Revision {
	t.Helper()
	r, err := s.Commit(t.Context(), ops...)
	if err != nil {
		t.Fatalf("Commit: %v", err)
	}
	return r.Revision
}

// dump is everything a store has, in words.
func dump(t *testing.T, s store.Store) string {
	t.Helper()
	snapshot, err := s.Snapshot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return dumpOf(snapshot)
}

func dumpOf(snapshot store.Snapshot) string {
	var b strings.Builder
	for _, resource := range []string{"pods", "nodes"} {
		entries, _ := snapshot.List(resource, store.ListOptions{})
		for _, e := range entries {
			fmt.Fprintf(&b, "%s %d %d %d %x\n", e.Key, e.Revision, e.Created, len(e.Value), sha256.Sum256(e.Value))
		}
	}
	return b.String()
}

func TestRestartKeepsStateRevisionAndHistory(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, embedded.Options{})
	for i := range 500 {
		op := put(fmt.Sprint(i*7%90), []byte(fmt.Sprint(i)))
		if i%5 == 4 {
			op.Type = store.Delete
		}
		commit(t, s, op, store.Op{Key: store.Key{Resource: "nodes", Path: "n"}, Type: store.Put,
			Expect: store.Any, Value: fmt.Appendf(nil, `{"rv":"","i":%d}`, i), RevisionAt: 7})
	}
	want, revision := dump(t, s), s.Revision()
	if err := s.Close(); err != nil {
		t.Fatalf("Close: %v", err)
	}

	s = open(t, dir, embedded.Options{})
	if got := dump(t, s); got != want {
		t.Errorf("state after a restart:\n%s\nwant:\n%s", got, want)
	}
	if s.Revision() != revision {
		t.Errorf("revision %d after a restart, want %d", s.Revision(), revision)
	}
	w, err := s.Watch("pods", "", 0)
	if err != nil {
		t.Fatalf("Watch: %v", err)
	}
	first := store.Revision(0)
	for {
		events, err := w.TryNext()
		if err != nil {
			t.Fatalf("TryNext: %v", err)
		}
		if len(events) == 0 {
			break
		}
		if first == 0 {
			first = events[0].Entry.Revision
		}
	}
	if first != 1 || w.Revision() != revision {
		t.Errorf("the watch went from %d to %d, want 1 to %d", first, w.Revision(), revision)
	}
	if got := commit(t, s, put("new", nil)); got != revision+1 {
		t.Errorf("first revision after a restart is %d, want %d", got, revision+1)
	}
}

// TestCheckpointsReplaceTheLog writes many times the log's size, and looks that the directory stays
// small, that nothing is lost, and that what was before the history is refused (B001).
func TestCheckpointsReplaceTheLog(t *testing.T) {
	dir := t.TempDir()
	var written atomic.Int32
	options := embedded.Options{CheckpointBytes: 4 << 20, HistoryBytes: 1 << 20}
	s, err := embedded.OpenFailing(dir, options, func(point string) error {
		if point == "checkpointed" {
			written.Add(1)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	value := bytes.Repeat([]byte("v"), 64<<10)
	for i := 0; written.Load() < 20; i++ {
		commit(t, s, put(fmt.Sprint(i%10), fmt.Append(value, i)))
	}
	want, revision := dump(t, s), s.Revision()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	size := int64(0)
	err = filepath.Walk(dir, func(_ string, info os.FileInfo, err error) error {
		size += info.Size()
		return err
	})
	// The log of a checkpoint that is being written, a segment it starts in, one made ahead, and what
	// is kept in reserve.
	if limit := int64(2*options.CheckpointBytes + 5*embedded.SegmentBytes); size > limit || err != nil {
		t.Errorf("the directory has %d bytes, want at most %d (%v)", size, limit, err)
	}
	if files, _ := filepath.Glob(filepath.Join(dir, "checkpoint-*")); len(files) > 2 {
		t.Errorf("checkpoints: %v, want one, and one before the history", files)
	}
	s = open(t, dir, options)
	if got := dump(t, s); got != want || s.Revision() != revision {
		t.Errorf("revision %d after a restart, want %d, same state: %v", s.Revision(), revision, got == want)
	}
	if _, err := s.Watch("pods", "", s.Compacted()-1); !errors.Is(err, store.ErrCompacted) {
		t.Errorf("Watch before the history: %v, want ErrCompacted", err)
	}
	if s.Compacted() == 0 {
		t.Error("the history still begins at the beginning")
	}
}

func TestManyWritersShareASync(t *testing.T) {
	var syncs atomic.Int32
	s, err := embedded.OpenFailing(t.TempDir(), embedded.Options{}, func(point string) error {
		if point == "append" {
			syncs.Add(1)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	const writers, each = 64, 50
	var group sync.WaitGroup
	for w := range writers {
		group.Go(func() {
			for i := range each {
				if _, err := s.Commit(context.Background(), put(fmt.Sprint(w), fmt.Append(nil, i))); err != nil {
					t.Errorf("Commit: %v", err)
				}
			}
		})
	}
	group.Wait()
	if n := syncs.Load(); n > writers*each/4 {
		t.Errorf("%d syncs for %d commits, want at most a quarter", n, writers*each)
	}
	if s.Revision() != writers*each {
		t.Errorf("revision %d, want %d", s.Revision(), writers*each)
	}
}

// TestDirectoryIsLocked waits for another store to let go of the directory, for a while.
func TestDirectoryIsLocked(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		s := open(t, dir, embedded.Options{})
		begun := time.Now()
		_, err := embedded.Open(dir, embedded.Options{})
		var locked *embedded.LockedError
		if !errors.As(err, &locked) || locked.PID != fmt.Sprint(os.Getpid()) {
			t.Fatalf("second Open: %v, want that this process has it", err)
		}
		if d := time.Since(begun); d > 10*time.Second {
			t.Errorf("it was told so after %v", d)
		}
		go func() {
			<-time.After(time.Second)
			s.Close()
		}()
		open(t, dir, embedded.Options{}).Close()
	})
}

func TestForkIsInMemory(t *testing.T) {
	s := open(t, t.TempDir(), embedded.Options{})
	commit(t, s, put("a", []byte("1")))
	fork := s.Fork()
	before := dump(t, s)
	if got := dump(t, fork); got != before {
		t.Errorf("the fork has:\n%s\nwant:\n%s", got, before)
	}
	commit(t, fork, put("b", []byte("1")))
	if dump(t, s) != before || s.Revision() != 1 {
		t.Error("a commit to the fork changed the store")
	}
}

func TestCloseLeavesNothingRunning(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	s := open(t, t.TempDir(), embedded.Options{CheckpointBytes: 1})
	for i := range 20 {
		commit(t, s, put("a", fmt.Append(nil, i)))
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Errorf("second Close: %v", err)
	}
}

// TestFailedBatchIsTakenBack has the log fail before a write and after it, and looks that nobody
// ever sees what was in it, neither then nor after a restart, and that writing goes on.
func TestFailedBatchIsTakenBack(t *testing.T) {
	for _, point := range []string{"append", "appended"} {
		for _, first := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s first=%v", point, first), func(t *testing.T) {
				testFailedBatch(t, point, first)
			})
		}
	}
}

func testFailedBatch(t *testing.T, point string, first bool) {
	dir := t.TempDir()
	var full atomic.Bool
	s, err := embedded.OpenFailing(dir, embedded.Options{}, func(p string) error {
		if p == point && full.Load() {
			return syscall.ENOSPC
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if !first {
		commit(t, s, put("a", []byte("1")))
	}
	before := s.Revision()
	w, err := s.Watch("pods", "", before)
	if err != nil {
		t.Fatal(err)
	}
	full.Store(true)
	for range 3 {
		if _, err := s.Commit(t.Context(), put("lost", []byte("1"))); !errors.Is(err, store.ErrNoSpace) {
			t.Fatalf("Commit: %v, want ErrNoSpace", err)
		}
	}
	if strings.Contains(dump(t, s), "lost") || s.Revision() != before {
		t.Error("a commit that failed can be read")
	}
	full.Store(false)
	// The log is tried again after a while, which is part of the promise.
	for {
		_, err := s.Commit(t.Context(), put("b", []byte("2")))
		if err == nil {
			break
		}
		if !errors.Is(err, store.ErrNoSpace) {
			t.Fatalf("Commit: %v", err)
		}
	}
	if s.Revision() != before+1 {
		t.Errorf("revision %d after the first commit that went through, want %d", s.Revision(), before+1)
	}
	events, err := w.TryNext()
	if err != nil || len(events) != 1 || events[0].Entry.Key.Path != "b" {
		t.Errorf("the watch saw %d events, %v", len(events), err)
	}
	want := dump(t, s)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if got := dump(t, open(t, dir, embedded.Options{})); got != want {
		t.Errorf("after a restart:\n%s\nwant:\n%s", got, want)
	}
}

// TestFailedCheckpointChangesNothing has checkpoints fail; the log stays, and so does everything.
func TestFailedCheckpointChangesNothing(t *testing.T) {
	dir := t.TempDir()
	var failed atomic.Int32
	s, err := embedded.OpenFailing(dir, embedded.Options{CheckpointBytes: 1 << 20}, func(point string) error {
		if strings.HasPrefix(point, "checkpoint") {
			failed.Add(1)
			return syscall.ENOSPC
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	value := bytes.Repeat([]byte("v"), 64<<10)
	for i := 0; failed.Load() < 3; i++ {
		commit(t, s, put(fmt.Sprint(i%10), fmt.Append(value, i)))
	}
	want := dump(t, s)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if got := dump(t, open(t, dir, embedded.Options{})); got != want {
		t.Error("the state after a restart is another")
	}
}

// TestConflictWithAFailedCommitIsNotTold has a commit conflict with one of the same batch, which
// then fails: the conflict was with something that never was.
func TestConflictWithAFailedCommitIsNotTold(t *testing.T) {
	gate, entered := make(chan struct{}), make(chan struct{})
	var calls atomic.Int32
	s, err := embedded.OpenFailing(t.TempDir(), embedded.Options{}, func(point string) error {
		if point != "append" {
			return nil
		}
		switch calls.Add(1) {
		case 1: // hold the committer, so that the next two commits wait together
			close(entered)
			<-gate
			return nil
		case 2:
			return syscall.EIO
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	var group sync.WaitGroup
	group.Go(func() { _, _ = s.Commit(context.Background(), put("hold", nil)) })
	<-entered
	create := put("a", []byte("1"))
	create.Expect = 0
	errs := make(chan error, 2)
	for range 2 {
		group.Go(func() {
			_, err := s.Commit(context.Background(), create)
			errs <- err
		})
	}
	for s.Waiting() < 2 {
		runtime.Gosched()
	}
	close(gate)
	group.Wait()
	for range 2 {
		if err := <-errs; !errors.Is(err, syscall.EIO) {
			t.Errorf("Commit: %v, want EIO", err)
		}
	}
}
