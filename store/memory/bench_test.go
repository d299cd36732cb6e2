package memory_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/setpoint-dev/setpoint/store"
	"github.com/setpoint-dev/setpoint/store/memory"
)

func filled(b *testing.B, n int) *memory.Store {
	s := memory.New(memory.Options{})
	value := make([]byte, 1024)
	for i := range n {
		commit(b, s, put(fmt.Sprintf("default/web-%06d", i), value))
	}
	return s
}

func BenchmarkCommit(b *testing.B) {
	s := filled(b, 10_000)
	values := [2][]byte{make([]byte, 1024), make([]byte, 1025)}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		commit(b, s, put(fmt.Sprintf("default/web-%06d", i*7919%10_000), values[i/10_000%2]))
	}
}

// BenchmarkList reads all of 10,000 entries, as one list of a client does.
func BenchmarkList(b *testing.B) {
	s := filled(b, 10_000)
	b.ReportAllocs()
	for b.Loop() {
		snapshot, err := s.Snapshot(context.Background())
		if err != nil {
			b.Fatal(err)
		}
		if entries, _ := snapshot.List("pods", store.ListOptions{Prefix: "default/"}); len(entries) != 10_000 {
			b.Fatal(len(entries))
		}
	}
}

// BenchmarkSnapshotAt reads one entry as it was 10,000 events ago, each time anew.
func BenchmarkSnapshotAt(b *testing.B) {
	s := filled(b, 20_000)
	for i := 0; b.Loop(); i++ {
		snapshot, err := s.SnapshotAt(context.Background(), store.Revision(10_000-i%5_000))
		if err != nil {
			b.Fatal(err)
		}
		snapshot.Get(store.Key{Resource: "pods", Path: "default/web-000007"})
	}
}

// BenchmarkFanOut has each commit read by all watchers; an operation is one event at one of them.
// Beside them may be a thousand that never read, which must not show.
func BenchmarkFanOut(b *testing.B) {
	for _, watchers := range []int{1, 10, 100, 1000} {
		for _, stalled := range []int{0, 1000} {
			b.Run(fmt.Sprintf("watchers=%d/stalled=%d", watchers, stalled), func(b *testing.B) {
				benchmarkFanOut(b, watchers, stalled)
			})
		}
	}
}

func benchmarkFanOut(b *testing.B, watchers, stalled int) {
	s := filled(b, 1_000)
	commits := b.N/watchers + 1
	asleep := make([]store.Watch, stalled)
	for i := range asleep {
		asleep[i] = watch(b, s, s.Revision())
	}
	var group sync.WaitGroup
	var seen atomic.Int64
	for range watchers {
		w := watch(b, s, s.Revision())
		group.Go(func() {
			for got := 0; got < commits; {
				events, err := w.Next(context.Background())
				if err != nil {
					b.Error(err)
					return
				}
				got += len(events)
				seen.Add(int64(len(events)))
			}
		})
	}
	b.ReportAllocs()
	b.ResetTimer()
	for i := range commits {
		commit(b, s, put("default/web-000001", fmt.Append(nil, i)))
	}
	group.Wait()
	if want := int64(commits * watchers); seen.Load() != want {
		b.Errorf("%d events arrived, want %d", seen.Load(), want)
	}
}
