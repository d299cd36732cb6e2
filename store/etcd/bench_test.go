package etcd_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/setpoint-dev/setpoint/store"
	"github.com/setpoint-dev/setpoint/store/etcd"
	"github.com/setpoint-dev/setpoint/store/etcd/etcdtest"
)

// spread has clients do something b.N times in all, and reports how often in a second.
func spread(b *testing.B, clients int, do func(i int64) error) {
	var next atomic.Int64
	var group sync.WaitGroup
	b.ResetTimer()
	for range clients {
		group.Go(func() {
			for {
				i := next.Add(1)
				if i > int64(b.N) {
					return
				}
				if err := do(i); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	group.Wait()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "ops/s")
}

// BenchmarkBesideRaw commits and reads 1 KB objects through a store, and puts and gets them with
// etcd's client alone, on one member in the same process.
func BenchmarkBesideRaw(b *testing.B) {
	ctx := context.Background()
	address := etcdtest.Start(b)
	s := open(b, etcd.Options{Endpoints: []string{address}, Prefix: space()})
	client := raw(b, address)
	value := string(make([]byte, 1024))
	path := func(i int64) string { return fmt.Sprintf("default/web-%06d", i*7919%10_000) }
	var written atomic.Int64 // what is there already would change nothing, and cost nothing
	commitOne := func(i int64) error {
		_, err := s.Commit(ctx, put(path(i), fmt.Sprint(written.Add(1), value)))
		return err
	}
	readOne := func(i int64) error {
		snap, err := s.Snapshot(ctx)
		if err == nil {
			_ = snap.Get(store.Key{Resource: "pods", Path: path(i)})
		}
		return err
	}
	putOne := func(i int64) error {
		_, err := client.Put(ctx, "/raw/"+path(i), fmt.Sprint(i, value))
		return err
	}
	getOne := func(i int64) error {
		_, err := client.Get(ctx, "/raw/"+path(i))
		return err
	}
	for _, clients := range []int{1, 16, 256} {
		for _, run := range []struct {
			name string
			do   func(int64) error
		}{{"commit", commitOne}, {"put", putOne}, {"read", readOne}, {"get", getOne}} {
			b.Run(fmt.Sprintf("%s/clients=%d", run.name, clients), func(b *testing.B) { spread(b, clients, run.do) })
		}
	}
}
