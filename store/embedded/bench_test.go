package embedded_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/setpoint-dev/setpoint/store/embedded"
)

// BenchmarkCommit commits values of 1 KB on disk; bench/engines measures the bare libraries.
func BenchmarkCommit(b *testing.B) {
	for _, writers := range []int{1, 16, 256} {
		b.Run(fmt.Sprintf("writers=%d", writers), func(b *testing.B) {
			s, err := embedded.Open(b.TempDir(), embedded.Options{})
			if err != nil {
				b.Fatal(err)
			}
			defer s.Close()
			values := [2][]byte{make([]byte, 1024), make([]byte, 1025)}
			var next atomic.Int64
			var group sync.WaitGroup
			b.ResetTimer()
			for range writers {
				group.Go(func() {
					for {
						i := next.Add(1)
						if i > int64(b.N) {
							return
						}
						op := put(fmt.Sprintf("default/web-%06d", i*7919%100_000), values[i/100_000%2])
						if _, err := s.Commit(context.Background(), op); err != nil {
							b.Error(err)
							return
						}
					}
				})
			}
			group.Wait()
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "commits/s")
		})
	}
}

// BenchmarkRestart opens a directory with 100,000 objects of 1 KB, half of them in a checkpoint.
func BenchmarkRestart(b *testing.B) {
	dir := b.TempDir()
	s, err := embedded.Open(dir, embedded.Options{})
	if err != nil {
		b.Fatal(err)
	}
	var group sync.WaitGroup
	for w := range 100 {
		group.Go(func() {
			for i := range 1000 {
				if _, err := s.Commit(context.Background(), put(fmt.Sprintf("ns-%d/web-%d", w, i), make([]byte, 1024))); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	group.Wait()
	if err := s.Close(); err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		s, err := embedded.Open(dir, embedded.Options{})
		if err != nil {
			b.Fatal(err)
		}
		if s.Revision() != 100_000 {
			b.Fatal(s.Revision())
		}
		b.StopTimer()
		if err := s.Close(); err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
	}
}
