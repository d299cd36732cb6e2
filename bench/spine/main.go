// Command spine measures the whole of a control plane from outside and prints each figure beside
// its goal: the time from start to the first served request, the memory of an idle one, and
// durable creates, reads, renewals and patches that change nothing, per second, over HTTPS with 64
// clients, what a LIST of 10,000 pods takes, and the events that reach a thousand watches. Beside what a load reaches stands what each request costs the
// servers' processes of the processors, which others on the machine disturb less. Setpoint is measured as people run it,
// with its controllers, which watch what is written, and without them, as its peer is. The yardsticks run on the same
// machine in the same run: a bare net/http server with the same client and bodies and, where their binaries are given,
// kube-apiserver with etcd.
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
	"time"

	"github.com/setpoint-dev/setpoint/bench/internal/subject"
)

// settings are the sizes of a run.
type settings struct {
	starts  int           // how often the start is measured; the median counts
	clients int           // concurrent clients
	length  time.Duration // of each load
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
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, *setpoint, *etcd, *kube, set); err != nil {
		fmt.Fprintln(os.Stderr, "spine:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, setpoint, etcd, kube string, set settings) error {
	var f results
	var err error
	f.whole, err = measure(ctx, set, func(dir string) subject.Subject { return subject.NewSetpoint(setpoint, dir) })
	if err != nil {
		return fmt.Errorf("setpoint: %w", err)
	}
	f.alone, err = measure(ctx, set, func(dir string) subject.Subject {
		return subject.NewSetpoint(setpoint, dir, "--controllers", "none")
	})
	if err != nil {
		return fmt.Errorf("setpoint without controllers: %w", err)
	}
	f.bare, err = measure(ctx, set, subject.NewBare)
	if err != nil {
		return fmt.Errorf("bare server: %w", err)
	}
	if etcd != "" && kube != "" {
		one := set
		one.starts = min(set.starts, 3)
		f.kube, err = measure(ctx, one, func(dir string) subject.Subject { return subject.NewKube(etcd, kube, dir) })
		if err != nil {
			return fmt.Errorf("kube-apiserver: %w", err)
		}
	}
	return f.print(os.Stdout)
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
