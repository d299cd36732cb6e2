// Command spine measures the whole of a control plane from outside and prints each figure beside
// its goal: the time from start to the first served request, the memory of an idle one, and
// durable creates, reads, renewals and patches that change nothing, per second, over HTTPS with 64
// clients, what a LIST of 10,000 pods takes, and the events that reach a thousand watches. Beside what a load reaches stands what each request costs the
// servers' processes of the processors, which others on the machine disturb less. The yardsticks run on the same machine
// in the same run: a bare net/http server with the same client and bodies and, where their
// binaries are given, kube-apiserver with etcd.
//
//	go run ./spine -setpoint ../bin/setpoint [-etcd PATH -kube-apiserver PATH]
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/setpoint-dev/setpoint/bench/internal/subject"
)

// settings are the sizes of a run.
type settings struct {
	starts  int           // how often the start is measured; the median counts
	clients int           // concurrent clients
	length  time.Duration // of each load

	controllers string // that Setpoint runs
}

func main() {
	if len(os.Args) == 3 && os.Args[1] == subject.BareServer {
		fmt.Fprintln(os.Stderr, "spine:", subject.ServeBare(os.Args[2]))
		os.Exit(1)
	}
	setpoint := flag.String("setpoint", "bin/setpoint", "the setpoint `binary`")
	etcd := flag.String("etcd", "", "the etcd `binary`, for comparison")
	kube := flag.String("kube-apiserver", "", "the kube-apiserver `binary`, for comparison")
	set := settings{}
	flag.IntVar(&set.starts, "starts", 5, "how many starts to measure")
	flag.IntVar(&set.clients, "clients", 64, "concurrent clients")
	flag.DurationVar(&set.length, "length", 5*time.Second, "length of each load")
	flag.StringVar(&set.controllers, "controllers", "all", "the controllers that Setpoint runs; kube-apiserver runs none")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, *setpoint, *etcd, *kube, set); err != nil {
		fmt.Fprintln(os.Stderr, "spine:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, setpoint, etcd, kube string, set settings) error {
	ours, err := measure(ctx, set, func(dir string) subject.Subject {
		return subject.NewSetpoint(setpoint, dir, "--controllers", set.controllers)
	})
	if err != nil {
		return fmt.Errorf("setpoint: %w", err)
	}
	bare, err := measure(ctx, set, subject.NewBare)
	if err != nil {
		return fmt.Errorf("bare server: %w", err)
	}
	var theirs *figures
	if etcd != "" && kube != "" {
		one := set
		one.starts = min(set.starts, 3)
		theirs, err = measure(ctx, one, func(dir string) subject.Subject { return subject.NewKube(etcd, kube, dir) })
		if err != nil {
			return fmt.Errorf("kube-apiserver: %w", err)
		}
	}
	return print(ours, bare, theirs)
}

// figures are what was measured of one subject.
type figures struct {
	start    time.Duration  // median
	idle     subject.Memory // ten seconds after the start
	creates  float64        // per second
	gets     float64
	renewals float64
	noops    float64
	failures int

	createCost, getCost, renewalCost, noopCost, listCost, eventCost time.Duration // of processor

	list       time.Duration // median
	listMemory int64         // bytes beyond what was resident before
	events     float64       // per second
}

// measure starts the subject several times on empty folders, and loads the last one.
func measure(ctx context.Context, set settings, make func(dir string) subject.Subject) (*figures, error) {
	var f figures
	var starts []time.Duration
	for i := range set.starts {
		dir, err := os.MkdirTemp("", "spine-")
		if err != nil {
			return nil, err
		}
		defer os.RemoveAll(dir)
		s := make(dir)
		took, err := s.Start(ctx)
		if err != nil {
			s.Stop()
			return nil, err
		}
		starts = append(starts, took)
		if i == set.starts-1 {
			err = f.load(ctx, set, s)
		}
		s.Stop()
		if err != nil {
			return nil, err
		}
	}
	slices.Sort(starts)
	f.start = starts[len(starts)/2]
	return &f, nil
}

func (f *figures) load(ctx context.Context, set settings, s subject.Subject) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(10 * time.Second):
	}
	f.idle = s.Memory()
	web, host, err := s.Client()
	if err != nil {
		return err
	}
	l := load{web: web, host: host, set: set}
	used := s.Processor()
	cost := func(requests float64) time.Duration {
		before := used
		used = s.Processor()
		return time.Duration(float64(used-before) / max(requests, 1))
	}
	for _, each := range []struct {
		stored  bool // needs what keeps objects
		prepare func(context.Context) error
		run     func(context.Context) (float64, int, error)
		rate    *float64
		cost    *time.Duration
	}{
		{false, nil, l.creates, &f.creates, &f.createCost},
		{false, l.makeBig, l.gets, &f.gets, &f.getCost},
		{false, l.makeLeases, l.renewals, &f.renewals, &f.renewalCost},
		{true, l.makeNoops, l.noops, &f.noops, &f.noopCost},
	} {
		if each.stored && !s.Lists() {
			continue
		}
		if each.prepare != nil {
			if err := each.prepare(ctx); err != nil {
				return err
			}
		}
		cost(1)
		rate, failures, err := each.run(ctx)
		*each.rate, *each.cost = rate, cost(rate*set.length.Seconds())
		if f.failures += failures; err != nil {
			return err
		}
	}
	if !s.Lists() {
		return nil
	}
	if err := l.fill(ctx); err != nil {
		return err
	}
	cost(1)
	s.ForgetPeak()
	before := s.Memory().Resident
	if f.list, err = l.lists(ctx); err != nil {
		return err
	}
	f.listCost, f.listMemory = cost(listsMeasure), s.Memory().Peak-before
	f.events, err = l.watches(ctx, func() { cost(1) })
	f.eventCost = cost(watchers * watchWrites)
	return err
}

