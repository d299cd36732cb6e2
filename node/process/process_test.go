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
