package main

import (
	"context"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/setpoint-dev/setpoint/store"
	"github.com/setpoint-dev/setpoint/store/embedded"
)

// fanOut prints how many events a second one writer makes of 1, 100 and 1,000 watchers, each write
// when all have been told of the one before.
func fanOut(ctx context.Context, set settings) error {
	fmt.Print("\n| watchers | events/s | processor an event |\n|--:|--:|--:|\n")
	for _, watchers := range []int{1, 100, 1000} {
		events, took, used, err := fanOutOf(ctx, set, watchers)
		if err != nil {
			return err
		}
		fmt.Printf("| %d | %.0f | %.2f µs |\n", watchers, float64(events)/took.Seconds(),
			float64(used.Nanoseconds())/1000/float64(events))
	}
	return nil
}

func fanOutOf(ctx context.Context, set settings, watchers int) (events int, took, used time.Duration, err error) {
	s, end, err := openTemporary(set)
	if err != nil {
		return 0, 0, 0, err
	}
	defer end()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	told := make(chan error, watchers)
	for range watchers {
		w, err := s.Watch("pods", "", 0)
		if err != nil {
			return 0, 0, 0, err
		}
		go func() {
			for ctx.Err() == nil {
				_, err := w.Next(ctx)
				told <- err // there is room for each
			}
		}()
	}
	write := committing(s)
	began, before := time.Now(), processor()
	for n := 0; time.Since(began) < set.period; n++ {
		if err := write(ctx, n%keys, binary.LittleEndian.AppendUint64(make([]byte, valueBytes-8), uint64(n))); err != nil {
			return 0, 0, 0, err
		}
		for range watchers {
			if err := <-told; err != nil {
				return 0, 0, 0, err
			}
			events++
		}
	}
	return events, time.Since(began), processor() - before, nil
}

// listsPerSecond is how often everything is listed while others write.
const listsPerSecond = 50

// lists prints how long the slowest hundredth of the commits of 64 writers takes with and without
// somebody who lists 10,000 objects. The two take turns, so that what else the machine does meets
// both.
func lists(ctx context.Context, set settings) error {
	s, end, err := openTemporary(set)
	if err != nil {
		return err
	}
	defer end()
	const objects = 10_000
	write := committing(s)
	for n := range objects {
		if err := write(ctx, n, make([]byte, valueBytes)); err != nil {
			return err
		}
	}
	var alone, beside []time.Duration
	listed := 0
	for range 2 * set.rounds {
		took, err := timedWrites(ctx, set.period/2, write)
		if err != nil {
			return err
		}
		alone = append(alone, took...)
		listing, stop := context.WithCancel(ctx)
		var lister sync.WaitGroup
		lister.Go(func() { listed += list(listing, s) })
		took, err = timedWrites(ctx, set.period/2, write)
		stop()
		lister.Wait()
		if err != nil {
			return err
		}
		beside = append(beside, took...)
	}
	p99 := func(all []time.Duration) time.Duration {
		slices.Sort(all)
		return all[len(all)*99/100]
	}
	a, b := p99(alone), p99(beside)
	fmt.Printf("\n| p99 of commits, 64 writers | alone | beside lists of 10,000 (%d in all) | ratio |\n|---|--:|--:|--:|\n", listed)
	fmt.Printf("| Setpoint's store | %v | %v | %.2f |\n", a.Round(10*time.Microsecond), b.Round(10*time.Microsecond),
		float64(b)/float64(a))
	return nil
}

// list lists everything at the pace until the context ends, and returns how often.
func list(ctx context.Context, s store.Store) (times int) {
	for tick := time.Tick(time.Second / listsPerSecond); ; times++ {
		select {
		case <-tick:
		case <-ctx.Done():
			return times
		}
		snap, err := s.Snapshot(ctx)
		if err != nil {
			return times
		}
		snap.List("pods", store.ListOptions{})
	}
}

// timedWrites has 64 writers commit for a while and returns how long each commit took.
func timedWrites(ctx context.Context, period time.Duration, write writer) ([]time.Duration, error) {
	var mu sync.Mutex
	var all []time.Duration
	_, _, err := writeAll(ctx, period, 64, func(ctx context.Context, n int, value []byte) error {
		began := time.Now()
		err := write(ctx, n%10_000, value)
		took := time.Since(began)
		mu.Lock()
		defer mu.Unlock()
		all = append(all, took)
		return err
	})
	return all, err
}

// openTemporary opens a store in a folder that goes when it ends.
func openTemporary(set settings) (s *embedded.Store, end func(), err error) {
	dir, err := os.MkdirTemp(set.dir, "store-")
	if err != nil {
		return nil, nil, err
	}
	if s, err = embedded.Open(filepath.Join(dir, "store"), embedded.Options{}); err != nil {
		os.RemoveAll(dir)
		return nil, nil, err
	}
	return s, func() { s.Close(); os.RemoveAll(dir) }, nil
}
