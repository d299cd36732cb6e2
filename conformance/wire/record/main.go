// Record writes down what a Kubernetes API server answers to scripts:
//
//	go run ./wire/record -binaries FOLDER wire/testdata/*.txtar
//
// FOLDER holds the programs etcd and kube-apiserver, of the version that Setpoint speaks as. They run
// while it does, with no controllers beside them. Read what it has written before you commit it.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"

	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/setpoint-dev/setpoint/conformance/wire"
)

func main() {
	binaries := flag.String("binaries", "", "`folder` of etcd and kube-apiserver")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := record(ctx, *binaries, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "record:", err)
		os.Exit(1)
	}
}

func record(ctx context.Context, binaries string, files []string) (err error) {
	env := &envtest.Environment{BinaryAssetsDirectory: binaries}
	// The service account that a pod has is filled in, as it is everywhere but in envtest.
	env.ControlPlane.GetAPIServer().Configure().Disable("disable-admission-plugins")
	config, err := env.Start()
	if err != nil {
		return err
	}
	defer func() {
		if stopErr := env.Stop(); err == nil {
			err = stopErr
		}
	}()
	config.QPS = -1
	from, err := wire.Connect(config)
	if err != nil {
		return err
	}
	for _, file := range files {
		script, err := wire.Load(file)
		if err != nil {
			return err
		}
		err = from.Run(ctx, script, func(r *wire.Request, answer string) { r.Answer = answer })
		if err != nil {
			return err
		}
		if err := script.Write(file); err != nil {
			return err
		}
		fmt.Printf("%s: %d answers\n", file, len(script.Requests))
	}
	return nil
}
