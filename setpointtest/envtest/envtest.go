// Package envtest has the shape of controller-runtime's package of that name, for test suites that
// were written for it: they change the import and need no binaries any more.
//
//	import "github.com/setpoint-dev/setpoint/setpointtest/envtest"
//
//	testEnv = &envtest.Environment{}
//	cfg, err := testEnv.Start()
//	…
//	err = testEnv.Stop()
//
// As there, no controllers run unless they are asked for: suites that set the status of Deployments
// by hand would meet a controller that knows better. New tests are better served by package
// setpointtest, which this one is beside.
package envtest

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"

	"github.com/setpoint-dev/setpoint"
	"github.com/setpoint-dev/setpoint/kinds"
)

// Environment is a control plane for a test suite. Its methods are not for concurrent use.
type Environment struct {
	// Config is an administrator's, set by Start.
	Config *rest.Config
	// KubeConfig is a kubeconfig of an administrator, set by Start if there is a port.
	KubeConfig []byte

	// Controllers names the built-in controllers to run, as setpoint.Options does. Empty runs none.
	Controllers []string
	// Kinds are served beside the built-in ones.
	Kinds []*kinds.Kind
	// Listen is the address to serve HTTPS on, such as "127.0.0.1:0". Empty opens no port: Config
	// calls the server in the process.
	Listen string

	// CRDDirectoryPaths and ErrorIfCRDPathMissing are there so that suites compile.
	// CustomResourceDefinitions are not served, and Start says so; see Kinds.
	CRDDirectoryPaths     []string
	ErrorIfCRDPathMissing bool
	// Scheme, BinaryAssetsDirectory and DownloadBinaryAssets are there so that suites compile, and
	// have nothing to choose here.
	Scheme                *runtime.Scheme
	BinaryAssetsDirectory string
	DownloadBinaryAssets  bool

	running *setpoint.ControlPlane
}

// Start starts the control plane and returns an administrator's configuration. It runs until Stop.
func (e *Environment) Start() (*rest.Config, error) {
	if e.running != nil {
		return nil, errors.New("envtest: Start was called twice")
	}
	if len(e.CRDDirectoryPaths) > 0 {
		return nil, fmt.Errorf("envtest: CRDDirectoryPaths names %s: CustomResourceDefinitions are not served; "+
			"give the kinds in Kinds", strings.Join(e.CRDDirectoryPaths, ", "))
	}
	controllers := e.Controllers
	if len(controllers) == 0 {
		controllers = []string{"none"}
	}
	cp, err := setpoint.New(setpoint.Options{Controllers: controllers, Kinds: e.Kinds, Listen: e.Listen})
	if err != nil {
		return nil, fmt.Errorf("envtest: %w", err)
	}
	if err = cp.Start(context.Background()); err == nil && e.Listen != "" {
		e.KubeConfig, err = cp.Kubeconfig()
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("envtest: %w", err), cp.Stop())
	}
	e.running, e.Config = cp, cp.RESTConfig()
	return e.Config, nil
}

// Stop ends the control plane and returns when nothing of it runs any more. To stop what does not
// run is no error.
func (e *Environment) Stop() error {
	if e.running == nil {
		return nil
	}
	cp := e.running
	e.running = nil
	return cp.Stop()
}
