package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/setpoint-dev/setpoint/cmd/setpoint/internal/changes"
)

// diffFlags are the flags of diff.
type diffFlags struct {
	access
	span
}

func newDiff() *cobra.Command {
	var f diffFlags
	cmd := &cobra.Command{
		Use:   "diff --from REV [--to REV] [KIND/NAME...]",
		Short: "Show what is different between two revisions, and who did it",
		Long: `Shows how objects at one revision differ from what they were at another: unified diffs of their YAML,
each with the users and managers that wrote in between. Without KIND/NAME these are all objects, or those of the
namespace of -n. Left out is what each write changes, such as managedFields; values of Secrets are not shown.

Revisions are those of setpoint history, and each resourceVersion is one.`,
		Example: `  setpoint diff --from 120 --to 180 deployment/web
  setpoint diff --from 120 -n shop`,
		RunE: func(cmd *cobra.Command, args []string) error { return f.run(cmd, args) },
	}
	f.addTo(cmd.Flags())
	f.addNamespaceTo(cmd.Flags())
	cmd.Flags().StringVar(&f.from, "from", "", "`revision` before")
	cmd.Flags().StringVar(&f.to, "to", "", "`revision` after (default: the newest)")
	_ = cmd.MarkFlagRequired("from")
	return cmd
}

func (f *diffFlags) run(cmd *cobra.Command, args []string) error {
	p, targets, err := lookUp(&f.access, args)
	if err == nil && len(args) == 0 {
		targets, err = p.all(f.name)
	}
	if err != nil {
		return err
	}
	asked, seen, changed := f.span, map[string]bool{}, false
	for _, t := range targets {
		deltas, covered, err := p.deltas(cmd.Context(), t, asked)
		if err != nil {
			return err
		}
		asked.to = covered.to // one revision for all
		if len(deltas) == 0 && t.name != "" {
			if err := p.existed(cmd.Context(), t, covered.to); err != nil {
				return err
			}
		}
		for _, d := range deltas {
			if d.uid != "" && seen[d.uid] {
				continue // served by two groups, as Events are
			}
			seen[d.uid] = true
			wrote, err := d.write(cmd.OutOrStdout(), asked)
			if err != nil {
				return err
			}
			changed = changed || wrote
		}
	}
	if !changed {
		fmt.Fprintf(cmd.ErrOrStderr(), "nothing is different between revision %s and revision %s\n", asked.from, asked.to)
	}
	return nil
}

// delta is what became of an object in a span of the history.
type delta struct {
	object        target
	uid           string
	before, after map[string]any
	writers       []string
}

// deltas returns what became of each object of a target, in the order of their first changes.
func (p *past) deltas(ctx context.Context, t target, asked span) (all []*delta, covered span, err error) {
	byObject := map[target]*delta{}
	covered, err = p.read(ctx, t, asked, func(e *event) {
		object, uid := e.of(t)
		d := byObject[object]
		if d == nil {
			d = &delta{object: object, uid: uid, before: e.Previous}
			byObject[object], all = d, append(all, d)
		}
		d.after = e.after()
		if who := e.Origin.who(); !slices.Contains(d.writers, who) {
			d.writers = append(d.writers, who)
		}
	})
	return all, covered, err
}

// write writes the diff, and says whether there is one.
func (d *delta) write(out io.Writer, between span) (bool, error) {
	from, to := fmt.Sprintf("%s@%s", d.object, between.from), fmt.Sprintf("%s@%s", d.object, between.to)
	text, err := changes.Unified(from, to, d.before, d.after)
	if err != nil || text == "" {
		return false, err
	}
	_, err = fmt.Fprintf(out, "# %s, written by %s\n%s", d.object, strings.Join(d.writers, ", "), text)
	return true, err
}
