package apiserver_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/setpoint-dev/setpoint/apiserver/authn"
)

// sink is an answer that nobody keeps.
type sink struct {
	header http.Header
	code   int
	bytes  int
}

func (w *sink) Header() http.Header { return w.header }
func (w *sink) WriteHeader(c int)   { w.code = c }
func (w *sink) Write(p []byte) (int, error) {
	w.bytes += len(p)
	return len(p), nil
}

// typed is what client-go's typed clients accept.
const typed = "application/vnd.kubernetes.protobuf,application/json"

// serve answers a request without any transport.
func (s *site) serve(path, accept string) *sink {
	req, _ := http.NewRequest("GET", "http://setpoint"+path, nil)
	req.Header.Set("Accept", accept)
	admin := &authn.User{Name: "admin", Groups: []string{authn.Masters}}
	w := &sink{header: http.Header{}}
	s.server.ServeHTTP(w, req.WithContext(authn.WithUser(s.t.Context(), admin)))
	return w
}

// fill makes n pods of about 3 KB.
func (s *site) fill(n int) {
	s.t.Helper()
	env := strings.Repeat(`{"name":"SOME_VARIABLE","value":"some value of a usual length"},`, 30)
	for i := range n {
		s.must("POST", podPath, fmt.Sprintf(`{"metadata":{"name":"pod-%06d","labels":{"app":"web","n":"%d"}},
			"spec":{"containers":[{"name":"c","image":"i","env":[%s]}]}}`, i, i%10, strings.TrimSuffix(env, ",")))
	}
}

// A read costs a few allocations, however large the object is, and a list costs none for each object:
// what is stored is what is sent.
func TestReadsCostLittle(t *testing.T) {
	if raceEnabled {
		t.Skip("allocations differ under the race detector")
	}
	s := newSite(t)
	s.fill(300)
	for _, c := range []struct {
		path, accept string
		most         float64
	}{
		{podPath + "/pod-000007", "application/json", 60},
		{podPath + "/pod-000007", typed, 60},
		{podPath, "application/json", 100},
		{podPath, typed, 100},
		{podPath, "application/cbor", 250},
		{podPath + "?labelSelector=app=web", "application/json", 250},
		{podPath + "?labelSelector=app=web", typed, 250},
		{podPath + "?fieldSelector=spec.nodeName=", "application/json", 250},
	} {
		if w := s.serve(c.path, c.accept); w.code != http.StatusOK && w.code != 0 {
			t.Fatalf("%s: %d", c.path, w.code)
		}
		if got := testing.AllocsPerRun(20, func() { s.serve(c.path, c.accept) }); got > c.most {
			t.Errorf("%s as %s: %.0f allocations, at most %.0f are allowed", c.path, c.accept, got, c.most)
		} else {
			t.Logf("%s as %s: %.0f allocations", c.path, c.accept, got)
		}
	}
}

func BenchmarkGet(b *testing.B) {
	s := newSite(b)
	s.fill(1)
	b.ReportAllocs()
	for b.Loop() {
		b.SetBytes(int64(s.serve(podPath+"/pod-000000", typed).bytes))
	}
}

func BenchmarkList(b *testing.B) {
	s := newSite(b)
	s.fill(5000)
	for name, query := range map[string]string{"all": "", "labels": "?labelSelector=app=web", "fields": "?fieldSelector=spec.nodeName="} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				b.SetBytes(int64(s.serve(podPath+query, typed).bytes))
			}
		})
	}
}

// counter is the answer of a watch, of which only the flushes are kept.
type counter struct {
	sink
	flushed chan<- int
}

func (w *counter) FlushError() error {
	w.flushed <- w.bytes
	w.bytes = 0
	return nil
}

// BenchmarkWatch writes one object and waits until each of a thousand watches has sent it.
func BenchmarkWatch(b *testing.B) {
	s := newSite(b)
	const watchers = 1000
	flushed := make(chan int, watchers)
	admin := &authn.User{Name: "admin", Groups: []string{authn.Masters}}
	req, _ := http.NewRequest("GET", "http://setpoint"+cm+"?watch=1&resourceVersion="+s.configMap("a", "").revision(), nil)
	req = req.WithContext(authn.WithUser(b.Context(), admin))
	for range watchers {
		go s.server.ServeHTTP(&counter{sink{header: http.Header{}}, flushed}, req.Clone(req.Context()))
	}
	await := func() {
		for range watchers {
			<-flushed
		}
	}
	await() // each has begun
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		s.must("PATCH", cm+"/a", fmt.Sprintf(`{"data":{"k":"%d"}}`, i), "Content-Type", "application/merge-patch+json")
		await()
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/watchers, "ns/delivery")
}
