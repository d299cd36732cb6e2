package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"golang.org/x/sys/unix"

	"github.com/setpoint-dev/setpoint/store"
	"github.com/setpoint-dev/setpoint/store/embedded"
)

// writer commits one value under one of the keys, durably.
type writer func(ctx context.Context, n int, value []byte) error

const (
	valueBytes = 1 << 10
	keys       = 100_000
)

func key(n int) string { return fmt.Sprintf("default/web-%07d", n) }

// commits prints how many commits of 1 KB a second there are with 1, 16, 64 and 256 writers.
func commits(ctx context.Context, set settings) error {
	fmt.Print("\n| commits/s of 1 KB | 1 writer | 16 | 64 | 256 | processor a commit, 256 |\n|---|--:|--:|--:|--:|--:|\n")
	for _, s := range []struct {
		name string
		open func(ctx context.Context, set settings, dir string) (writer, func() error, error)
	}{
		{"a write and a sync each (the disk)", openRaw},
		{"a bare log, synced in groups", openLog},
		{"Setpoint's store", openStore},
		{"etcd", openEtcd},
	} {
		if s.name == "etcd" && set.etcd == "" {
			continue
		}
		if err := commitRow(ctx, set, s.name, s.open); err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
	}
	return nil
}

func commitRow(ctx context.Context, set settings, name string,
	open func(context.Context, settings, string) (writer, func() error, error),
) error {
	dir, err := os.MkdirTemp(set.dir, "store-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	write, end, err := open(ctx, set, dir)
	if err != nil {
		return err
	}
	fmt.Printf("| %s |", name)
	var cost time.Duration
	for _, n := range []int{1, 16, 64, 256} {
		var rates []float64
		for range set.rounds {
			used := processor()
			count, took, err := writeAll(ctx, set.period, n, write)
			if err != nil {
				return err
			}
			cost = (processor() - used) / time.Duration(max(count, 1))
			rates = append(rates, float64(count)/took.Seconds())
		}
		slices.Sort(rates)
		fmt.Printf(" %.0f |", rates[len(rates)/2])
	}
	if name == "etcd" {
		fmt.Println(" – |") // most of it is in another process
	} else {
		fmt.Printf(" %.1f µs |\n", float64(cost.Nanoseconds())/1000)
	}
	return end()
}

// writeAll has n writers commit for a while.
func writeAll(ctx context.Context, period time.Duration, n int, write writer) (count int, took time.Duration, err error) {
	counts, errs := make([]int, n), make([]error, n)
	began := time.Now()
	var group sync.WaitGroup
	for i := range n {
		group.Go(func() {
			for k := i; time.Since(began) < period && errs[i] == nil && ctx.Err() == nil; k += n {
				// No two values are equal, or nothing would be written.
				value := bytes.Repeat([]byte("v"), valueBytes)
				binary.LittleEndian.PutUint64(value, uint64(time.Now().UnixNano()))
				if errs[i] = write(ctx, k%keys, value); errs[i] == nil {
					counts[i]++
				}
			}
		})
	}
	group.Wait()
	took = time.Since(began)
	for i := range n {
		if count += counts[i]; errs[i] != nil {
			return 0, 0, errs[i]
		}
	}
	return count, took, nil
}

// openRaw is the disk: each write is synced by itself.
func openRaw(_ context.Context, _ settings, dir string) (writer, func() error, error) {
	f, err := os.Create(filepath.Join(dir, "file"))
	if err != nil {
		return nil, nil, err
	}
	return func(_ context.Context, _ int, value []byte) error {
		if _, err := f.Write(value); err != nil {
			return err
		}
		return unix.Fdatasync(int(f.Fd()))
	}, f.Close, nil
}

// openLog is the least that a durable store can do: one goroutine appends what waits, and syncs once.
func openLog(_ context.Context, _ settings, dir string) (writer, func() error, error) {
	f, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		return nil, nil, err
	}
	type request struct {
		value []byte
		done  chan error
	}
	queue := make(chan request, 256)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		var buf []byte
		var waiting []request
		for first := range queue {
			waiting, buf = append(waiting[:0], first), append(buf[:0], first.value...)
			for range len(queue) {
				r := <-queue
				waiting, buf = append(waiting, r), append(buf, r.value...)
			}
			_, err := f.Write(buf)
			if err == nil {
				err = unix.Fdatasync(int(f.Fd()))
			}
			for _, r := range waiting {
				r.done <- err
			}
		}
	}()
	write := func(_ context.Context, _ int, value []byte) error {
		r := request{value, make(chan error, 1)}
		queue <- r
		return <-r.done
	}
	return write, func() error { close(queue); <-ended; return f.Close() }, nil
}

func openStore(_ context.Context, _ settings, dir string) (writer, func() error, error) {
	s, err := embedded.Open(filepath.Join(dir, "store"), embedded.Options{})
	if err != nil {
		return nil, nil, err
	}
	return committing(s), s.Close, nil
}

func committing(s store.Store) writer {
	return func(ctx context.Context, n int, value []byte) error {
		_, err := s.Commit(ctx, put(n, value))
		return err
	}
}

func put(n int, value []byte) store.Op {
	return store.Op{
		Key:  store.Key{Resource: "pods", Path: key(n)},
		Type: store.Put, Expect: store.Any, Value: value, RevisionAt: -1,
	}
}

func openEtcd(ctx context.Context, set settings, dir string) (writer, func() error, error) {
	e, err := startEtcd(ctx, set.etcd, dir)
	if err != nil {
		return nil, nil, err
	}
	return func(ctx context.Context, n int, value []byte) error {
		_, err := e.client.Put(ctx, "/registry/pods/"+key(n), string(value))
		return err
	}, e.stop, nil
}

// batch is how many objects a restart's etcd is filled with at once: as many as it takes.
const batch = 128

// fillEtcd puts objects into etcd.
func fillEtcd(ctx context.Context, client *clientv3.Client, objects int) error {
	value := string(bytes.Repeat([]byte("v"), valueBytes))
	for n := 0; n < objects; n += batch {
		var ops []clientv3.Op
		for i := n; i < min(n+batch, objects); i++ {
			ops = append(ops, clientv3.OpPut("/registry/pods/"+key(i), value))
		}
		if _, err := client.Txn(ctx).Then(ops...).Commit(); err != nil {
			return err
		}
	}
	return nil
}
