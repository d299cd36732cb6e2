package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"time"

	"github.com/setpoint-dev/setpoint/store"
	"github.com/setpoint-dev/setpoint/store/embedded"
)

// restarts prints how long it takes from the start on a folder with objects to the first read that
// is served, and what an object takes of memory then.
func restarts(ctx context.Context, set settings) error {
	fmt.Print("\n| objects of 1 KB | Setpoint's store, to the first read | etcd, the same | memory an object, Setpoint |\n" +
		"|--:|--:|--:|--:|\n")
	for _, objects := range []int{100_000, set.large} {
		ours, memory, err := restartStore(ctx, set, objects)
		if err != nil {
			return err
		}
		theirs := "–"
		if set.etcd != "" {
			took, err := restartEtcd(ctx, set, objects)
			if err != nil {
				return fmt.Errorf("etcd: %w", err)
			}
			theirs = fmt.Sprintf("%v (%.1f×)", took.Round(time.Millisecond), float64(took)/float64(ours))
		}
		fmt.Printf("| %d | %v | %s | %d B |\n", objects, ours.Round(time.Millisecond), theirs, memory)
	}
	return nil
}

// restartStore fills a folder and opens it again, each in a process of its own.
func restartStore(ctx context.Context, set settings, objects int) (took time.Duration, bytesEach int64, err error) {
	dir, err := os.MkdirTemp(set.dir, "restart-")
	if err != nil {
		return 0, 0, err
	}
	defer os.RemoveAll(dir)
	run := func(child string) ([]byte, error) {
		cmd := exec.CommandContext(ctx, os.Args[0], "-dir", dir, "-objects", fmt.Sprint(objects), "-child", child)
		cmd.Stderr = os.Stderr
		return cmd.Output()
	}
	if _, err := run("fill"); err != nil {
		return 0, 0, fmt.Errorf("filling: %w", err)
	}
	out, err := run("open")
	if err != nil {
		return 0, 0, fmt.Errorf("opening: %w", err)
	}
	var ns int64
	_, err = fmt.Sscan(string(out), &ns, &bytesEach)
	return time.Duration(ns), bytesEach, err
}

// fill is a child that writes the objects.
func fill(ctx context.Context, dir string, objects int) error {
	s, err := embedded.Open(filepath.Join(dir, "store"), embedded.Options{})
	if err != nil {
		return err
	}
	for n := 0; n < objects; n += batch {
		var ops []store.Op
		for i := n; i < min(n+batch, objects); i++ {
			value := bytes.Repeat([]byte("v"), valueBytes)
			binary.LittleEndian.PutUint64(value, uint64(i))
			ops = append(ops, put(i, value))
		}
		if _, err := s.Commit(ctx, ops...); err != nil {
			return errors.Join(err, s.Close())
		}
	}
	return s.Close()
}

// open is a child that opens the folder, and prints how long the first read took and how many bytes of
// memory there are for each object.
func open(ctx context.Context, dir string, objects int) error {
	began := time.Now()
	s, err := embedded.Open(filepath.Join(dir, "store"), embedded.Options{})
	if err != nil {
		return err
	}
	defer s.Close()
	snap, err := s.Snapshot(ctx)
	if err != nil {
		return err
	}
	if snap.Get(put(objects-1, nil).Key) == nil {
		return fmt.Errorf("the last of %d objects is missing", objects)
	}
	took := time.Since(began)
	if n := snap.Count("pods", store.ListOptions{}); n != objects {
		return fmt.Errorf("%d objects of %d", n, objects)
	}
	// Without a past: it is bounded by itself.
	if err := s.Compact(ctx, s.Revision()); err != nil {
		return err
	}
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	runtime.KeepAlive(snap)
	fmt.Println(took.Nanoseconds(), int64(m.HeapAlloc)/int64(objects))
	return nil
}

func restartEtcd(ctx context.Context, set settings, objects int) (time.Duration, error) {
	dir, err := os.MkdirTemp(set.dir, "restart-")
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(dir)
	e, err := startEtcd(ctx, set.etcd, dir)
	if err != nil {
		return 0, err
	}
	if err := errors.Join(fillEtcd(ctx, e.client, objects), e.stop()); err != nil {
		return 0, err
	}
	began := time.Now()
	if e, err = startEtcd(ctx, set.etcd, dir); err != nil {
		return 0, err
	}
	return time.Since(began), e.stop()
}
