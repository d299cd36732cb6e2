package apiserver_test

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"testing"

	"github.com/setpoint-dev/setpoint/apiserver/authn"
)

// A write allocates what the object's trees consist of, and little beside. The counts are of the whole
// way, from the request to the answer and the store's history.
func TestWritesCostLittle(t *testing.T) {
	if raceEnabled {
		t.Skip("allocations differ under the race detector")
	}
	s := newSite(t)
	const lease = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
	s.must("POST", lease, `{"metadata":{"name":"n"},"spec":{"holderIdentity":"n","leaseDurationSeconds":40}}`)
	for _, c := range []struct {
		what, method, path, contentType, body string
		code                                  int
		most                                  float64
	}{
		{"renewal of a lease", "PATCH", lease + "/n", merge,
			`{"metadata":{"name":"n"},"spec":{"holderIdentity":"n","leaseDurationSeconds":40,"renewTime":"2026-01-02T03:04:05.%06dZ"}}`,
			200, 170},
		{"renewal that changes nothing", "PATCH", lease + "/n", merge, `{"spec":{"holderIdentity":"n"}}`, 200, 135},
		{"create of a config map", "POST", cm, "application/json",
			`{"metadata":{"name":"c-%d","labels":{"app":"web"}},"data":{"k":"v"}}`, 201, 155},
	} {
		n := 0
		once := func() {
			n++
			body := c.body
			if bytes.Contains([]byte(body), []byte("%")) {
				body = fmt.Sprintf(body, n)
			}
			if w := s.write(c.method, c.path, c.contentType, body); w.code != c.code {
				t.Fatalf("%s: %d", c.what, w.code)
			}
		}
		if got := testing.AllocsPerRun(50, once); got > c.most {
			t.Errorf("%s: %.0f allocations, at most %.0f are allowed", c.what, got, c.most)
		} else {
			t.Logf("%s: %.0f allocations", c.what, got)
		}
	}
}

// write answers a write without any transport.
func (s *site) write(method, path, contentType, body string) *sink {
	req, _ := http.NewRequest(method, "http://setpoint"+path, io.NopCloser(bytes.NewReader([]byte(body))))
	req.ContentLength = int64(len(body))
	req.Header.Set("Content-Type", contentType)
	admin := &authn.User{Name: "admin", Groups: []string{authn.Masters}}
	w := &sink{header: http.Header{}}
	s.server.ServeHTTP(w, req.WithContext(authn.WithUser(s.t.Context(), admin)))
	return w
}

// writes counts what is written of an answer.
type writes struct {
	sink
	n int
}

func (w *writes) Write(p []byte) (int, error) {
	w.n++
	return w.sink.Write(p)
}

// Each write of an answer that does not fit into the transport's buffer is a system call.
func TestAnswersAreOneWrite(t *testing.T) {
	s := newSite(t)
	s.fill(1)
	req, _ := http.NewRequest("GET", "http://setpoint"+podPath+"/pod-000000", nil)
	admin := &authn.User{Name: "admin", Groups: []string{authn.Masters}}
	w := &writes{sink: sink{header: http.Header{}}}
	s.server.ServeHTTP(w, req.WithContext(authn.WithUser(t.Context(), admin)))
	if w.n != 1 || w.header.Get("Content-Length") != strconv.Itoa(w.bytes) {
		t.Errorf("%d bytes in %d writes, Content-Length %s", w.bytes, w.n, w.header.Get("Content-Length"))
	}
}
