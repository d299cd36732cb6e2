package benchmarks_test

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	upstream "k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"

	"github.com/setpoint-dev/setpoint/workqueue"
)

type key = types.NamespacedName

// queues are what is compared, in one run.
var queues = []struct {
	name string
	make func() upstream.TypedRateLimitingInterface[key]
}{
	{"setpoint", func() upstream.TypedRateLimitingInterface[key] {
		return workqueue.New(workqueue.Options[key]{Name: "bench"})
	}},
	{"client-go", func() upstream.TypedRateLimitingInterface[key] {
		return upstream.NewTypedRateLimitingQueue(upstream.DefaultTypedControllerRateLimiter[key]())
	}},
	{"controller-runtime", func() upstream.TypedRateLimitingInterface[key] {
		return priorityqueue.New[key]("bench")
	}},
}

// BenchmarkQueue is one key through Add, Get and Done, by one goroutine.
func BenchmarkQueue(b *testing.B) {
	for _, queue := range queues {
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

// BenchmarkQueueContended is the same by as many goroutines as there are processors, times four.
func BenchmarkQueueContended(b *testing.B) {
	keys := make([]key, 1024)
	for i := range keys {
		keys[i] = key{Namespace: "default", Name: time.Duration(i).String()}
	}
	for _, queue := range queues {
		b.Run(queue.name, func(b *testing.B) {
			q := queue.make()
			defer q.ShutDown()
			b.ReportAllocs()
			b.SetParallelism(4)
			b.RunParallel(func(pb *testing.PB) {
				for n := 0; pb.Next(); n++ {
					// Two adds to a get: what another goroutine waits for is always there.
					q.Add(keys[n%len(keys)])
					q.Add(keys[(n+512)%len(keys)])
					got, _ := q.Get()
					q.Done(got)
				}
			})
		})
	}
}