func print(ours, bare, theirs *figures) error {
	out := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	row := func(cells ...any) {
		for i, cell := range cells {
			if i > 0 {
				fmt.Fprint(out, "\t")
			}
			fmt.Fprint(out, cell)
		}
		fmt.Fprintln(out)
	}
	kube := func(cell func(*figures) string) string {
		if theirs == nil {
			return "not run"
		}
		return cell(theirs)
	}
	row("what", "setpoint", "bare net/http", "kube-apiserver + etcd", "goal")
	row("start to first served request", ours.start.Round(100*time.Microsecond), "-",
		kube(func(f *figures) string {
			return fmt.Sprintf("%v (%.0fx)", f.start.Round(time.Millisecond), float64(f.start)/float64(ours.start))
		}), "<= 50 ms, >= 100x")
	memory := func(what string, of func(*figures) int64, goal string) {
		row(what, of(ours)>>20, "-", kube(func(f *figures) string {
			return fmt.Sprintf("%d (1/%.1f)", of(f)>>20, float64(of(f))/float64(max(of(ours), 1)))
		}), goal)
	}
	memory("idle memory, MB; theirs without controllers", func(f *figures) int64 { return f.idle.Resident },
		"<= 1/10 with controllers")
	memory("idle memory but for the programs, MB", func(f *figures) int64 { return f.idle.Made }, "-")
	rate := func(what string, of func(*figures) float64, goal string) {
		row(what, fmt.Sprintf("%.0f", of(ours)),
			beside(of(bare) > 0, "%.0f (%.0f %%)", of(bare), 100*of(ours)/of(bare)),
			kube(func(f *figures) string { return fmt.Sprintf("%.0f (%.1fx)", of(f), of(ours)/of(f)) }), goal)
	}
	rate("durable creates/s, 1 KB, 64 clients", func(f *figures) float64 { return f.creates },
		">= 8x, >= 60 % of bare")
	rate("gets/s, 3 KB, 64 clients", func(f *figures) float64 { return f.gets },
		">= 3x, >= 90 % of bare")
	rate("lease renewals/s, 64 clients", func(f *figures) float64 { return f.renewals },
		">= 60 % of bare")
	rate("patches that change nothing/s, 64 clients", func(f *figures) float64 { return f.noops }, "no commit")
	took := func(what string, of func(*figures) time.Duration, goal string) {
		row(what, of(ours), beside(of(bare) > 0, "%v (%.1fx)", of(bare), float64(of(ours))/float64(of(bare))), kube(func(f *figures) string {
			return fmt.Sprintf("%v (%.1fx)", of(f), float64(of(f))/float64(of(ours)))
		}), goal)
	}
	const us = time.Microsecond
	took("processor a create", func(f *figures) time.Duration { return f.createCost.Round(us) }, "-")
	took("processor a get", func(f *figures) time.Duration { return f.getCost.Round(us) }, "-")
	took("processor a renewal", func(f *figures) time.Duration { return f.renewalCost.Round(us) }, "-")
	took("processor a patch that changes nothing", func(f *figures) time.Duration { return f.noopCost.Round(us) }, "-")
	took("LIST of 10,000 pods, 3 KB each", func(f *figures) time.Duration { return f.list.Round(100 * us) }, ">= 8x")
	took("processor a LIST", func(f *figures) time.Duration { return f.listCost.Round(100 * us) }, ">= 8x")
	memory("memory that LISTs take, MB", func(f *figures) int64 { return f.listMemory }, ">= 8x")
	row("events/s to 1,000 watches", fmt.Sprintf("%.0f", ours.events), "-", kube(func(f *figures) string {
		return fmt.Sprintf("%.0f (%.1fx)", f.events, ours.events/f.events)
	}), ">= 2x")
	took("processor an event", func(f *figures) time.Duration { return f.eventCost }, ">= 3x")
	row("failed requests", ours.failures, bare.failures, kube(func(f *figures) string { return fmt.Sprint(f.failures) }), "0")
	return out.Flush()
}

// beside is a cell of the bare server's, "-" where it has none.
func beside(has bool, format string, args ...any) string {
	if !has {
		return "-"
	}
	return fmt.Sprintf(format, args...)
}
