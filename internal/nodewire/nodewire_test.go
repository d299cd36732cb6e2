package nodewire_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/setpoint-dev/setpoint/internal/nodewire"
)

func TestFramesComeBackAsTheyWere(t *testing.T) {
	var wire bytes.Buffer
	w := nodewire.NewWriter(&wire)
	long := bytes.Repeat([]byte("x"), nodewire.PayloadMax+1)
	for _, err := range []error{
		w.Write(nodewire.Start, nil),
		w.Write(nodewire.Stdout, long),
		w.WriteJSON(nodewire.Done, nodewire.Result{ExitCode: 3}),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	type frame struct {
		Kind nodewire.Kind
		Size int
	}
	var got []frame
	var result nodewire.Result
	for r := nodewire.NewReader(&wire); ; {
		kind, payload, err := r.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if kind == nodewire.Done {
			if err := json.Unmarshal(payload, &result); err != nil {
				t.Fatal(err)
			}
			continue
		}
		got = append(got, frame{kind, len(payload)})
	}
	want := []frame{{nodewire.Start, 0}, {nodewire.Stdout, nodewire.PayloadMax}, {nodewire.Stdout, 1}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if result.ExitCode != 3 {
		t.Errorf("the result is %+v", result)
	}
}

func TestAFrameThatIsCutOffIsNoEnd(t *testing.T) {
	for name, text := range map[string]string{
		"in its head":    "\x05\x00\x00",
		"in its payload": "\x05\x00\x00\x00\x04abc",
	} {
		if _, _, err := nodewire.NewReader(bytes.NewBufferString(text)).Next(); err == nil || err == io.EOF {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func FuzzReader(f *testing.F) {
	f.Add([]byte("\x05\x00\x00\x00\x03abc"))
	f.Add([]byte("\x05\xff\xff\xff\xff"))
	f.Fuzz(func(t *testing.T, text []byte) {
		r := nodewire.NewReader(bytes.NewReader(text))
		for {
			_, payload, err := r.Next()
			if err != nil {
				if errors.Is(err, io.EOF) || len(text) > 0 {
					return
				}
				t.Fatal(err)
			}
			if len(payload) > nodewire.PayloadMax {
				t.Fatalf("a payload of %d bytes", len(payload))
			}
		}
	})
}
