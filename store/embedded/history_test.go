package embedded_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/setpoint-dev/setpoint/store"
	"github.com/setpoint-dev/setpoint/store/embedded"
)

// past is a store that has written several checkpoints, and what it said at each revision.
type past struct {
	dir    string
	states map[store.Revision]string
	newest store.Revision
}

var pastOptions = embedded.Options{CheckpointBytes: 256 << 10}

// writePast returns the directory of a store that is closed, and has one checkpoint at least for each
// quarter of what it has written.
func writePast(t *testing.T) past {
	t.Helper()
	p := past{dir: t.TempDir(), states: map[store.Revision]string{}}
	done := make(chan struct{}, 100)
	s, err := embedded.OpenFailing(p.dir, pastOptions, func(point string) error {
		if point == "checkpointed" {
			done <- struct{}{}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 100 {
		op := put(fmt.Sprint(i*7%10), fmt.Append(bytes.Repeat([]byte("v"), 16<<10), i))
		if i%5 == 4 {
			op.Type = store.Delete
		}
		r := commit(t, s, op)
		p.states[r] = dump(t, s)
		if i%25 == 24 {
			<-done
		}
	}
	p.newest = s.Revision()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	return p
}

// compare looks for what the store once said about each revision that it has, and returns the first.
func (p past) compare(t *testing.T, s *embedded.Store) store.Revision {
	t.Helper()
	if s.Revision() != p.newest {
		t.Fatalf("revision %d, want %d", s.Revision(), p.newest)
	}
	begin := s.Compacted()
	for r := max(begin, 1); r <= p.newest; r++ {
		at, err := s.SnapshotAt(t.Context(), r)
		if err != nil {
			t.Fatalf("SnapshotAt(%d) of a history from %d: %v", r, begin, err)
		}
		if dumpOf(at) != p.states[r] {
			t.Fatalf("revision %d is another than it was", r)
		}
	}
	w, err := s.Watch("pods", "", begin)
	if err != nil {
		t.Fatal(err)
	}
	for next := begin + 1; ; {
		events, err := w.TryNext()
		if err != nil || len(events) == 0 {
			if next != p.newest+1 {
				t.Errorf("the watch ended before revision %d with %v, want %d", next, err, p.newest)
			}
			return begin
		}
		for _, e := range events {
			if e.Entry.Revision != next {
				t.Fatalf("revision %d is watched after %d", e.Entry.Revision, next-1)
			}
			next++
		}
	}
}

func checkpointsIn(t *testing.T, dir string) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "checkpoint-*"))
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(files)
	return files
}

// TestHistorySurvivesARestart looks at every revision of the window after a restart, though there were
// checkpoints in it, and at it again when it has become shorter.
func TestHistorySurvivesARestart(t *testing.T) {
	p := writePast(t)
	if n := len(checkpointsIn(t, p.dir)); n < 4 {
		t.Fatalf("%d checkpoints, want several", n)
	}
	s := open(t, p.dir, pastOptions)
	if begin := p.compare(t, s); begin != 0 {
		t.Errorf("the history begins at %d after a restart, want 0", begin)
	}
	if err := s.Compact(t.Context(), p.newest/2); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	// What was compacted is gone from the disk up to the checkpoint before.
	s = open(t, p.dir, pastOptions)
	if begin := p.compare(t, s); begin == 0 || begin > p.newest/2 {
		t.Errorf("compacted to %d, the history begins at %d after a restart", p.newest/2, begin)
	}
}

// TestHistoryAfterARestartIsBounded opens a store with less history than it was written with.
func TestHistoryAfterARestartIsBounded(t *testing.T) {
	p := writePast(t)
	options := pastOptions
	options.HistoryBytes = 400 << 10
	s := open(t, p.dir, options)
	if begin := p.compare(t, s); begin == 0 {
		t.Error("a history of 400 KB holds 1.6 MB")
	}
	s.Close()
	if files := checkpointsIn(t, p.dir); len(files) > 4 {
		t.Errorf("checkpoints that nothing needs are still there: %v", files)
	}
	synctest.Test(t, func(t *testing.T) {
		<-time.After(100 * 365 * 24 * time.Hour) // long after it was written
		s, err := embedded.Open(p.dir, pastOptions)
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		if s.Compacted() != s.Revision() {
			t.Errorf("history of a hundred years ago can be read from %d to %d", s.Compacted(), s.Revision())
		}
	})
}

// TestDamageBeforeTheNewestCheckpointLosesHistoryOnly has a later checkpoint stand in for an older one
// that is damaged, and for the log between them.
func TestDamageBeforeTheNewestCheckpointLosesHistoryOnly(t *testing.T) {
	flip := func(t *testing.T, file string, at int64) {
		modify(t, file, func(data []byte) { data[at] ^= 1 })
	}
	for name, damage := range map[string]func(t *testing.T, p past, files []string){
		"the oldest checkpoint": func(t *testing.T, p past, files []string) { flip(t, files[0], 25) },
		"all but the newest": func(t *testing.T, p past, files []string) {
			for _, file := range files[:len(files)-1] {
				flip(t, file, 25)
			}
		},
		"the newest, which is not needed": func(t *testing.T, p past, files []string) {
			flip(t, files[len(files)-1], 21)
		},
		"the log": func(t *testing.T, p past, files []string) {
			segments, err := filepath.Glob(filepath.Join(p.dir, "wal", "*.wal"))
			if err != nil {
				t.Fatal(err)
			}
			flip(t, segments[0], 40<<10)
		},
	} {
		t.Run(name, func(t *testing.T) {
			embedded.SetSegmentBytes(128 << 10)
			defer embedded.SetSegmentBytes(embedded.SegmentBytes)
			p := writePast(t)
			damage(t, p, checkpointsIn(t, p.dir))
			for range 2 {
				s := open(t, p.dir, pastOptions)
				if begin := p.compare(t, s); begin > p.newest*4/5 {
					t.Errorf("the history begins at %d of %d", begin, p.newest)
				}
				s.Close()
			}
		})
	}
}

// TestDamagedLogIsFoundInAnySegment flips a bit in each of many segments after the only checkpoint.
func TestDamagedLogIsFoundInAnySegment(t *testing.T) {
	embedded.SetSegmentBytes(128 << 10)
	defer embedded.SetSegmentBytes(embedded.SegmentBytes)
	dir := t.TempDir()
	s := open(t, dir, embedded.Options{})
	for i := range 100 {
		commit(t, s, put(fmt.Sprint(i), bytes.Repeat([]byte("v"), 16<<10)))
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	segments, err := filepath.Glob(filepath.Join(dir, "wal", "*.wal"))
	if err != nil || len(segments) < 5 {
		t.Fatalf("segments %v, %v; want several", segments, err)
	}
	for _, file := range segments[:len(segments)-1] {
		whole, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for at := 100; at < 128<<10; at += 1021 {
			modify(t, file, func(data []byte) { data[at] ^= 1 })
			_, err := embedded.Open(dir, embedded.Options{})
			var damage *embedded.CorruptError
			if !errors.As(err, &damage) {
				t.Errorf("byte %d of %s: Open: %v, want a CorruptError", at, filepath.Base(file), err)
			}
			if err := os.WriteFile(file, whole, 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
}
