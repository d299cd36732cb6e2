package embedded_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/setpoint-dev/setpoint/store"
	"github.com/setpoint-dev/setpoint/store/embedded"
)

// disk is a small file system, which nobody else can see: it is mounted nowhere, and there for as long as
// it is open, which a process that is killed does not prolong.
type disk struct {
	dir   string // its root
	mount int    // a file descriptor
}

// small makes a file system of a size, which needs the right to do so.
func small(t *testing.T, size string) *disk {
	t.Helper()
	fs, err := unix.Fsopen("tmpfs", unix.FSOPEN_CLOEXEC)
	if err != nil {
		t.Skipf("making a small file system: %v", err)
	}
	defer unix.Close(fs)
	if err := unix.FsconfigSetString(fs, "size", size); err != nil {
		t.Fatal(err)
	}
	if err := unix.FsconfigCreate(fs); err != nil {
		t.Skipf("making a small file system: %v", err)
	}
	mount, err := unix.Fsmount(fs, unix.FSMOUNT_CLOEXEC, 0)
	if err != nil {
		t.Skipf("making a small file system: %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Close(mount); err != nil {
			t.Error(err)
		}
	})
	return &disk{dir: fmt.Sprint("/proc/self/fd/", mount), mount: mount}
}

// resize changes how much room there is.
func (d *disk) resize(t *testing.T, size string) {
	t.Helper()
	fs, err := unix.Fspick(d.mount, "", unix.FSPICK_EMPTY_PATH|unix.FSPICK_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fs)
	if err := errors.Join(unix.FsconfigSetString(fs, "size", size), unix.FsconfigReconfigure(fs)); err != nil {
		t.Fatal(err)
	}
}

