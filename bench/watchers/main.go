// Command watchers shows what a watcher that stops reading costs: nothing but its connection. A
// thousand watches are opened over HTTPS, a connection each, and never read, while objects are
// written and a few watchers read on. Printed are the server's resident memory over the run, the
// kernel's memory for sockets, how long after its write an event reached the watchers that read,
// and what the others are told when they come back with the revision they knew.
//
//	go run ./watchers -setpoint ../bin/setpoint
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"os"
	"os/signal"
	"slices"
	"sync"
	"time"

	"github.com/setpoint-dev/setpoint/bench/internal/subject"
)

// settings are the sizes of a run. The defaults write 200 MB, so that the server's 128 MB of history
// pass over all who do not read.
type settings struct {
	stalled, healthy int
	rate             int           // writes a second
	bytes            int           // of an object
	length           time.Duration // of the writing
	objects          int
}

func main() {
	binary := flag.String("setpoint", "../bin/setpoint", "the setpoint `binary`")
	var set settings
	flag.IntVar(&set.stalled, "stalled", 1000, "watchers that never read")
	flag.IntVar(&set.healthy, "healthy", 20, "watchers that read")
	flag.IntVar(&set.rate, "rate", 200, "writes a second; 0 for as many as there can be")
	flag.IntVar(&set.bytes, "bytes", 8<<10, "size of an object")
	flag.IntVar(&set.objects, "objects", 1000, "how many objects are written in turn")
	flag.DurationVar(&set.length, "length", time.Minute, "how long to write")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, *binary, set); err != nil {
		fmt.Fprintln(os.Stderr, "watchers:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, binary string, set settings) (err error) {
	dir, err := os.MkdirTemp("", "watchers-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	s := subject.NewSetpoint(binary, dir, "--controllers", "none")
	defer s.Stop()
	if _, err := s.Start(ctx); err != nil {
		return err
	}
	web, host, err := s.Client()
	if err != nil {
		return err
	}
	b := &bench{set: set, subject: s, web: web, url: host + "/api/v1/namespaces/default/configmaps"}
	return b.run(ctx)
}

// bench is one run.
type bench struct {
	set     settings
	subject subject.Subject
	web     *http.Client
	url     string

	known string // the revision that the stalled watchers begin with
}

func (b *bench) run(ctx context.Context) error {
	if err := b.write(ctx, 0); err != nil {
		return err
	}
	b.sample("before")
	var err error
	if b.known, err = b.revision(ctx); err != nil {
		return err
	}
	stalled, err := b.openStalled(ctx)
	if err != nil {
		return err
	}
	b.sample(fmt.Sprintf("%d watchers open", b.set.stalled))

	reading, stopReading := context.WithCancel(ctx)
	defer stopReading()
	lags := make([][]time.Duration, b.set.healthy)
	failed := make([]error, b.set.healthy)
	var readers sync.WaitGroup
	for i := range lags {
		readers.Go(func() { lags[i], failed[i] = b.follow(reading) })
	}
	began := time.Now()
	writes, err := b.writeAll(ctx)
	if err != nil {
		return err
	}
	took := time.Since(began)
	time.Sleep(time.Second) // for the last events to arrive
	stopReading()
	readers.Wait()
	if err := errors.Join(failed...); err != nil {
		return err
	}
	all := slices.Concat(lags...)
	slices.Sort(all)
	fmt.Printf("%d writes of %d KB in %v, %d events to %d watchers that read\n", writes, b.set.bytes>>10,
		took.Round(time.Millisecond), len(all), b.set.healthy)
	if want := writes * b.set.healthy; len(all) != want {
		return fmt.Errorf("%d events were read, %d were made", len(all), want)
	}
	at := func(p float64) time.Duration { return all[int(p*float64(len(all)-1))].Round(10 * time.Microsecond) }
	fmt.Printf("from the write's begin to the event: median %v, p99 %v, worst %v\n", at(.5), at(.99), at(1))
	return b.comeBack(ctx, stalled)
}

// sample prints what the server and the kernel hold.
func (b *bench) sample(when string) {
	fmt.Printf("%-22s %4d MB resident, sockets %3d MB, processor %v\n", when, b.subject.Memory().Resident>>20,
		socketBytes()>>20, b.subject.Processor())
}
