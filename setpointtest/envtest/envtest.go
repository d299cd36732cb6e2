// Package envtest has the shape of controller-runtime's package of that name, for test suites that
// were written for it: they change the import and need no binaries any more.
//
//	import "github.com/setpoint-dev/setpoint/setpointtest/envtest"
//
//	testEnv = &envtest.Environment{
//		CRDDirectoryPaths:     []string{filepath.Join("..", "..", "config", "crd", "bases")},
//		ErrorIfCRDPathMissing: true,
//	}
//	cfg, err := testEnv.Start()
//	…
//	err = testEnv.Stop()
//
// As there, no controllers run unless they are asked for: suites that set the status of Deployments
// by hand would meet a controller that knows better. New tests are better served by package
// setpointtest, which this one is beside.
//
// What a suite could say about etcd and kube-apiserver as programs (ControlPlane, flags, where their
// output goes) has nothing to mean here and is missing, so that a suite which depends on it does not
// compile.
package envtest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	clientconfig "sigs.k8s.io/controller-runtime/pkg/client/config"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/setpoint-dev/setpoint"
	"github.com/setpoint-dev/setpoint/kinds"
)

// What is controller-runtime's own, under the names that suites use.
type (
	// CRDInstallOptions say which CustomResourceDefinitions to install, and how long to wait for them.
	CRDInstallOptions = envtest.CRDInstallOptions
	// WebhookInstallOptions say which webhooks to install, and where the suite's own server of them
	// listens and finds its certificate.
	WebhookInstallOptions = envtest.WebhookInstallOptions
	// User is a name and groups.
	User = envtest.User
)

// InstallCRDs, UninstallCRDs, ReadCRDFiles, CreateCRDs and WaitForCRDs are controller-runtime's.
var (
	InstallCRDs   = envtest.InstallCRDs
	UninstallCRDs = envtest.UninstallCRDs
	ReadCRDFiles  = envtest.ReadCRDFiles
	CreateCRDs    = envtest.CreateCRDs
	WaitForCRDs   = envtest.WaitForCRDs
)

// Environment is a control plane for a test suite. Its methods are not for concurrent use.
type Environment struct {
	// Config is an administrator's, set by Start.
	Config *rest.Config
	// KubeConfig is a kubeconfig of an administrator, set by Start if there is a port.
	KubeConfig []byte

	// CRDInstallOptions, CRDs, CRDDirectoryPaths, ErrorIfCRDPathMissing and Scheme say what Start
	// installs, as they do for controller-runtime: those given outside the options are added to them.
	CRDInstallOptions     CRDInstallOptions
	CRDs                  []*apiextensionsv1.CustomResourceDefinition
	CRDDirectoryPaths     []string
	ErrorIfCRDPathMissing bool
	Scheme                *runtime.Scheme

	// WebhookInstallOptions say which webhooks Start installs. Start chooses an address and makes a
	// certificate for the server that the suite starts, and has conversions of the definitions go there.
	WebhookInstallOptions WebhookInstallOptions

	// UseExistingCluster has Start take the cluster that KUBECONFIG names, and start nothing. Nil is
	// what the variable USE_EXISTING_CLUSTER says, and false without it.
	UseExistingCluster *bool

	// Controllers names the built-in controllers to run, as setpoint.Options does. Empty runs none.
	Controllers []string
	// Kinds are served beside the built-in ones.
	Kinds []*kinds.Kind
	// Listen is the address to serve HTTPS on, such as "127.0.0.1:0". Empty opens no port: Config
	// calls the server in the process.
	Listen string

	// These are there so that suites compile: there is nothing to find, to download or to wait for.
	BinaryAssetsDirectory       string
	DownloadBinaryAssets        bool
	DownloadBinaryAssetsVersion string
	ControlPlaneStartTimeout    time.Duration
	ControlPlaneStopTimeout     time.Duration

	running *setpoint.ControlPlane
}

