package setpoint

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	crcache "sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/setpoint-dev/setpoint/apiserver/authn"
	"github.com/setpoint-dev/setpoint/controller"
	"github.com/setpoint-dev/setpoint/internal/dirlock"
	"github.com/setpoint-dev/setpoint/node"
	"github.com/setpoint-dev/setpoint/node/process"
	"github.com/setpoint-dev/setpoint/node/proxy"
)

// NodeOptions say which node to run, and how. The zero value is this machine, running processes.
type NodeOptions struct {
	// Name is the node's; empty is the machine's host name.
	Name string
	// Labels are put on the node, beside those that say what machine it is.
	Labels map[string]string
	// StateDir keeps what the node has to know of its workloads to find them again, and their files
	// and logs. Empty is "node" in the control plane's DataDir.
	StateDir string
	// Runtime runs the containers; nil runs them as processes.
	Runtime node.Runtime
	// NoProxy leaves the addresses of services alone.
	NoProxy bool
	// Clock is for tests; nil is the machine's.
	Clock clock.WithTicker
	// Log is where the node logs to; nil discards it.
	Log *slog.Logger
}

// complete fills in what is not set.
func (o *NodeOptions) complete() error {
	if o.Name == "" {
		host, err := os.Hostname()
		if err != nil {
			return fmt.Errorf("the node has no name, and the machine says none: %w", err)
		}
		o.Name = host
	}
	if o.StateDir == "" {
		return fmt.Errorf("node %s: a folder for its state is needed", o.Name)
	}
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return nil
}

// RunNode runs a node that joins the server of the configuration, until the context ends. Its
// workloads run on; the next RunNode on the same StateDir goes on with them, and one at the same time
// is refused.
func RunNode(ctx context.Context, config *rest.Config, opts NodeOptions) error {
	if err := opts.complete(); err != nil {
		return err
	}
	// Two agents would each take what the other is about to make for what a dead one has left.
	if err := os.MkdirAll(opts.StateDir, 0o750); err != nil {
		return fmt.Errorf("node state: %w", err)
	}
	lock, err := dirlock.Lock(opts.StateDir)
	if err != nil {
		return fmt.Errorf("node state: %w", err)
	}
	defer lock.Close()
	runtime := opts.Runtime
	if runtime == nil {
		processes, err := process.New(process.Options{StateDir: opts.StateDir})
		if err != nil {
			return fmt.Errorf("node state in %s: %w", opts.StateDir, err)
		}
		defer processes.Close()
		runtime = processes
	}
	config = rest.CopyConfig(config)
	config.UserAgent = "setpoint-node/setpoint" // under which the node's writes are owned
	manager, err := controller.NewManager(config, controller.ManagerOptions{
		Logger: opts.Log, Clock: opts.Clock, Cache: crcache.Options{ByObject: concerning(opts.Name)},
	})
	if err != nil {
		return err
	}
	tunnel, err := node.Dial(manager.GetConfig(), opts.Name)
	if err != nil {
		return err
	}
	agent, err := node.New(node.Options{
		Name: opts.Name, Labels: opts.Labels,
		Client: manager.GetClient(), Live: manager.GetAPIReader(), Informers: manager.GetCache(),
		Recorder: manager.GetEventRecorder("setpoint-node"),
		Runtime:  runtime, Dir: filepath.Join(opts.StateDir, "volumes"),
		Clock: opts.Clock, Logger: opts.Log, Tunnel: tunnel,
	})
	if err != nil {
		return err
	}
	if err := manager.Add(agent); err != nil {
		return err
	}
	if !opts.NoProxy {
		services := proxy.New(proxy.Options{Client: manager.GetClient(), Informers: manager.GetCache(), Logger: opts.Log})
		if err := manager.Add(services); err != nil {
			return err
		}
	}
	return manager.Start(ctx)
}

// concerning selects what concerns a node: its own pods and itself. What happens on the others
// costs it nothing.
func concerning(node string) map[client.Object]crcache.ByObject {
	return map[client.Object]crcache.ByObject{
		&corev1.Pod{}:  {Field: fields.OneTermEqualSelector("spec.nodeName", node)},
		&corev1.Node{}: {Field: fields.OneTermEqualSelector("metadata.name", node)},
	}
}

// runNode runs the node that is part of the control plane, with an identity of its own.
func (c *ControlPlane) runNode(ctx context.Context) error {
	opts := *c.opts.Node
	opts.StateDir = cmp.Or(opts.StateDir, filepath.Join(cmp.Or(c.opts.DataDir, c.scratch), "node"))
	opts.Clock, opts.Log = c.opts.Clock, c.opts.Log
	if err := opts.complete(); err != nil {
		return err
	}
	user := &authn.User{Name: authn.NodePrefix + opts.Name, Groups: []string{authn.Nodes}}
	return RunNode(ctx, c.configOf(user), opts)
}
