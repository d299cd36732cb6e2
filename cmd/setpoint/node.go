package main

import (
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/setpoint-dev/setpoint"
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
	cmd := &cobra.Command{
		Use:   "node",
		Short: "Run a node that joins a server",
		Long: `Runs the workloads that a server gives to this machine. What runs goes on running when this ends, and the
next start finds it. It opens every connection itself: the server needs no way to the node.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			opts, err := f.options()
			if err != nil {
				return err
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
			return setpoint.RunNode(cmd.Context(), config, opts)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&kubeconfig, "kubeconfig", "", "`file` that says where the server is and who this is")
	flags.StringVar(&dataDir, "data-dir", defaultDataDir(), "`folder` of the workloads' state, files and logs")
	f.add(flags)
	log.add(flags)
	return cmd
}
