// Run is the operator of WorkerGroups: it runs until Ctrl-C, on whatever control plane KUBECONFIG names.
//
//	KUBECONFIG=.setpoint/kubeconfig go run ./examples/workergroup/run
package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client/config"

	"github.com/setpoint-dev/setpoint/controller"
	"github.com/setpoint-dev/setpoint/examples/workergroup"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "run:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	where, err := config.GetConfig()
	if err != nil {
		return err
	}
	types := runtime.NewScheme()
	if err := errors.Join(scheme.AddToScheme(types), workergroup.AddToScheme(types)); err != nil {
		return err
	}
	mgr, err := controller.NewManager(where, controller.ManagerOptions{Scheme: types})
	if err != nil {
		return err
	}
	if err := workergroup.Setup(mgr, office{}); err != nil {
		return err
	}
	slog.Info("looks after worker groups", "at", where.Host)
	return mgr.Start(ctx)
}

// office takes licenses back and says so.
type office struct{}

func (office) Return(_ context.Context, uid string) error {
	slog.Info("license returned", "group", uid)
	return nil
}
