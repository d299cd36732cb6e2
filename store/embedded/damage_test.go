package embedded_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/setpoint-dev/setpoint/store"
	"github.com/setpoint-dev/setpoint/store/embedded"
)

// write fills a directory with n commits and returns the file of its log.
func write(t *testing.T, n int) (dir, segment string) {
	t.Helper()
	dir = t.TempDir()
	s := open(t, dir, embedded.Options{})
	for i := range n {
		commit(t, s, put(fmt.Sprintf("key-%03d", i), fmt.Appendf(nil, "value-%03d-%s", i, strings.Repeat("x", 1500))))
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(dir, "wal", "*.wal"))
	if err != nil || len(files) != 1 {
		t.Fatalf("segments: %v, %v", files, err)
	}
	return dir, files[0]
}

func modify(t *testing.T, file string, change func([]byte)) {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	change(data)
	if err := os.WriteFile(file, data, 0o600); err != nil {
		t.Fatal(err)
	}
}

func isCorrupt(t *testing.T, what, dir, file string) {
	t.Helper()
	for range 2 { // looking must not destroy the evidence
		s, err := embedded.Open(dir, embedded.Options{})
		var corrupt *embedded.CorruptError
		if !errors.As(err, &corrupt) {
			if err == nil {
				s.Close()
			}
			t.Errorf("%s: Open: %v, want a CorruptError", what, err)
			return
		}
		if corrupt.File != file {
			t.Errorf("%s: it names %s, want %s", what, corrupt.File, file)
		}
	}
}

// TestDamageInTheMiddleIsFound flips a bit, zeroes a sector, and zeroes a length in the middle of
// the log. Each is refused with the file and the place, however often one tries.
func TestDamageInTheMiddleIsFound(t *testing.T) {
	for name, damage := range map[string]func(data []byte, at int){
		"a bit of a value":      func(data []byte, at int) { data[at] ^= 1 },
		"a bit of a frame head": func(data []byte, at int) { data[at-80] ^= 4 },
		"a sector":              func(data []byte, at int) { clear(data[at/512*512:][:512]) },
		"many sectors":          func(data []byte, at int) { clear(data[at/512*512:][:512*20]) },
	} {
		t.Run(name, func(t *testing.T) {
			dir, segment := write(t, 100)
			modify(t, segment, func(data []byte) { damage(data, bytes.Index(data, []byte("value-050"))) })
			isCorrupt(t, name, dir, segment)
		})
	}
}

// TestEveryByteOfARecordMatters damages each byte around the start of one record, the library's
// own head included: either the damage is found, or nothing is different (records are padded).
func TestEveryByteOfARecordMatters(t *testing.T) {
	dir, segment := write(t, 20)
	s := open(t, dir, embedded.Options{})
	want := dump(t, s)
	s.Close()
	whole, err := os.ReadFile(segment)
	if err != nil {
		t.Fatal(err)
	}
	start, padding := bytes.Index(whole, []byte("value-010"))-90, 0
	for at := start; at < start+100; at++ {
		modify(t, segment, func(data []byte) {
			copy(data, whole)
			data[at] ^= 0x55
		})
		s, err := embedded.Open(dir, embedded.Options{})
		var corrupt *embedded.CorruptError
		switch {
		case err == nil:
			if got := dump(t, s); got != want {
				t.Errorf("byte %d: the damage was served", at)
			}
			s.Close()
			padding++
		case !errors.As(err, &corrupt):
			t.Errorf("byte %d: Open: %v, want a CorruptError", at, err)
		}
	}
	if padding > 7 {
		t.Errorf("%d damaged bytes made no difference, at most 7 may", padding)
	}
}

// TestTornTailIsCutOff ends the log in the middle of its last record, in the ways a crash can: some
// sectors did not arrive. All before it is there, and what comes after is, too.
func TestTornTailIsCutOff(t *testing.T) {
	const sector = 512
	next := func(at int) int { return (at + sector) / sector * sector }
	for name, tear := range map[string]func(data []byte, start int){
		"nothing arrived":          func(data []byte, start int) { clear(data[start:]) },
		"only the start arrived":   func(data []byte, start int) { clear(data[next(start):]) },
		"the start did not arrive": func(data []byte, start int) { clear(data[start:next(start)]) },
		"a sector did not arrive":  func(data []byte, start int) { clear(data[next(start):][:sector]) },
	} {
		t.Run(name, func(t *testing.T) {
			dir, segment := write(t, 100)
			modify(t, segment, func(data []byte) {
				// Records end with their value, and start at a multiple of eight.
				before := bytes.LastIndex(data[:bytes.Index(data, []byte("value-099"))], []byte("xxx")) + 3
				tear(data, (before+7)/8*8)
			})
			for i := range 3 {
				s := open(t, dir, embedded.Options{})
				if got, want := s.Revision(), store.Revision(99+i); got != want {
					t.Errorf("revision %d, want %d", got, want)
				}
				commit(t, s, put("more", fmt.Append(nil, i)))
				if err := s.Close(); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

func TestMissingFilesAreFound(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, embedded.Options{CheckpointBytes: 1 << 50})
	value := bytes.Repeat([]byte("v"), 1<<20)
	for i := range 40 {
		commit(t, s, put("a", fmt.Append(value, i)))
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	segments, err := filepath.Glob(filepath.Join(dir, "wal", "*.wal"))
	if err != nil || len(segments) < 3 {
		t.Fatalf("segments: %v, %v", segments, err)
	}
	for i, file := range segments[:len(segments)-1] {
		if err := os.Rename(file, file+".away"); err != nil {
			t.Fatal(err)
		}
		named := segments[i+1]
		if i == 0 {
			named = filepath.Join(dir, "wal")
		}
		isCorrupt(t, "without segment", dir, named)
		if err := os.Rename(file+".away", file); err != nil {
			t.Fatal(err)
		}
	}
	// A segment that ends early, at the end of a record, is only seen from the next one.
	data, err := os.ReadFile(segments[0])
	if err != nil {
		t.Fatal(err)
	}
	second := bytes.Index(data[1<<20:], []byte("\xf5SP1")) + 1<<20
	clear(data[second-100:])
	if err := os.WriteFile(segments[0], data, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := embedded.Open(dir, embedded.Options{}); err == nil {
		t.Error("a segment that ends early was accepted")
	}
}

func TestDamagedCheckpointIsFound(t *testing.T) {
	dir := t.TempDir()
	done := make(chan struct{}, 100)
	s, err := embedded.OpenFailing(dir, embedded.Options{CheckpointBytes: 1 << 20}, func(point string) error {
		if point == "checkpointed" {
			done <- struct{}{}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 40 {
		commit(t, s, put(fmt.Sprint(i), fmt.Append(bytes.Repeat([]byte("v"), 64<<10), i)))
	}
	<-done
	// Without a history there is one checkpoint, and so none to fall back on.
	if err := s.Compact(t.Context(), s.Revision()); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(dir, "checkpoint-*"))
	if err != nil || len(files) != 1 {
		t.Fatalf("checkpoints: %v, %v", files, err)
	}
	whole, err := os.ReadFile(files[0])
	if err != nil {
		t.Fatal(err)
	}
	for at := 0; at < len(whole); at += len(whole)/50 + 1 {
		modify(t, files[0], func(data []byte) { copy(data, whole); data[at] ^= 1 })
		isCorrupt(t, fmt.Sprintf("byte %d", at), dir, files[0])
	}
	if err := os.WriteFile(files[0], whole[:len(whole)-5], 0o600); err != nil {
		t.Fatal(err)
	}
	isCorrupt(t, "cut short", dir, files[0])
}
