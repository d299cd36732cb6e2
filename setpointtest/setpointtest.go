// Package setpointtest gives a test a control plane of its own: a real API server, with the
// controllers the test asks for, in the test's process and ready in a few milliseconds.
//
//	func TestScaleUp(t *testing.T) {
//		cp := setpointtest.Start(t, setpointtest.Nodes(1))
//		if err := cp.Client.Create(t.Context(), deployment); err != nil {
//			t.Fatal(err)
//		}
//		cp.Await(deployment, "three replicas are ready", func() bool {
//			return deployment.Status.ReadyReplicas == 3
//		})
//	}
//
// There is no port, no file and no download unless an option asks for one. Tests may run in parallel,
// each with its own; when a test ends, its control plane does, and leaves nothing behind.
//
// It works inside a testing/synctest bubble. There, hours of back-off, leases and grace periods pass
// in milliseconds.
//
// Faults make the API server fail, be slow, or lose its answers, as it will in production; what they
// do follows from a seed.
package setpointtest

import (
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/setpoint-dev/setpoint"
	"github.com/setpoint-dev/setpoint/kinds"
	"github.com/setpoint-dev/setpoint/node/simulated"
)

// ControlPlane is a control plane that lives as long as a test.
type ControlPlane struct {
	// Config is an administrator's, for what is tested. Its requests meet the faults, if there are
	// any; it must be used before the test ends.
	Config *rest.Config
	// Client is an administrator's, for the test itself. It asks the server each time, and meets no
	// faults.
	Client client.WithWatch
	// ControlPlane is what was started.
	ControlPlane *setpoint.ControlPlane

	t        testing.TB
	patience time.Duration
}

// Option chooses something about a control plane.
type Option func(*settings)

type settings struct {
	options    setpoint.Options
	nodes      int
	containers simulated.Handlers
	crds       []string
	scheme     *runtime.Scheme
	faults     *Faults

	patience time.Duration
}

// Controllers chooses the controllers by name, as setpoint.Options does: "none", "garbagecollector",
// "-scheduler". Without it, all run.
func Controllers(names ...string) Option {
	return func(s *settings) { s.options.Controllers = names }
}

// Nodes adds nodes, "node-1" and so on, each of 32 CPUs and 128 GiB, that run nothing and report the pods that they are given as
// running and ready.
func Nodes(n int) Option { return func(s *settings) { s.nodes = n } }

// Containers says what happens when somebody runs a command in a container of one of the Nodes, is
// attached to it, or connects to a port of its pod. Without it commands succeed, and nothing listens.
// The connections behind these are none for a testing/synctest bubble.
func Containers(h simulated.Handlers) Option { return func(s *settings) { s.containers = h } }

// Kinds are served beside the built-in ones.
func Kinds(own ...*kinds.Kind) Option {
	return func(s *settings) { s.options.Kinds = append(s.options.Kinds, own...) }
}

// CRDs installs the CustomResourceDefinitions of files and folders before Start returns. That a path
// is not there fails the test.
func CRDs(paths ...string) Option {
	return func(s *settings) { s.crds = append(s.crds, paths...) }
}

// Scheme says which Go types Client knows, instead of client-go's.
func Scheme(types *runtime.Scheme) Option { return func(s *settings) { s.scheme = types } }

// Port has the server listen on a free port of 127.0.0.1, for clients in other processes. They get
// in with ControlPlane.Kubeconfig.
func Port() Option { return func(s *settings) { s.options.Listen = "127.0.0.1:0" } }

// Log is where the control plane logs to; without it, what it logs is dropped.
func Log(log *slog.Logger) Option { return func(s *settings) { s.options.Log = log } }

// Inject has the requests of Config meet faults. Those of Client and of the built-in controllers
// do not.
func Inject(f *Faults) Option { return func(s *settings) { s.faults = f } }

// Patience is how long Await waits: a minute unless it is set, which is longer than anything takes on
// a busy machine, and not so long that a test which hangs goes unnoticed. Inside a bubble hours are
// cheap, and what has lost its connection can take some.
func Patience(d time.Duration) Option { return func(s *settings) { s.patience = d } }

// With changes any other setting. The control plane's settings are as the other options have made
// them so far.
func With(change func(*setpoint.Options)) Option {
	return func(s *settings) { change(&s.options) }
}

// Start starts a control plane and returns when it serves requests and pods can be placed on its
// nodes. It ends with the test, and fails the test if a part of it has failed.
func Start(t testing.TB, opts ...Option) *ControlPlane {
	t.Helper()
	s := settings{scheme: scheme.Scheme, patience: time.Minute}
	for _, o := range opts {
		o(&s)
	}
	cp, err := setpoint.New(s.options)
	if err != nil {
		t.Fatalf("setpointtest: %v", err)
	}
	var nodes func() error
	t.Cleanup(func() {
		if nodes != nil {
			if err := nodes(); err != nil {
				t.Errorf("setpointtest: %v", err)
			}
		}
		if err := cp.Stop(); err != nil {
			t.Errorf("setpointtest: %v", err)
		}
	})
	// The test's context ends before its clean-ups, which may still need the server.
	ctx := context.WithoutCancel(t.Context())
	if err := cp.Start(ctx); err != nil {
		t.Fatalf("setpointtest: %v", err)
	}
	if err := s.installCRDs(cp.RESTConfig()); err != nil {
		t.Fatalf("setpointtest: %v", err)
	}
	if s.nodes > 0 {
		nodes = s.runNodes(ctx, cp, t.TempDir())
	}
	own, err := client.NewWithWatch(cp.RESTConfig(), client.Options{Scheme: s.scheme})
	if err != nil {
		t.Fatalf("setpointtest: %v", err)
	}
	config := cp.RESTConfig()
	if s.faults != nil {
		config.Wrap(s.faults.Transport)
	}
	started := &ControlPlane{Config: config, Client: own, ControlPlane: cp, t: t, patience: s.patience}
	for i := range s.nodes {
		started.awaitNode(nodeName(i))
	}
	return started
}

func nodeName(i int) string { return fmt.Sprintf("node-%d", i+1) }

func (s *settings) installCRDs(config *rest.Config) error {
	if len(s.crds) == 0 {
		return nil
	}
	_, err := envtest.InstallCRDs(config, envtest.CRDInstallOptions{
		Paths: s.crds, ErrorIfPathMissing: true, Scheme: s.scheme,
	})
	return err
}

// runNodes runs the nodes until the function it returns is called, which waits for them to end and
// returns the first error.
func (s *settings) runNodes(ctx context.Context, cp *setpoint.ControlPlane, dir string) (stop func() error) {
	ctx, cancel := context.WithCancel(ctx)
	failed := make([]error, s.nodes)
	var running sync.WaitGroup
	var network simulated.Network
	for i := range s.nodes {
		name := nodeName(i)
		config := cp.RESTConfig()
		config.Impersonate = rest.ImpersonationConfig{
			UserName: "system:node:" + name, Groups: []string{"system:nodes"},
		}
		opts := setpoint.NodeOptions{
			Name: name, StateDir: filepath.Join(dir, name), NoProxy: true, Runtime: network.New(s.options.Clock, s.containers),
			Clock: s.options.Clock, Log: s.options.Log,
		}
		running.Go(func() {
			if err := setpoint.RunNode(ctx, config, opts); err != nil && ctx.Err() == nil {
				failed[i] = fmt.Errorf("%s: %w", name, err)
			}
		})
	}
	return func() error {
		cancel()
		running.Wait()
		for _, err := range failed {
			if err != nil {
				return err
			}
		}
		return nil
	}
}
