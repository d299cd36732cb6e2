package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/setpoint-dev/setpoint"
	"github.com/setpoint-dev/setpoint/node/simulated"
)

// nodeFlags are the flags of a node, by itself or in a control plane.
type nodeFlags struct {
	name    string
	labels  map[string]string
	noProxy bool
}

func (f *nodeFlags) add(flags *pflag.FlagSet) {
	flags.StringVar(&f.name, "node-name", "", "`name` of the node (default the machine's host name)")
	flags.StringToStringVar(&f.labels, "node-labels", nil, "`labels` to put on the node, a=b,c=d")
	flags.BoolVar(&f.noProxy, "no-service-proxy", false, "leave the addresses of services alone")
}

// options turns the flags into options, or says which flag is wrong.
func (f *nodeFlags) options() (setpoint.NodeOptions, error) {
	if f.name != "" {
		if wrong := validation.IsDNS1123Subdomain(f.name); len(wrong) > 0 {
			return setpoint.NodeOptions{}, fmt.Errorf("--node-name %q: %s", f.name, strings.Join(wrong, "; "))
		}
	}
	for _, key := range slices.Sorted(maps.Keys(f.labels)) {
		wrong := append(validation.IsQualifiedName(key), validation.IsValidLabelValue(f.labels[key])...)
		if len(wrong) > 0 {
			return setpoint.NodeOptions{}, fmt.Errorf("--node-labels %s=%s: %s", key, f.labels[key], strings.Join(wrong, "; "))
		}
	}
	return setpoint.NodeOptions{Name: f.name, Labels: f.labels, NoProxy: f.noProxy}, nil
}

func newNode() *cobra.Command {
	var f nodeFlags
	var log logFlags
	var kubeconfig, dataDir string
	var count int
	var handlers simulated.Handlers
	cmd := &cobra.Command{
		Use:   "node",
		Short: "Run a node that joins a server",
		Long: `Runs the workloads that a server gives to this machine. What runs goes on running when this ends, and the
next start finds it. It opens every connection itself: the server needs no way to the node.

With --simulated it is many nodes, on which nothing runs: their containers start at once and stay until they
are asked to end; with --simulated-jobs-end, those of Jobs succeed at once. They show how controllers, schedulers and clients behave when there is much to do.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			opts, err := f.options()
			if err != nil {
				return err
			}
			pretend := cmd.Flags().Changed("simulated")
			if pretend && count < 1 {
				return fmt.Errorf("--simulated %d: want at least one node", count)
			}
			if kubeconfig == "" {
				return errors.New("--kubeconfig: want the file that the server wrote")
			}
			config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
			if err != nil {
				return fmt.Errorf("--kubeconfig %q: %w", kubeconfig, err)
			}
			if opts.Log, err = log.logger(cmd.ErrOrStderr()); err != nil {
				return err
			}
			opts.StateDir = filepath.Join(dataDir, "node")
			if pretend {
				return runSimulated(cmd.Context(), config, opts, count, handlers)
			}
			return setpoint.RunNode(cmd.Context(), config, opts)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&kubeconfig, "kubeconfig", "", "`file` that says where the server is and who this is")
	flags.StringVar(&dataDir, "data-dir", defaultDataDir(), "`folder` of the workloads' state, files and logs")
	flags.IntVar(&count, "simulated", 0, "pretend to be this `many` nodes, named with -0, -1 and so on behind the name")
	flags.BoolVar(&handlers.JobsEnd, "simulated-jobs-end", false, "have the containers of Jobs succeed on simulated nodes")
	f.add(flags)
	log.add(flags)
	return cmd
}

// runSimulated runs nodes that only pretend to run what they are given, until the context ends or
// one of them fails. Each watches for itself, as nodes of their own machines would.
func runSimulated(ctx context.Context, config *rest.Config, opts setpoint.NodeOptions, count int,
	handlers simulated.Handlers,
) error {
	if opts.Name == "" {
		host, err := os.Hostname()
		if err != nil {
			return fmt.Errorf("--node-name: %w", err)
		}
		opts.Name = host
	}
	var network simulated.Network
	nodes, ctx := errgroup.WithContext(ctx)
	for i := range count {
		one := opts
		one.Name = fmt.Sprintf("%s-%d", opts.Name, i)
		one.StateDir = filepath.Join(opts.StateDir, one.Name)
		one.Runtime = network.New(nil, handlers)
		one.NoProxy = true
		nodes.Go(func() error { return setpoint.RunNode(ctx, config, one) })
	}
	return nodes.Wait()
}
