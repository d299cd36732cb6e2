package benchmarks_test

import (
	"fmt"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	upstream "k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"

	"github.com/setpoint-dev/setpoint/workqueue"
)

type key = types.NamespacedName

// measured has client-go's queue keep its metrics, as ours always does and as controllers have it,
// in counters that cost nothing.
type measured struct{}

type counter struct{}

func (counter) Inc()            {}
func (counter) Dec()            {}
func (counter) Set(float64)     {}
func (counter) Observe(float64) {}

func (measured) NewDepthMetric(string) upstream.GaugeMetric            { return counter{} }
func (measured) NewAddsMetric(string) upstream.CounterMetric           { return counter{} }
func (measured) NewLatencyMetric(string) upstream.HistogramMetric      { return counter{} }
func (measured) NewWorkDurationMetric(string) upstream.HistogramMetric { return counter{} }
func (measured) NewRetriesMetric(string) upstream.CounterMetric        { return counter{} }
func (measured) NewUnfinishedWorkSecondsMetric(string) upstream.SettableGaugeMetric {
	return counter{}
}
func (measured) NewLongestRunningProcessorSecondsMetric(string) upstream.SettableGaugeMetric {
	return counter{}
}

// peer is one of what is compared, in one run.
type peer[T comparable] struct {
	name string
	make func() upstream.TypedRateLimitingInterface[T]
}

func queues[T comparable]() []peer[T] {
	return []peer[T]{
		{"setpoint", func() upstream.TypedRateLimitingInterface[T] {
			return workqueue.New(workqueue.Options[T]{Name: "bench"})
		}},
		{"client-go", func() upstream.TypedRateLimitingInterface[T] {
			return upstream.NewTypedRateLimitingQueue(upstream.DefaultTypedControllerRateLimiter[T]())
		}},
		{"client-go-measured", func() upstream.TypedRateLimitingInterface[T] {
			return upstream.NewTypedRateLimitingQueueWithConfig(
				upstream.DefaultTypedControllerRateLimiter[T](),
				upstream.TypedRateLimitingQueueConfig[T]{Name: "bench", MetricsProvider: measured{}})
		}},
		{"controller-runtime", func() upstream.TypedRateLimitingInterface[T] {
			return priorityqueue.New[T]("bench")
		}},
	}
}

// against says of each peer how many times as much it takes as ours, "x-slower" or "x-larger": what can be
// compared when machines and their other work differ. Ours is measured first, in the same run.
type against struct{ ours float64 }

func (a *against) report(b *testing.B, peer string, took float64, unit string) {
	if peer == "setpoint" {
		a.ours = took // the last is the longest measurement
	}
	b.ReportMetric(took/a.ours, unit)
}

// reportTime compares time of the processor.
func (a *against) reportTime(b *testing.B, peer string, took time.Duration) {
	a.report(b, peer, float64(took)/float64(b.N), "x-slower")
}

// BenchmarkQueue is one key through Add, Get and Done, by one goroutine.
func BenchmarkQueue(b *testing.B) {
	var ratio against
	for _, queue := range queues[key]() {
		b.Run(queue.name, func(b *testing.B) {
			q := queue.make()
			defer q.ShutDown()
			k := key{Namespace: "default", Name: "web-7f9c"}
			began := processorTime(b)
			measure(b, func(int) {
				q.Add(k)
				got, _ := q.Get()
				q.Done(got)
			})
			ratio.reportTime(b, queue.name, processorTime(b)-began)
		})
	}
}

// BenchmarkQueueContended is the same by four goroutines to a processor, and no key is added twice:
// if one were while it waits, there would be fewer keys to get than goroutines that get one.
func BenchmarkQueueContended(b *testing.B) {
	var ratio against
	for _, queue := range queues[int64]() {
		b.Run(queue.name, func(b *testing.B) {
			q := queue.make()
			defer q.ShutDown()
			var next atomic.Int64
			b.ReportAllocs()
			b.SetParallelism(4)
			began := processorTime(b)
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					q.Add(next.Add(1))
					got, _ := q.Get()
					q.Done(got)
				}
			})
			ratio.reportTime(b, queue.name, processorTime(b)-began)
		})
	}
}

// million is as many keys as a controller of a large system has to look at after it was started.
const million = 1_000_000

// BenchmarkQueueMillion has a million distinct keys wait, and works on them all. It says what a waiting
// key takes in memory, the names aside, which the cache has too, and how many times that is ours.
func BenchmarkQueueMillion(b *testing.B) {
	keys := make([]key, million)
	for i := range keys {
		keys[i] = key{Namespace: fmt.Sprint("team-", i%100), Name: fmt.Sprint("web-", i)}
	}
	var ratio, size against
	for _, queue := range queues[key]() {
		b.Run(queue.name, func(b *testing.B) {
			var bytes int64
			var took time.Duration
			for b.Loop() {
				size, worked := waitAndWork(b, queue.make(), keys)
				bytes, took = bytes+size, took+worked
			}
			perKey := float64(bytes) / float64(b.N) / million
			b.ReportMetric(perKey, "B/key")
			size.report(b, queue.name, perKey, "x-larger")
			b.ReportMetric(float64(took)/float64(b.N)/million, "cpu-ns/key")
			ratio.reportTime(b, queue.name, took)
		})
	}
}

// waitAndWork has all keys wait, and then works on each. It returns what memory they take while they wait,
// and how long the processor was at it.
func waitAndWork(
	b *testing.B, q upstream.TypedRateLimitingInterface[key], keys []key,
) (bytes int64, took time.Duration) {
	defer q.ShutDown()
	before, began := heap(), processorTime(b)
	for _, k := range keys {
		q.Add(k)
	}
	for q.Len() < len(keys) { // controller-runtime's adds what it was given a little later
		runtime.Gosched()
	}
	took = processorTime(b) - began
	bytes, began = heap()-before, processorTime(b)
	for range keys {
		k, _ := q.Get()
		q.Done(k)
	}
	return bytes, took + processorTime(b) - began
}