// TestFullDiskRecoversByItself fills a real file system, and makes it larger.
func TestFullDiskRecoversByItself(t *testing.T) {
	disk := small(t, "96m")
	dir := filepath.Join(disk.dir, "data")
	s, err := embedded.Open(dir, embedded.Options{CheckpointBytes: 1 << 40})
	if err != nil {
		t.Fatal(err)
	}
	value := bytes.Repeat([]byte("v"), 300<<10)
	full := 0
	for i := 0; full < 3; i++ {
		_, err := s.Commit(t.Context(), put(fmt.Sprint(i), value))
		if errors.Is(err, store.ErrNoSpace) {
			full++
		} else if err != nil {
			t.Fatalf("Commit %d: %v", i, err)
		}
	}
	revision := s.Revision()
	if n := strings.Count(dump(t, s), "\n"); n != int(revision) {
		t.Errorf("%d objects can be read, want %d", n, revision)
	}
	disk.resize(t, "192m")
	for {
		_, err := s.Commit(context.Background(), put("after", value))
		if err == nil {
			break
		}
		if !errors.Is(err, store.ErrNoSpace) {
			t.Fatalf("Commit: %v", err)
		}
	}
	want := dump(t, s)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s, err = embedded.Open(dir, embedded.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if s.Revision() != revision+1 || dump(t, s) != want {
		t.Errorf("revision %d after a restart, want %d; same state: %v", s.Revision(), revision+1, dump(t, s) == want)
	}
}

// TestFullDiskTakesDeletions fills a file system with objects, and gets it free again by deleting
// them: nobody has to make it larger.
func TestFullDiskTakesDeletions(t *testing.T) {
	s, err := embedded.Open(filepath.Join(small(t, "128m").dir, "data"), embedded.Options{CheckpointBytes: 1 << 40})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	value := bytes.Repeat([]byte("v"), 300<<10)
	made := 0
	for err == nil {
		if _, err = s.Commit(t.Context(), put(fmt.Sprint(made), value)); err == nil {
			made++
		}
	}
	if !errors.Is(err, store.ErrNoSpace) {
		t.Fatal(err)
	}
	if err := s.Compact(t.Context(), s.Revision()-1); err != nil || s.Compacted() < s.Revision()-1 {
		t.Errorf("Compact on a full disk: %v, compacted to %d of %d", err, s.Compacted(), s.Revision())
	}
	if n := strings.Count(dump(t, s), "\n"); n != made {
		t.Errorf("%d objects can be read on a full disk, want %d", n, made)
	}
	// What is to be deleted is marked before, by a write that is no deletion yet.
	mark := put("0", append([]byte("marked"), value...))
	mark.Frees = true
	until(t, s, mark)
	for i := range made {
		until(t, s, store.Op{Key: put(fmt.Sprint(i), nil).Key, Type: store.Delete, Expect: store.Any, RevisionAt: -1})
	}
	if got := dump(t, s); got != "" {
		t.Errorf("after all deletions there is %.100q", got)
	}
	until(t, s, put("again", value))
}

// TestFullDiskRenewsLeases fills a file system. Leases are renewed then, nothing is made or made larger,
// and however often something is renewed, what makes room still goes through.
func TestFullDiskRenewsLeases(t *testing.T) {
	s, err := embedded.Open(filepath.Join(small(t, "128m").dir, "data"), embedded.Options{CheckpointBytes: 1 << 40})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	value := bytes.Repeat([]byte("v"), 300<<10)
	commit := func(op store.Op) error { _, err := s.Commit(t.Context(), op); return err }
	renewal := func(n int) store.Op { return put("lease", fmt.Appendf(nil, "renewed %04d", n)) }
	if err := commit(renewal(0)); err != nil {
		t.Fatal(err)
	}
	for made := 0; err == nil; made++ {
		err = commit(put(fmt.Sprint(made), value))
	}
	if !errors.Is(err, store.ErrNoSpace) {
		t.Fatal(err)
	}
	for n := range 1000 {
		if err := commit(renewal(n + 1)); err != nil {
			t.Fatalf("renewal %d: %v", n, err)
		}
	}
	for what, op := range map[string]store.Op{
		"one more":       put("another", []byte("1")),
		"one more large": put("lease", bytes.Repeat([]byte("v"), 100)),
	} {
		if err := commit(op); !errors.Is(err, store.ErrNoSpace) {
			t.Errorf("%s: %v, want %v", what, err, store.ErrNoSpace)
		}
	}
	for n := 0; ; n++ {
		again := bytes.Clone(value)
		again[0] = byte('a' + n%2)
		if err = commit(put("0", again)); err != nil || n > 1000 {
			break
		}
	}
	if !errors.Is(err, store.ErrNoSpace) {
		t.Errorf("what is renewed again and again: %v, want %v in the end", err, store.ErrNoSpace)
	}
	gone := store.Op{Key: put("0", nil).Key, Type: store.Delete, Expect: store.Any, RevisionAt: -1}
	until(t, s, gone)
}

// until commits until it is not told that there is no room.
func until(t *testing.T, s store.Store, op store.Op) {
	t.Helper()
	for {
		_, err := s.Commit(t.Context(), op)
		if err == nil {
			return
		}
		if !errors.Is(err, store.ErrNoSpace) {
			t.Fatalf("Commit of %s: %v", op.Key, err)
		}
	}
}

// TestFullDiskGivesUpHistory has a history without bounds fill a file system on which there is no room
// for another checkpoint: it goes, by itself, as often as need be, and all that is written is taken.
func TestFullDiskGivesUpHistory(t *testing.T) {
	s, err := embedded.Open(filepath.Join(small(t, "256m").dir, "data"),
		embedded.Options{CheckpointBytes: 4 << 20, HistoryBytes: 1 << 40})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	const keys = 130 // 40 MB, which the reserve does not hold
	value := bytes.Repeat([]byte("v"), 300<<10)
	for i := range 1500 {
		until(t, s, put(fmt.Sprint(i%keys), fmt.Append(value, i)))
	}
	if s.Compacted() == 0 {
		t.Error("450 MB of history are still there on a disk of 256 MB")
	}
	if n := strings.Count(dump(t, s), "\n"); n != keys {
		t.Errorf("%d objects, want %d", n, keys)
	}
}
