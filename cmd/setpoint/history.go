package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/setpoint-dev/setpoint/cmd/setpoint/internal/changes"
)

func newHistory() *cobra.Command {
	var a access
	cmd := &cobra.Command{
		Use:   "history KIND/NAME",
		Short: "Tell what happened to an object, when, and who did it",
		Long: `Tells what the server remembers of an object, newest last: the revision and the time of each change, the
user and the manager who made it, the verb, and what is different. The object need not exist any more.
Values of Secrets are not shown.`,
		Example: `  setpoint history deployment/web
  setpoint history cm/settings -n shop`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			p, targets, err := lookUp(&a, args)
			if err != nil {
				return err
			}
			return p.tell(cmd.Context(), targets[0], cmd.OutOrStdout())
		},
	}
	a.addTo(cmd.Flags())
	a.addNamespaceTo(cmd.Flags())
	return cmd
}

// lookUp returns a server's past, and the objects that arguments mean.
func lookUp(a *access, args []string) (*past, []target, error) {
	namespace, err := a.namespace()
	if err != nil {
		return nil, nil, err
	}
	p, err := newPast(a)
	if err != nil {
		return nil, nil, err
	}
	targets, err := p.find(args, namespace)
	return p, targets, err
}

// tell writes a table of what happened to an object.
func (p *past) tell(ctx context.Context, t target, out io.Writer) error {
	const padding = 2
	table := tabwriter.NewWriter(out, 0, 0, padding, ' ', 0)
	rows := 0
	covered, err := p.read(ctx, t, span{}, func(e *event) {
		if rows++; rows == 1 {
			fmt.Fprintln(table, "REVISION\tTIME\tWHO\tVERB\tCHANGE")
		}
		verb := cmp.Or(e.Origin.Verb, "-")
		if e.Origin.Subresource != "" {
			verb += " " + e.Origin.Subresource
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\n", e.Revision, cmp.Or(e.Origin.Time, "-"), e.Origin.who(), verb,
			changes.Words(e.Previous, e.after()))
	})
	if err != nil {
		return err
	}
	if rows > 0 {
		return table.Flush()
	}
	if err := p.existed(ctx, t, covered.to); err != nil {
		return err
	}
	fmt.Fprintf(out, "nothing happened to %s since revision %s, the oldest that the server remembers\n", t, covered.from)
	return nil
}
