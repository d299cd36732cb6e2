package embedded_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/setpoint-dev/setpoint/store"
	"github.com/setpoint-dev/setpoint/store/embedded"
	"github.com/setpoint-dev/setpoint/store/storetest"
)

// writeDamageable returns a directory with a checkpoint and a log after it, and what each key has.
func writeDamageable(t *testing.T) (dir string, want map[string]string) {
	t.Helper()
	dir, want = t.TempDir(), map[string]string{}
	never := embedded.Options{CheckpointBytes: 1 << 40}
	writeRange(t, dir, never, want, 0, 100)
	done := make(chan struct{}, 10)
	s, err := embedded.OpenFailing(dir, embedded.Options{CheckpointBytes: 1}, func(point string) error {
		if point == "checkpointed" {
			done <- struct{}{}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	commit(t, s, put("tick", []byte("tick")))
	want["tick"] = "tick"
	<-done
	if err := s.Compact(t.Context(), s.Revision()); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if files := checkpointsIn(t, dir); len(files) != 1 {
		t.Fatalf("checkpoints %v, want one", files)
	}
	writeRange(t, dir, never, want, 100, 130)
	return dir, want
}

func writeRange(t *testing.T, dir string, options embedded.Options, want map[string]string, from, to int) {
	t.Helper()
	s := open(t, dir, options)
	for i := from; i < to; i++ {
		key := fmt.Sprintf("key-%03d", i%70)
		op := put(key, fmt.Appendf(nil, "value-%03d-%s", i, strings.Repeat("x", 1000)))
		if want[key] = string(op.Value); i%11 == 10 {
			op.Type = store.Delete
			delete(want, key)
		}
		other := put(fmt.Sprintf("other-%03d", i%20), fmt.Appendf(nil, "other-value-%03d", i))
		want[other.Key.Path] = string(other.Value)
		commit(t, s, op, other)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

func salvage(t *testing.T, dir string) (*embedded.Salvaged, map[string]string) {
	t.Helper()
	s, err := embedded.Salvage(dir)
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for e := range s.Entries() {
		got[e.Key.Path] = string(e.Value)
	}
	return s, got
}

// TestB020_OneDamagedObjectIsNamedAndTheRestKept flips a bit of one value, in the checkpoint and in the
// log. Nothing is served then; what is salvaged has all other objects, and says which one is not there.
func TestB020_OneDamagedObjectIsNamedAndTheRestKept(t *testing.T) {
	for name, pattern := range map[string]string{"checkpoint": "checkpoint-*", "log": "wal/*.wal"} {
		t.Run(name, func(t *testing.T) {
			dir, want := writeDamageable(t)
			files, err := filepath.Glob(filepath.Join(dir, pattern))
			if err != nil || len(files) == 0 {
				t.Fatalf("files %v, %v", files, err)
			}
			file, value := files[len(files)-1], "value-099"
			if name == "log" {
				value = "value-125"
			}
			modify(t, file, func(data []byte) { data[bytes.Index(data, []byte(value))+50] ^= 4 })
			isCorrupt(t, name, dir, file)
			key := fmt.Sprintf("key-%03d", map[string]int{"value-099": 99 % 70, "value-125": 125 % 70}[value])

			s, got := salvage(t, dir)
			if len(s.Lost) != 1 || s.Lost[0].Key.Path != key || !strings.Contains(s.Lost[0].String(), "pods/"+key+": its checksum is") {
				t.Fatalf("lost: %v, want %s", s.Lost, key)
			}
			if why, ok := store.Unreadable([]byte(got[key])); !ok || !strings.Contains(why, "checksum") {
				t.Errorf("%s is %q, want a mark that it cannot be read", key, got[key])
			}
			checkRestored(t, s, want, key)
		})
	}
}

// checkRestored makes a store of what was salvaged and looks what it has.
func checkRestored(t *testing.T, s *embedded.Salvaged, want map[string]string, lost string) {
	t.Helper()
	var file bytes.Buffer
	if err := embedded.Save(&file, s.Revision, s.Entries()); err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "restored")
	if _, err := embedded.Restore(dir, "file", &file); err != nil {
		t.Fatal(err)
	}
	restored := open(t, dir, embedded.Options{})
	snapshot, err := restored.Snapshot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for path, value := range want {
		e := snapshot.Get(store.Key{Resource: "pods", Path: path})
		if e == nil {
			t.Errorf("%s is missing", path)
			continue
		}
		if _, damaged := store.Unreadable(e.Value); damaged != (path == lost) || !damaged && string(e.Value) != value {
			t.Errorf("%s is %.20q, want %.20q", path, e.Value, value)
		}
	}
	if n := snapshot.Count("pods", store.ListOptions{}); n != len(want) {
		t.Errorf("%d objects, want %d", n, len(want))
	}
}

// TestDamageAnywhereIsNeverServed changes bytes at random places of all files. Either it makes no
// difference, or the store is refused; and what is salvaged then is what was written last, or named
// as lost, or it is said that something cannot be named.
func TestDamageAnywhereIsNeverServed(t *testing.T) {
	embedded.SetSegmentBytes(128 << 10)
	defer embedded.SetSegmentBytes(embedded.SegmentBytes)
	seed := storetest.Seed(t)
	rnd := rand.New(rand.NewPCG(seed, 0))
	dir, want := writeDamageable(t)
	refused, named := 0, 0
	for range 300 {
		damaged := copyStore(t, dir)
		what := fmt.Sprintf("seed %d: %s", seed, damageOne(t, rnd, damaged))
		s, err := embedded.Open(damaged, embedded.Options{})
		if err == nil {
			checkServed(t, what, s, want)
			s.Close()
			continue
		}
		if !isDamage(err) {
			t.Errorf("%s: Open: %v, want a CorruptError", what, err)
		}
		refused++
		salvaged, got := salvage(t, damaged)
		named += checkSalvaged(t, what, salvaged, got, want)
		if t.Failed() {
			return
		}
	}
	t.Logf("%d refused, %d objects named", refused, named)
	if refused < 200 || named < 100 {
		t.Errorf("%d of 300 were refused, and %d objects named", refused, named)
	}
}

// copyStore copies what a store is read from.
func copyStore(t *testing.T, dir string) (to string) {
	t.Helper()
	to = t.TempDir()
	if err := os.Mkdir(filepath.Join(to, "wal"), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, file := range append(checkpointsIn(t, dir), segmentsIn(t, dir)...) {
		data, err := os.ReadFile(file)
		if err == nil {
			err = os.WriteFile(filepath.Join(to, strings.TrimPrefix(file, dir)), data, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return to
}

func segmentsIn(t *testing.T, dir string) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "wal", "*.wal"))
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// damageOne changes some bytes of a file that were written, and says which. It leaves the end of the
// log alone: that it is damaged cannot be told from that it was never written.
func damageOne(t *testing.T, rnd *rand.Rand, dir string) string {
	t.Helper()
	files := append(checkpointsIn(t, dir), segmentsIn(t, dir)...)
	file := files[rnd.IntN(len(files))]
	at, length := 0, 1+rnd.IntN(2)*rnd.IntN(700)
	modify(t, file, func(data []byte) {
		used := len(bytes.TrimRight(data, "\x00"))
		if strings.HasSuffix(file, ".wal") && bytes.Contains(data, []byte("other-value-129")) {
			used = bytes.Index(data, []byte("other-value-128"))
		}
		at = rnd.IntN(used)
		for i := at; i < min(at+length, used); i++ {
			data[i] ^= byte(1 + rnd.IntN(255))
		}
	})
	return fmt.Sprintf("%d bytes from %d of %s", length, at, filepath.Base(file))
}

func checkServed(t *testing.T, what string, s *embedded.Store, want map[string]string) {
	t.Helper()
	snapshot, err := s.Snapshot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	entries, _ := snapshot.List("pods", store.ListOptions{})
	if len(entries) != len(want) {
		t.Errorf("%s: %d objects are served of %d", what, len(entries), len(want))
	}
	for _, e := range entries {
		if string(e.Value) != want[e.Key.Path] {
			t.Errorf("%s: %s is served as %.20q, want %.20q", what, e.Key, e.Value, want[e.Key.Path])
		}
	}
}

// checkSalvaged returns how many objects are named as lost.
func checkSalvaged(t *testing.T, what string, s *embedded.Salvaged, got, want map[string]string) (named int) {
	t.Helper()
	unknown := false
	lost := map[string]bool{}
	for _, l := range s.Lost {
		unknown = unknown || l.Key.Path == ""
		lost[l.Key.Path] = l.Key.Path != ""
	}
	for path, value := range want {
		_, marked := store.Unreadable([]byte(got[path]))
		switch {
		case lost[path] != marked:
			t.Errorf("%s: %s is said to be lost: %v, and marked: %v", what, path, lost[path], marked)
		case marked:
			named++
		case got[path] != value && !unknown:
			t.Errorf("%s: %s is %.20q, want %.20q; lost: %v", what, path, got[path], value, s.Lost)
		}
	}
	return named
}
