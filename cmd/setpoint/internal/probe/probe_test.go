package probe_test

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strconv"
	"testing"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/setpoint-dev/setpoint/cmd/setpoint/internal/probe"
	"github.com/setpoint-dev/setpoint/cmd/setpoint/internal/scheme"
)

// slice is an endpoint slice with one ready endpoint.
func slice(t *testing.T, name, address string) client.Object {
	t.Helper()
	host, text, err := net.SplitHostPort(address)
	if err != nil {
		t.Fatal(err)
	}
	port, err := strconv.Atoi(text)
	if err != nil {
		t.Fatal(err)
	}
	return &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, Labels: map[string]string{discoveryv1.LabelServiceName: "web"}},
		Endpoints:  []discoveryv1.Endpoint{{Addresses: []string{host}, Conditions: discoveryv1.EndpointConditions{Ready: ptr.To(true)}}},
		Ports:      []discoveryv1.EndpointPort{{Port: ptr.To(int32(port))}},
	}
}

// TestWhatCountsAsFailed asks services that work, half work and don't.
func TestWhatCountsAsFailed(t *testing.T) {
	serve := func(code int) string {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(code) }))
		t.Cleanup(s.Close)
		return s.Listener.Addr().String()
	}
	closed := func() string {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		return l.Addr().String()
	}
	for _, c := range []struct {
		about     string
		endpoints []string
		fails     bool
	}{
		{"all work", []string{serve(200), serve(200)}, false},
		{"one takes no connection", []string{closed(), serve(200)}, false},
		{"none takes a connection", []string{closed(), closed()}, true},
		{"one answers with an error", []string{serve(500)}, true},
	} {
		t.Run(c.about, func(t *testing.T) {
			b := fake.NewClientBuilder().WithScheme(scheme.New())
			for i, endpoint := range c.endpoints {
				b.WithObjects(slice(t, "s"+strconv.Itoa(i), endpoint))
			}
			ctx, stop := context.WithCancel(t.Context())
			defer stop()
			p := probe.Start(ctx, b.Build(), "web")
			for sent, _ := p.Counts(); sent < 10; sent, _ = p.Counts() {
				runtime.Gosched()
			}
			stop()
			p.Wait()
			if sent, failed := p.Counts(); (failed > 0) != c.fails {
				t.Errorf("%d of %d failed (%v), want failures: %v", failed, sent, p.LastError(), c.fails)
			}
		})
	}
}
