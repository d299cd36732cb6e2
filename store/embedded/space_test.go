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

// TestFullDiskRecoversByItself fills a real file system. It needs the right to mount one.
func TestFullDiskRecoversByItself(t *testing.T) {
	disk := t.TempDir()
	if err := unix.Mount("none", disk, "tmpfs", 0, "size=64m"); err != nil {
		t.Skipf("mounting a small file system: %v", err)
	}
	defer func() {
		if err := unix.Unmount(disk, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	}()
	dir := filepath.Join(disk, "data")
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
	if err := unix.Mount("none", disk, "tmpfs", unix.MS_REMOUNT, "size=128m"); err != nil {
		t.Fatal(err)
	}
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
