package process_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/setpoint-dev/setpoint/node"
	"github.com/setpoint-dev/setpoint/node/process"
	"github.com/setpoint-dev/setpoint/node/runtimetest"
)

func TestMain(m *testing.M) {
	if handled, code := process.Main(os.Args); handled {
		os.Exit(code)
	}
	os.Exit(m.Run())
}

// open opens a runtime on dir, closed with the test.
func open(t *testing.T, dir string) *process.Runtime {
	t.Helper()
	r, err := process.New(process.Options{
		StateDir:   filepath.Join(dir, "state"),
		AddressDir: filepath.Join(dir, "addresses"),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close() })
	return r
}

func TestRuntime(t *testing.T) {
	dir := t.TempDir()
	// Closed with the whole test: each check removes its pods at its own end.
	runtimetest.Run(t, func(*testing.T) node.Runtime { return open(t, dir) })
}

// TestUnfinishedPodIsSwept leaves what a kill in the middle of CreatePod or RemovePod does.
func TestUnfinishedPodIsSwept(t *testing.T) {
	dir := t.TempDir()
	r := open(t, dir)
	if _, err := r.CreatePod(t.Context(), node.PodConfig{UID: "whole", Namespace: "ns", Name: "whole"}); err != nil {
		t.Fatal(err)
	}
	r.Close()
	part := filepath.Join(dir, "state", "pods", "part", "containers", "c", "0")
	if err := os.MkdirAll(part, 0o750); err != nil {
		t.Fatal(err)
	}
	r = open(t, dir)
	left, err := os.ReadDir(filepath.Join(dir, "state", "pods"))
	if err != nil {
		t.Fatal(err)
	}
	pods, err := r.Pods(t.Context())
	if len(left) != 1 || len(pods) != 1 || pods[0].UID != "whole" || err != nil {
		t.Errorf("after the restart: directories %v, pods %v, error %v; want the whole pod alone", left, pods, err)
	}
}
