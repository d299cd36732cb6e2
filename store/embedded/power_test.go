package embedded_test

import (
	"bytes"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/setpoint-dev/setpoint/store"
	"github.com/setpoint-dev/setpoint/store/embedded"
	"github.com/setpoint-dev/setpoint/store/storetest"
)

// image is what the log has on disk, by the names of its files.
type image map[string][]byte

func imageOf(t *testing.T, dir string) image {
	t.Helper()
	all := image{}
	for _, file := range segmentsIn(t, dir) {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		all[filepath.Base(file)] = data
	}
	return all
}

// TestB013_PowerLossDuringAWrite takes the disk's state before each batch and after its sync, over many
// files of the log. The power may go at any time between them, and then any of the sectors that were
// written may have arrived and any not, in whatever order. What was synced before is there all the
// same, and the batch is there as a whole or not at all.
func TestB013_PowerLossDuringAWrite(t *testing.T) {
	embedded.SetSegmentBytes(64 << 10)
	defer embedded.SetSegmentBytes(embedded.SegmentBytes)
	rnd := rand.New(rand.NewPCG(storetest.Seed(t), 0))
	dir := filepath.Join(t.TempDir(), "data")
	var before, after image
	s, err := embedded.OpenFailing(dir, embedded.Options{}, func(point string) error {
		switch point {
		case "append":
			before = imageOf(t, dir)
		case "appended":
			after = imageOf(t, dir)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for i := range 48 {
		was := dump(t, s)
		var ops []store.Op
		for k := range 1 + rnd.IntN(3) {
			value := bytes.Repeat([]byte{byte('a' + rnd.IntN(26))}, 1+rnd.IntN(6000))
			ops = append(ops, put(fmt.Sprint(k), fmt.Appendf(value, " %d", i)))
		}
		revision := commit(t, s, ops...)
		now := dump(t, s)
		for range 4 {
			lost := filepath.Join(t.TempDir(), "lost")
			writeImage(t, lost, mixed(rnd, before, after))
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
	if n := len(after); n < 4 {
		t.Errorf("the log has %d files, want several", n)
	}
}

// mixed takes each sector from one of two images. A file that only the second has got its name after
// it and the one before it were synced, so it is there as a whole, with that, or not at all.
func mixed(rnd *rand.Rand, a, b image) image {
	const sector = 512 // what a disk writes as a whole, at least
	out := maps.Clone(a)
	next := len(b) > len(a) && rnd.IntN(2) == 0
	for name, data := range b {
		switch old, ok := a[name]; {
		case next:
			out[name] = data
		case ok:
			mix := bytes.Clone(old)
			for at := 0; at < min(len(old), len(data)); at += sector {
				if end := min(at+sector, len(old), len(data)); rnd.IntN(2) == 0 {
					copy(mix[at:end], data[at:end])
				}
			}
			out[name] = mix
		}
	}
	return out
}

func writeImage(t *testing.T, dir string, files image) {
	t.Helper()
	dir = filepath.Join(dir, "wal")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	for name, data := range files {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
			t.Fatal(err)
		}
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
