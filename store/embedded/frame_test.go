package embedded_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/setpoint-dev/setpoint/store"
	"github.com/setpoint-dev/setpoint/store/embedded"
	"github.com/setpoint-dev/setpoint/store/internal/core"
)

func change() core.Change {
	return core.Change{
		Revision: 1 << 40, Type: store.Delete, Key: store.Key{Resource: "deployments.apps", Path: "a/b"},
		Value: []byte(`{"a":1}`), Origin: "kubectl",
	}
}

func TestFrameIsReadBack(t *testing.T) {
	frame := embedded.Batch(7, change())
	number, changes, err := embedded.Parse(append(frame, "what follows"...))
	if number != 7 || err != nil {
		t.Errorf("number %d, %v; want 7", number, err)
	}
	if diff := cmp.Diff([]core.Change{change()}, changes); diff != "" {
		t.Errorf("changes (-want +got):\n%s", diff)
	}
	for n := range frame {
		if _, _, err := embedded.Parse(frame[:n]); err == nil {
			t.Errorf("%d of %d bytes were read as a frame", n, len(frame))
		}
	}
}

// FuzzFrame looks for bytes that are read as something else, or not survived.
func FuzzFrame(f *testing.F) {
	whole := embedded.Batch(7, change())
	f.Add(whole, uint(30), byte(1))
	f.Add(whole, uint(3), byte(0))
	f.Fuzz(func(t *testing.T, data []byte, at uint, xor byte) {
		_ = embedded.ParseBody(data)
		if _, _, err := embedded.Parse(data); err != nil || xor == 0 {
			return
		}
		number, changes, err := embedded.Parse(whole)
		damaged := append([]byte(nil), whole...)
		damaged[at%uint(len(damaged))] ^= xor
		if n, c, e := embedded.Parse(damaged); e == nil && err == nil && n == number && cmp.Equal(c, changes) {
			t.Errorf("byte %d was changed, and it shows nowhere", at%uint(len(damaged)))
		}
	})
}
