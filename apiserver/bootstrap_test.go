package apiserver_test

import (
	"testing"

	"github.com/setpoint-dev/setpoint/apiserver"
	"github.com/setpoint-dev/setpoint/kinds"
	"github.com/setpoint-dev/setpoint/kinds/builtin"
	"github.com/setpoint-dev/setpoint/store/memory"
)

// TestBootstrapAgain starts servers on one store, as restarts do, after somebody has written too.
func TestBootstrapAgain(t *testing.T) {
	s := memory.New(memory.Options{})
	defer s.Close()
	for start := range 3 {
		server, err := apiserver.New(apiserver.Options{Store: s, Kinds: kinds.NewRegistry(builtin.Set())})
		if err != nil {
			t.Fatal(err)
		}
		before := s.Revision()
		if err := server.Bootstrap(t.Context()); err != nil {
			t.Fatalf("start %d: %v", start, err)
		}
		if wrote := s.Revision() != before; wrote != (start == 0) {
			t.Errorf("start %d: wrote %v; only the first has something to write", start, wrote)
		}
	}
}
