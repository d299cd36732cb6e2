package wire_test

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/setpoint-dev/setpoint/conformance/server"
	"github.com/setpoint-dev/setpoint/conformance/wire"
)

// TestAnswersAreThoseOfKubernetes sends every script to Setpoint and compares what it answers with what
// was recorded. No controllers run: the answers are the server's alone, and the revisions too.
func TestAnswersAreThoseOfKubernetes(t *testing.T) {
	files, err := filepath.Glob(filepath.Join("testdata", "*.txtar"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no scripts: %v", err)
	}
	to, err := wire.Connect(server.Start(t, "server", "--controllers=none").Config)
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			script, err := wire.Load(file)
			if err != nil {
				t.Fatal(err)
			}
			err = to.Run(t.Context(), script, func(r *wire.Request, answer string) {
				diff := cmp.Diff(r.Answer, answer)
				if diff == "" && r.Differs != "" {
					t.Errorf("%s: the answer is Kubernetes', and is said to differ: %s", r.Name, r.Differs)
				}
				if diff != "" && r.Differs == "" {
					t.Errorf("%s: %s %s (-Kubernetes +Setpoint):\n%s", r.Name, r.Method, r.Path, diff)
				}
			})
			if err != nil {
				t.Fatal(err)
			}
		})
	}
}
