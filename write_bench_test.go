package setpoint_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/setpoint-dev/setpoint"
)

// BenchmarkWrite shows what a write costs the processor, its client included, when nobody is told of
// it and when all controllers are: the difference is what their watches make of it.
func BenchmarkWrite(b *testing.B) {
	for _, controllers := range []string{"none", "all"} {
		b.Run("controllers="+controllers, func(b *testing.B) {
			b.Run("create", func(b *testing.B) { benchmarkWrites(b, controllers, createConfigMap) })
			b.Run("renew", func(b *testing.B) { benchmarkWrites(b, controllers, renewLease) })
		})
	}
}

// nodes is how many leases are renewed.
const nodes = 1000

// writeOf is the n-th write of a benchmark.
type writeOf func(n int64) (method, path, contentType, body string)

func createConfigMap(n int64) (method, path, contentType, body string) {
	return http.MethodPost, "/api/v1/namespaces/default/configmaps", "application/json", fmt.Sprintf(
		`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"c-%d"},"data":{"value":%q}}`,
		n, strings.Repeat("x", 900))
}

func renewLease(n int64) (method, path, contentType, body string) {
	const leases = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
	lease := fmt.Sprintf(`{"apiVersion":"coordination.k8s.io/v1","kind":"Lease","metadata":{"name":"node-%d"},`+
		`"spec":{"holderIdentity":"node-%[1]d","leaseDurationSeconds":40,"renewTime":"2026-01-02T03:04:05.%06[2]dZ"}}`,
		n%nodes, n%1_000_000)
	if n <= nodes {
		return http.MethodPost, leases, "application/json", lease
	}
	return http.MethodPatch, fmt.Sprintf("%s/node-%d", leases, n%nodes), "application/merge-patch+json", lease
}

func benchmarkWrites(b *testing.B, controllers string, next writeOf) {
	cp, err := setpoint.New(setpoint.Options{Controllers: []string{controllers}})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = cp.Stop() })
	if err := cp.Start(context.Background()); err != nil {
		b.Fatal(err)
	}
	web, err := rest.HTTPClientFor(cp.RESTConfig())
	if err != nil {
		b.Fatal(err)
	}
	host := cp.RESTConfig().Host
	write := func(n int64) {
		method, path, contentType, body := next(n)
		req, err := http.NewRequest(method, host+path, strings.NewReader(body))
		if err != nil {
			b.Error(err)
			return
		}
		req.Header.Set("Content-Type", contentType)
		resp, err := web.Do(req)
		if err != nil {
			b.Error(err)
			return
		}
		resp.Body.Close()
		if resp.StatusCode >= 300 {
			b.Errorf("%s %s: %s", method, path, resp.Status)
		}
	}
	var n atomic.Int64
	for range nodes {
		write(n.Add(1))
	}
	b.SetParallelism(32)
	b.ReportAllocs()
	before := processorTime()
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			write(n.Add(1))
		}
	})
	b.ReportMetric(float64(processorTime()-before)/float64(b.N)/1000, "processor-µs/op")
}

// processorTime is what the process has used of the processors, in nanoseconds.
func processorTime() int64 {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return u.Utime.Nano() + u.Stime.Nano()
}
