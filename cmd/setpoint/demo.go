package main

import (
	"os"

	"github.com/spf13/cobra"

	"github.com/setpoint-dev/setpoint/cmd/setpoint/internal/demo"
	"github.com/setpoint-dev/setpoint/examples"
)

func newDemo() *cobra.Command {
	listen := "127.0.0.1:6444"
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Declare, break and heal an example, in the terminal",
		Long: `Starts a control plane of its own in a temporary folder and tells a story with it: a service of three
processes is declared, one is killed, a change is rolled out, the control plane is killed in the
middle of that and started again, and everything is deleted. A client sends requests all the while
and counts those that fail. Nothing is left behind.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return demo.Run(cmd.Context(), demo.Options{Manifest: examples.Web, Listen: listen, Out: os.Stdout})
		},
	}
	cmd.Flags().StringVar(&listen, "listen", listen, "`address` of the demonstration's control plane")
	return cmd
}
