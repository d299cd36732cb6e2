// Command setpoint is a desired-state control plane: it serves the Kubernetes API, runs the
// controllers that keep declared things true, and runs workloads as processes.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/setpoint-dev/setpoint/node/process"
)

func main() { os.Exit(run(os.Args)) }

// run is the program; what it returns is its exit code.
func run(args []string) int {
	// The node agent starts this program again as the keeper of a container's process.
	if handled, code := process.Main(args); handled {
		return code
	}
	// What controller-runtime would log itself is logged by our controllers.
	log.SetLogger(logr.Discard())
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := newRoot().ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "setpoint:", err)
		return 1
	}
	return 0
}

func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:   "setpoint",
		Short: "A desired-state control plane in one binary",
		Long: `Setpoint keeps true what you declare. It speaks the Kubernetes API, so kubectl and every other
Kubernetes client works on it; it needs no cluster, no etcd and no container runtime.

  setpoint up                       run everything: the API, the controllers and a node
  kubectl apply -f examples/web     declare a service
  setpoint demo                     see what that is for, in a minute, without kubectl`,
		SilenceUsage:  true,
		SilenceErrors: true,
		Args:          cobra.NoArgs, // and so an unknown command is an error
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.AddCommand(newUp(), newServer(), newNode(), newApply(), newHistory(), newDiff(), newDemo(), newEcho(),
		newSnapshot(), newVersion())
	root.SetHelpCommand(newHelp(root))
	for _, cmd := range root.Commands() {
		nameUsage(cmd)
	}
	return root
}

// newHelp explains a command. Cobra's own takes a command that is not there for the root.
func newHelp(root *cobra.Command) *cobra.Command {
	return &cobra.Command{
		Use:   "help [COMMAND]",
		Short: "Explain a command",
		RunE: func(_ *cobra.Command, args []string) error {
			cmd, rest, err := root.Find(args)
			if err != nil {
				return err
			}
			if len(rest) > 0 {
				return fmt.Errorf("unknown command %q for %q", rest[0], cmd.CommandPath())
			}
			cmd.InitDefaultHelpFlag() // as if the command had been run, with --help
			return cmd.Help()
		},
	}
}

// nameUsage has a command that was given the wrong arguments say which it takes.
func nameUsage(cmd *cobra.Command) {
	if accept := cmd.Args; accept != nil {
		cmd.Args = func(cmd *cobra.Command, args []string) error {
			if err := accept(cmd, args); err != nil {
				return fmt.Errorf("%w; usage: %s", err, cmd.UseLine())
			}
			return nil
		}
	}
	for _, sub := range cmd.Commands() {
		nameUsage(sub)
	}
}
