package embedded_test

import (
	"bytes"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/setpoint-dev/setpoint/store"
	"github.com/setpoint-dev/setpoint/store/embedded"
)

func TestRestoredStoreIsTheSavedOne(t *testing.T) {
	s := open(t, t.TempDir(), embedded.Options{})
	for i := range 1000 {
		commit(t, s, put(fmt.Sprint(i), bytes.Repeat([]byte("v"), i)))
	}
	saved, want := s.Revision(), dump(t, s)
	var file bytes.Buffer
	if err := embedded.Save(&file, s.Revision(), entriesOf(s)); err != nil {
		t.Fatal(err)
	}
	lost := commit(t, s, put("lost", nil))
	if revision, n, err := embedded.Verify("file", bytes.NewReader(file.Bytes())); err != nil || n != 1000 || revision != saved {
		t.Errorf("Verify: %d objects at %d, %v", n, revision, err)
	}
	dir := filepath.Join(t.TempDir(), "restored")
	revision, err := embedded.Restore(dir, "file", bytes.NewReader(file.Bytes()))
	if err != nil {
		t.Fatal(err)
	}
	restored := open(t, dir, embedded.Options{})
	if got := dump(t, restored); got != want {
		t.Error("the restored state is another")
	}
	if _, err := restored.Watch("pods", "", lost); !errors.Is(err, store.ErrCompacted) {
		t.Errorf("a watch from what is lost: %v", err)
	}
	if r := commit(t, restored, put("new", nil)); r != revision+1 || r <= lost {
		t.Errorf("the first revision is %d, after %d", r, revision)
	}
	if err := restored.Close(); err != nil {
		t.Fatal(err)
	}
	restored = open(t, dir, embedded.Options{})
	if restored.Revision() != revision+1 || !strings.HasPrefix(dump(t, restored), "pods/0 ") {
		t.Error("a restart of the restored store has lost something")
	}
	defer restored.Close()
	defer s.Close()
	if _, err := embedded.Restore(dir+"/../restored2", "file", bytes.NewReader(file.Bytes()[:file.Len()-1])); !isDamage(err) {
		t.Errorf("Restore of a file that is cut off: %v", err)
	}
	flipped := bytes.Clone(file.Bytes())
	flipped[file.Len()/2] ^= 1
	if _, _, err := embedded.Verify("file", bytes.NewReader(flipped)); !isDamage(err) {
		t.Errorf("Verify of a flipped bit: %v", err)
	}
}

func TestRestoreLeavesAStoreAlone(t *testing.T) {
	var file bytes.Buffer
	dir := t.TempDir()
	s := open(t, dir, embedded.Options{})
	commit(t, s, put("a", nil))
	if err := embedded.Save(&file, s.Revision(), entriesOf(s)); err != nil {
		t.Fatal(err)
	}
	var held *embedded.LockedError
	if _, err := embedded.Restore(dir, "file", bytes.NewReader(file.Bytes())); !errors.As(err, &held) {
		t.Errorf("Restore into a store that is open: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := embedded.Restore(dir, "file", bytes.NewReader(file.Bytes())); err == nil || !strings.Contains(err.Error(), "has a store already") {
		t.Errorf("Restore over a store: %v", err)
	}
}

func isDamage(err error) bool {
	var damage *embedded.CorruptError
	return errors.As(err, &damage)
}

func entriesOf(s *embedded.Store) func(func(*store.Entry) bool) {
	_, entries := s.Entries()
	return entries
}
