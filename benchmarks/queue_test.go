package benchmarks_test

import (
	"sync/atomic"
	"testing"

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

// BenchmarkQueue is one key through Add, Get and Done, by one goroutine.
func BenchmarkQueue(b *testing.B) {
	for _, queue := range queues[key]() {
		b.Run(queue.name, func(b *testing.B) {
			q := queue.make()
			defer q.ShutDown()
			k := key{Namespace: "default", Name: "web-7f9c"}
			b.ReportAllocs()
			for b.Loop() {
				q.Add(k)
				got, _ := q.Get()
				q.Done(got)
			}
		})
	}
}

// BenchmarkQueueContended is the same by four goroutines to a processor, and no key is added twice:
// if one were while it waits, there would be fewer keys to get than goroutines that get one.
func BenchmarkQueueContended(b *testing.B) {
	for _, queue := range queues[int64]() {
		b.Run(queue.name, func(b *testing.B) {
			q := queue.make()
			defer q.ShutDown()
			var next atomic.Int64
			b.ReportAllocs()
			b.SetParallelism(4)
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					q.Add(next.Add(1))
					got, _ := q.Get()
					q.Done(got)
				}
			})
		})
	}
}
