// Run is a control plane that knows WorkerGroups, with the operator that makes them true, in one
// process; the workers are processes on this machine.
//
//	go run ./examples/workergroup/run
//
// What it keeps is in the folder workergroup of the machine's folder for temporary files.
package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/setpoint-dev/setpoint"
	"github.com/setpoint-dev/setpoint/controller"
	"github.com/setpoint-dev/setpoint/examples/workergroup"
	"github.com/setpoint-dev/setpoint/kinds"
	"github.com/setpoint-dev/setpoint/node/process"
)

func main() {
	// The node starts this program again, as the keeper of each worker's process.
	if handled, code := process.Main(os.Args); handled {
		os.Exit(code)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "run:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	dir := filepath.Join(os.TempDir(), "workergroup")
	cp, err := setpoint.New(setpoint.Options{
		DataDir: dir,
		Listen:  "127.0.0.1:7443",
		Kinds:   []*kinds.Kind{workergroup.Kind()},
		Node:    &setpoint.NodeOptions{Name: "here"},
	})
	if err != nil {
		return err
	}
	if err := cp.Start(ctx); err != nil {
		return errors.Join(err, cp.Stop())
	}
	return errors.Join(operate(ctx, cp, filepath.Join(dir, "kubeconfig")), cp.Stop())
}

// operate writes a kubeconfig and runs the operator until the context ends.
func operate(ctx context.Context, cp *setpoint.ControlPlane, path string) error {
	kubeconfig, err := cp.Kubeconfig()
	if err != nil {
		return err
	}
	if err := os.WriteFile(path, kubeconfig, 0o600); err != nil {
		return err
	}
	types := runtime.NewScheme()
	if err := errors.Join(scheme.AddToScheme(types), workergroup.AddToScheme(types)); err != nil {
		return err
	}
	mgr, err := controller.NewManager(cp.RESTConfig(), controller.ManagerOptions{Scheme: types})
	if err != nil {
		return err
	}
	if err := workergroup.Setup(mgr, office{}); err != nil {
		return err
	}
	fmt.Println("export KUBECONFIG=" + path)
	return mgr.Start(ctx)
}

// office takes licenses back and says so.
type office struct{}

func (office) Return(_ context.Context, uid string) error {
	slog.Info("license returned", "group", uid)
	return nil
}
