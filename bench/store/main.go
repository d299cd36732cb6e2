// Command store measures the store beside what bounds it and beside etcd, all in one run: commits a
// second by several numbers of writers, how soon it serves again after a restart, what an object takes
// of memory, how many events one write makes of watchers, and what lists do to those who write.
//
//	go run ./store -dir /some/disk -etcd PATH
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"
)

// settings are the sizes of a run.
type settings struct {
	dir    string
	etcd   string // its binary; "" leaves it out
	period time.Duration
	rounds int
	large  int // objects of the larger restart
}

func main() {
	var set settings
	flag.StringVar(&set.dir, "dir", os.TempDir(), "a `folder` on the disk to measure")
	flag.StringVar(&set.etcd, "etcd", "", "the etcd `binary`, for comparison")
	flag.DurationVar(&set.period, "period", 2*time.Second, "length of each load")
	flag.IntVar(&set.rounds, "rounds", 3, "how often each load runs; the median is printed")
	flag.IntVar(&set.large, "large", 1_000_000, "objects of the larger of the two restarts")
	child := flag.String("child", "", "for the program itself: fill or open")
	objects := flag.Int("objects", 0, "for the program itself")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	var err error
	switch *child {
	case "fill":
		err = fill(ctx, set.dir, *objects)
	case "open":
		err = open(ctx, set.dir, *objects)
	default:
		err = run(ctx, set)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "store:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, set settings) error {
	fmt.Println("load of the machine at the start:", load())
	for _, part := range []func(context.Context, settings) error{commits, restarts, fanOut, lists} {
		if err := errors.Join(part(ctx, set), ctx.Err()); err != nil {
			return err
		}
	}
	fmt.Println("\nload of the machine at the end:", load())
	return nil
}

// load is how much else the machine does, in processes that want a processor.
func load() string {
	text, _ := os.ReadFile("/proc/loadavg")
	minute, _, _ := strings.Cut(string(text), " ")
	return minute
}

// processor is what this process has used of the processors.
func processor() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