// Start starts the control plane, installs the definitions and returns an administrator's
// configuration. It runs until Stop.
func (e *Environment) Start() (*rest.Config, error) {
	if e.running != nil {
		return nil, errors.New("envtest: Start was called twice")
	}
	err := e.start()
	if err == nil {
		err = e.install()
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("envtest: %w", err), e.Stop())
	}
	return e.Config, nil
}

func (e *Environment) start() (err error) {
	if e.existing() {
		e.Config, err = clientconfig.GetConfig()
		return err
	}
	controllers := e.Controllers
	if len(controllers) == 0 {
		controllers = []string{"none"}
	}
	cp, err := setpoint.New(setpoint.Options{Controllers: controllers, Kinds: e.Kinds, Listen: e.Listen})
	if err != nil {
		return err
	}
	e.running, e.Config = cp, cp.RESTConfig()
	if err := cp.Start(context.Background()); err != nil || e.Listen == "" {
		return err
	}
	e.KubeConfig, err = cp.Kubeconfig()
	return err
}

func (e *Environment) existing() bool {
	if e.UseExistingCluster != nil {
		return *e.UseExistingCluster
	}
	return os.Getenv("USE_EXISTING_CLUSTER") == "true"
}

// install puts what the fields say into CRDInstallOptions, and installs it.
func (e *Environment) install() error {
	o := &e.CRDInstallOptions
	o.CRDs = append(o.CRDs, e.CRDs...)
	o.Paths = append(o.Paths, e.CRDDirectoryPaths...)
	o.ErrorIfPathMissing = o.ErrorIfPathMissing || e.ErrorIfCRDPathMissing
	if o.Scheme == nil {
		o.Scheme = e.Scheme
	}
	if err := e.WebhookInstallOptions.PrepWithoutInstalling(); err != nil {
		return err
	}
	o.WebhookOptions = e.WebhookInstallOptions
	installed, err := InstallCRDs(e.Config, *o)
	if e.CRDs = installed; err != nil {
		return err
	}
	return e.WebhookInstallOptions.Install(e.Config)
}

// Stop ends the control plane and returns when nothing of it runs any more. Of a cluster that was
// there before, it removes the definitions if CRDInstallOptions say so. To stop what does not run is
// no error.
func (e *Environment) Stop() error {
	cleaned := e.WebhookInstallOptions.Cleanup()
	if cp := e.running; cp != nil {
		e.running = nil
		return errors.Join(cleaned, cp.Stop())
	}
	if cleaned != nil {
		return cleaned
	}
	if e.existing() && e.Config != nil && e.CRDInstallOptions.CleanUpAfterUse {
		return UninstallCRDs(e.Config, e.CRDInstallOptions)
	}
	return nil
}

// AuthenticatedUser is a user that the control plane lets in.
type AuthenticatedUser struct {
	config     *rest.Config
	kubeconfig func() ([]byte, error)
}

// Config is the user's own.
func (u *AuthenticatedUser) Config() *rest.Config { return rest.CopyConfig(u.config) }

// KubeConfig is the user's own, with a client certificate. It needs a port.
func (u *AuthenticatedUser) KubeConfig() ([]byte, error) { return u.kubeconfig() }

// AddUser lets a user in. Settings of baseConfig that are not about who asks and where are kept; nil
// has none.
func (e *Environment) AddUser(user User, baseConfig *rest.Config) (*AuthenticatedUser, error) {
	if e.running == nil {
		return nil, errors.New("envtest: AddUser was called before Start, or of a cluster that was there before")
	}
	cp, config := e.running, e.running.RESTConfigOf(user.Name, user.Groups...)
	if baseConfig != nil {
		own := config
		config = rest.CopyConfig(baseConfig)
		config.Host, config.Transport = own.Host, own.Transport
		config.TLSClientConfig = rest.TLSClientConfig{}
	}
	return &AuthenticatedUser{config, func() ([]byte, error) { return cp.KubeconfigOf(user.Name, user.Groups...) }}, nil
}
