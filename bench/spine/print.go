package main

import (
	"fmt"
	"io"
	"text/tabwriter"
	"time"
)

// results are what was measured of all subjects; kube is nil if it was not run.
type results struct{ whole, alone, bare, kube *figures }

// print writes a line for each figure. In the columns of the peers stand, behind the peer's own figure, how the server
// with all controllers compares with it, and how the server alone does.
func (r *results) print(w io.Writer) error {
	out := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(out, "what\tsetpoint\twithout controllers\tbare net/http\tkube-apiserver + etcd\tgoal")
	const us = time.Microsecond
	for _, l := range []line{
		{"start to first served request", span(100*us, func(f *figures) time.Duration { return f.start }),
			"<= 50 ms, >= 100x"},
		{"idle memory, MB", memory(func(f *figures) int64 { return f.idle.Resident }), "<= 1/10 with controllers"},
		{"idle memory but for the programs, MB", memory(func(f *figures) int64 { return f.idle.Made }), "-"},
		{"durable creates/s, 1 KB", rate(func(f *figures) float64 { return f.creates }), ">= 8x, >= 60 % of bare"},
		{"gets/s, 3 KB", rate(func(f *figures) float64 { return f.gets }), ">= 3x, >= 90 % of bare"},
		{"lease renewals/s", rate(func(f *figures) float64 { return f.renewals }), ">= 60 % of bare"},
		{"patches that change nothing/s", rate(func(f *figures) float64 { return f.noops }), "no commit"},
		{"processor a create", span(us, func(f *figures) time.Duration { return f.createCost }), "-"},
		{"processor a get", span(us, func(f *figures) time.Duration { return f.getCost }), "-"},
		{"processor a renewal", span(us, func(f *figures) time.Duration { return f.renewalCost }), "-"},
		{"processor a patch that changes nothing", span(us, func(f *figures) time.Duration { return f.noopCost }), "-"},
		{"LIST of 10,000 pods, 3 KB each", span(100*us, func(f *figures) time.Duration { return f.list }), ">= 8x"},
		{"processor a LIST", span(100*us, func(f *figures) time.Duration { return f.listCost }), ">= 8x"},
		{"memory that LISTs take, MB", memory(func(f *figures) int64 { return f.listMemory }), ">= 8x"},
		{"events/s to 1,000 watches", rate(func(f *figures) float64 { return f.events }), ">= 2x"},
		{"processor an event", span(100*time.Nanosecond, func(f *figures) time.Duration { return f.eventCost }), ">= 3x"},
		{"failed requests", count(func(f *figures) int { return f.failures }), "0"},
	} {
		fmt.Fprintf(out, "%s\t%s\t%s\t%s\t%s\t%s\n", l.what, l.of.text(r.whole), l.of.text(r.alone),
			l.of.beside(r.bare, r, l.of.ofBare), l.of.beside(r.kube, r, l.of.ofKube), l.goal)
	}
	return out.Flush()
}

// line is one figure of all subjects.
type line struct {
	what string
	of   figure
	goal string
}

// figure is how a figure is read, written and compared.
type figure struct {
	value          func(*figures) float64
	text           func(*figures) string
	ofBare, ofKube func(ours, theirs float64) string // nil where there is nothing to compare
}

// beside is the cell of a peer: "-" where it was not run or has no such figure.
func (f figure) beside(peer *figures, r *results, compare func(ours, theirs float64) string) string {
	if peer == nil || f.value(peer) == 0 && compare != nil {
		return "-"
	}
	if compare == nil {
		return f.text(peer)
	}
	theirs := f.value(peer)
	return fmt.Sprintf("%s (%s, %s)", f.text(peer), compare(f.value(r.whole), theirs), compare(f.value(r.alone), theirs))
}

// rate is a figure of which more is better.
func rate(of func(*figures) float64) figure {
	return figure{
		value:  of,
		text:   func(f *figures) string { return fmt.Sprintf("%.0f", of(f)) },
		ofBare: func(ours, theirs float64) string { return fmt.Sprintf("%.0f %%", 100*ours/theirs) },
		ofKube: func(ours, theirs float64) string { return fmt.Sprintf("%.1fx", ours/theirs) },
	}
}

// span is a time, of which less is better.
func span(round time.Duration, of func(*figures) time.Duration) figure {
	return figure{
		value:  func(f *figures) float64 { return float64(of(f)) },
		text:   func(f *figures) string { return of(f).Round(round).String() },
		ofBare: func(ours, theirs float64) string { return fmt.Sprintf("%.1fx", ours/theirs) },
		ofKube: func(ours, theirs float64) string { return fmt.Sprintf("%.1fx", theirs/max(ours, 1)) },
	}
}

// memory is a size, of which less is better, written in MB.
func memory(of func(*figures) int64) figure {
	return figure{
		value:  func(f *figures) float64 { return float64(of(f)) },
		text:   func(f *figures) string { return fmt.Sprint(of(f) >> 20) },
		ofBare: func(ours, theirs float64) string { return fmt.Sprintf("%.1fx", ours/theirs) },
		ofKube: func(ours, theirs float64) string { return fmt.Sprintf("1/%.1f", theirs/max(ours, 1)) },
	}
}

// count is a number that is not compared.
func count(of func(*figures) int) figure {
	return figure{
		value: func(f *figures) float64 { return float64(of(f)) },
		text:  func(f *figures) string { return fmt.Sprint(of(f)) },
	}
}
