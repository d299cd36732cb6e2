// Command crds measures what CustomResourceDefinitions cost: how long it takes to install a thousand
// of them, until each is served, what of the processors that takes, and the memory of each, before
// and after one object of it was written and read. kube-apiserver with etcd is measured in the same
// run, where their binaries are given.
//
//	go run ./crds -setpoint ../bin/setpoint [-etcd PATH -kube-apiserver PATH]
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"text/tabwriter"
	"time"

	"github.com/setpoint-dev/setpoint/bench/internal/subject"
)

// settings are the sizes of a run.
type settings struct {
	definitions int
	fields      int // of the spec of each, three of them in every group of fields
	clients     int // that install and use them at once
	quiet       time.Duration
}

func main() {
	setpoint := flag.String("setpoint", "../bin/setpoint", "the setpoint `binary`")
	etcd := flag.String("etcd", "", "the etcd `binary`, for comparison")
	kube := flag.String("kube-apiserver", "", "the kube-apiserver `binary`, for comparison")
	var set settings
	flag.IntVar(&set.definitions, "definitions", 1000, "how many definitions to install")
	flag.IntVar(&set.fields, "fields", 60, "how many fields the spec of each has")
	flag.IntVar(&set.clients, "clients", 8, "concurrent clients")
	flag.DurationVar(&set.quiet, "quiet", 15*time.Second, "how long to wait before memory is looked at")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, *setpoint, *etcd, *kube, set); err != nil {
		fmt.Fprintln(os.Stderr, "crds:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, setpoint, etcd, kube string, set settings) error {
	ours, err := measure(ctx, set, func(dir string) subject.Subject { return subject.NewSetpoint(setpoint, dir) })
	if err != nil {
		return fmt.Errorf("setpoint: %w", err)
	}
	var theirs *figures
	if etcd != "" && kube != "" {
		theirs, err = measure(ctx, set, func(dir string) subject.Subject { return subject.NewKube(etcd, kube, dir) })
		if err != nil {
			return fmt.Errorf("kube-apiserver: %w", err)
		}
	}
	return print(set, ours, theirs)
}

// figures are what was measured of one subject. All but the waits are of one definition, on the average.
type figures struct {
	install, processor time.Duration
	use, useProcessor  time.Duration

	served, servedLate time.Duration // from the request on, median and p99
	installed, used    int64         // bytes resident
}

// measure installs definitions in a subject that has just been started, and uses each of them.
func measure(ctx context.Context, set settings, make func(dir string) subject.Subject) (*figures, error) {
	dir, err := os.MkdirTemp("", "crds-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	s := make(dir)
	defer s.Stop()
	if _, err := s.Start(ctx); err != nil {
		return nil, err
	}
	web, host, err := s.Client()
	if err != nil {
		return nil, err
	}
	c := &crowd{web: web, host: host, set: set}
	var f figures
	before, err := settled(ctx, set, s)
	if err != nil {
		return nil, err
	}
	waits := c.waits()
	if f.install, f.processor, err = each(s, set, func() error { return c.all(ctx, waits.install) }); err != nil {
		return nil, err
	}
	f.served, f.servedLate = waits.quantile(.5), waits.quantile(.99)
	installed, err := settled(ctx, set, s)
	if err != nil {
		return nil, err
	}
	if f.use, f.useProcessor, err = each(s, set, func() error { return c.all(ctx, c.use) }); err != nil {
		return nil, err
	}
	used, err := settled(ctx, set, s)
	f.installed, f.used = (installed-before)/int64(set.definitions), (used-before)/int64(set.definitions)
	return &f, err
}

// settled is what is resident once the subject was left alone for a while.
func settled(ctx context.Context, set settings, s subject.Subject) (int64, error) {
	select {
	case <-ctx.Done():
		return 0, ctx.Err()
	case <-time.After(set.quiet):
		return s.Memory().Resident, nil
	}
}

// each is what doing something for all definitions takes for one of them.
func each(s subject.Subject, set settings, do func() error) (took, processor time.Duration, err error) {
	began, used := time.Now(), s.Processor()
	err = do()
	n := time.Duration(set.definitions)
	return time.Since(began) / n, (s.Processor() - used) / n, err
}

func print(set settings, ours, theirs *figures) error {
	fmt.Printf("%d definitions of %d KB each, %d clients\n", set.definitions, len(definition(set, 0))>>10, set.clients)
	out := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(out, "of each definition\tsetpoint\tkube-apiserver + etcd\tgoal")
	took := func(what string, of func(*figures) time.Duration, goal string) {
		beside := "not run"
		if theirs != nil {
			beside = fmt.Sprintf("%v (%.1fx)", of(theirs), float64(of(theirs))/float64(max(of(ours), 1)))
		}
		fmt.Fprintf(out, "%s\t%v\t%s\t%s\n", what, of(ours), beside, goal)
	}
	memory := func(what string, of func(*figures) int64) {
		beside := "not run"
		if theirs != nil {
			beside = fmt.Sprintf("%d (%.1fx)", of(theirs)>>10, float64(of(theirs))/float64(max(of(ours), 1)))
		}
		fmt.Fprintf(out, "%s\t%d\t%s\t<= 1024\n", what, of(ours)>>10, beside)
	}
	const us = time.Microsecond
	took("install, all being installed at once", func(f *figures) time.Duration { return f.install.Round(us) }, "<= 5 ms")
	took("processor of that", func(f *figures) time.Duration { return f.processor.Round(us) }, "<= 5 ms")
	took("from the request until it is served, median", func(f *figures) time.Duration { return f.served.Round(us) }, "-")
	took("the same, p99", func(f *figures) time.Duration { return f.servedLate.Round(us) }, "-")
	memory("memory once installed, KB", func(f *figures) int64 { return f.installed })
	took("write and read a first object", func(f *figures) time.Duration { return f.use.Round(us) }, "-")
	took("processor of that", func(f *figures) time.Duration { return f.useProcessor.Round(us) }, "-")
	memory("memory once used, KB", func(f *figures) int64 { return f.used })
	return out.Flush()
}
