package flux

import (
	"bytes"
	"strings"
	"sync"
	"testing"
	"time"
)

// output is what a program printed so far.
type output struct {
	mu   sync.Mutex
	text bytes.Buffer
	grew chan struct{}
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	select {
	case o.grew <- struct{}{}:
	default:
	}
	return o.text.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

// await returns when the program has printed a text.
func (o *output) await(t *testing.T, text string) {
	t.Helper()
	late := time.After(5 * time.Minute)
	for !strings.Contains(o.String(), text) {
		select {
		case <-o.grew:
		case <-late:
			t.Fatalf("never printed %q", text)
		}
	}
}
