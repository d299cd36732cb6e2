package embedded_test

import (
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/setpoint-dev/setpoint/store"
	"github.com/setpoint-dev/setpoint/store/embedded"
)

// imageBytes is more of the segment than the test writes.
const imageBytes = 1 << 20

// image is what the log's segment has on disk.
func image(t *testing.T, dir string) []byte {
	t.Helper()
	f, err := os.Open(segmentOf(t, dir))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	data := make([]byte, imageBytes)
	if _, err := io.ReadFull(f, data); err != nil {
		t.Fatal(err)
	}
	return data
}

func segmentOf(t *testing.T, dir string) string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(dir, "wal", "*.wal"))
	if err != nil || len(found) != 1 {
		t.Fatalf("segments %v, %v; want one", found, err)
	}
	return found[0]
}

// TestPowerLossDuringAWrite_B013 takes the disk's state before each batch and after its sync. The
// power may go at any time between them, and then any of the sectors that were written may have
// arrived and any not, in whatever order. What was synced before is there all the same, and the
// batch is there as a whole or not at all.
func TestPowerLossDuringAWrite_B013(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 0))
	dir := filepath.Join(t.TempDir(), "data")
	var before, after []byte
	s, err := embedded.OpenFailing(dir, embedded.Options{}, func(point string) error {
		switch point {
		case "append":
			before = image(t, dir)
		case "appended":
			after = image(t, dir)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for i := range 24 {
		was := dump(t, s)
		var ops []store.Op
		for k := range 1 + rnd.IntN(3) {
			value := bytes.Repeat([]byte{byte('a' + rnd.IntN(26))}, 1+rnd.IntN(4000))
			ops = append(ops, put(fmt.Sprint(k), fmt.Appendf(value, " %d", i)))
		}
		revision := commit(t, s, ops...)
		now := dump(t, s)
		for range 6 {
			lost := filepath.Join(t.TempDir(), "lost")
			segment := filepath.Join(lost, "wal", filepath.Base(segmentOf(t, dir)))
			writeImage(t, segment, mixed(rnd, before, after))
			reopened := open(t, lost, embedded.Options{})
			if got := dump(t, reopened); got != was && got != now {
				t.Fatalf("batch %d is there by half, or what was synced before is not:\n%.200s", i, got)
			}
			if r := commit(t, reopened, put("next", nil)); r < revision {
				t.Errorf("the next revision is %d, and %d had been seen", r, revision-1)
			}
			if err := reopened.Close(); err != nil {
				t.Error(err)
			}
		}
	}
}

// mixed takes each sector from one of two images.
func mixed(rnd *rand.Rand, a, b []byte) []byte {
	const sector = 512 // what a disk writes as a whole, at least
	out := bytes.Clone(a)
	for at := 0; at < len(a); at += sector {
		if rnd.IntN(2) == 0 {
			copy(out[at:at+sector], b[at:])
		}
	}
	return out
}

func writeImage(t *testing.T, path string, data []byte) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(path, embedded.SegmentBytes); err != nil {
		t.Fatal(err)
	}
}

// TestSlowSyncDelaysNoReader has a disk that takes its time: reads and watches go on with what is
// durable, and the commits that come meanwhile share the next sync.
func TestSlowSyncDelaysNoReader(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		syncs := 0
		s, err := embedded.OpenFailing(dir, embedded.Options{}, func(point string) error {
			if point == "append" {
				syncs++
				<-time.After(10 * time.Second)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		commit(t, s, put("first", []byte("1")))
		w, err := s.Watch("pods", "", 0)
		if err != nil {
			t.Fatal(err)
		}
		const writers = 50
		done := make(chan error, writers+1)
		write := func(path string) {
			_, err := s.Commit(t.Context(), put(path, []byte("1")))
			done <- err
		}
		go write("slow")
		synctest.Wait()
		for i := range writers {
			go write(fmt.Sprint(i))
		}
		synctest.Wait()
		begun := time.Now()
		if events, err := w.TryNext(); len(events) != 1 || err != nil || s.Revision() != 1 || dump(t, s) == "" {
			t.Errorf("while a sync takes long: %d events, %v, revision %d", len(events), err, s.Revision())
		}
		if d := time.Since(begun); d > 0 {
			t.Errorf("reads took %v", d)
		}
		for range writers + 1 {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
		if syncs != 3 {
			t.Errorf("%d syncs for one commit, one more, and %d at once", syncs, writers)
		}
	})
}
