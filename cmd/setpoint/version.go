package main

import (
	"fmt"
	"runtime/debug"

	"github.com/spf13/cobra"
)

func newVersion() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print what this binary was built from",
		Args:  cobra.NoArgs,
		Run: func(cmd *cobra.Command, _ []string) {
			fmt.Fprintln(cmd.OutOrStdout(), version())
		},
	}
}

// version names the module's version, or the commit where it was built from a checkout, and the Go
// toolchain.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "setpoint (unknown build)"
	}
	v := info.Main.Version
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" && v == "(devel)" {
			v = s.Value
		}
	}
	return fmt.Sprintf("setpoint %s, Kubernetes API 1.37, %s", v, info.GoVersion)
}
