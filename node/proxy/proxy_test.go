package proxy_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/setpoint-dev/setpoint/node/internal/fakeapi"
	"github.com/setpoint-dev/setpoint/node/proxy"
)

const patience = 60 * time.Second

func service(ip string, port int32) *corev1.Service {
	return &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"},
		Spec: corev1.ServiceSpec{
			ClusterIP: ip,
			Ports:     []corev1.ServicePort{{Name: "http", Port: port}},
		},
	}
}

func slice(name string, port int32, endpoints ...discoveryv1.Endpoint) *discoveryv1.EndpointSlice {
	return &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "default", Name: name,
			Labels: map[string]string{discoveryv1.LabelServiceName: "web"},
		},
		Ports:     []discoveryv1.EndpointPort{{Name: ptr.To("http"), Port: &port}},
		Endpoints: endpoints,
	}
}

func endpoint(ip string, ready, serving, terminating bool) discoveryv1.Endpoint {
	return discoveryv1.Endpoint{
		Addresses:  []string{ip},
		Conditions: discoveryv1.EndpointConditions{Ready: &ready, Serving: &serving, Terminating: &terminating},
	}
}

func TestPlan(t *testing.T) {
	var (
		up      = endpoint("127.64.0.1", true, true, false)
		unready = endpoint("127.64.0.2", false, false, false)
		ending  = endpoint("127.64.0.3", false, true, true)
		ended   = endpoint("127.64.0.4", false, false, true)
		unknown = discoveryv1.Endpoint{Addresses: []string{"127.64.0.5"}}
	)
	for name, c := range map[string]struct {
		service *corev1.Service
		slices  []discoveryv1.EndpointSlice
		want    []string // endpoints; nil means no frontend
	}{
		"only ready ones":                    {service("127.1.0.1", 80), []discoveryv1.EndpointSlice{*slice("a", 8080, up, unready, ending, ended)}, []string{"127.64.0.1:8080"}},
		"else those that end and serve":      {service("127.1.0.1", 80), []discoveryv1.EndpointSlice{*slice("a", 8080, unready, ending, ended)}, []string{"127.64.0.3:8080"}},
		"no conditions mean ready":           {service("127.1.0.1", 80), []discoveryv1.EndpointSlice{*slice("a", 8080, unknown)}, []string{"127.64.0.5:8080"}},
		"of all slices, once":                {service("127.1.0.1", 80), []discoveryv1.EndpointSlice{*slice("a", 8080, up), *slice("b", 8080, up, unknown)}, []string{"127.64.0.1:8080", "127.64.0.5:8080"}},
		"none: connections are refused":      {service("127.1.0.1", 80), nil, []string{}},
		"a headless service has no frontend": {service("None", 80), []discoveryv1.EndpointSlice{*slice("a", 8080, up)}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, f := range proxy.Plan([]corev1.Service{*c.service}, c.slices) {
				if f.Address != netip.MustParseAddrPort("127.1.0.1:80") || f.Service != (types.NamespacedName{Namespace: "default", Name: "web"}) {
					t.Errorf("frontend is %+v", f)
				}
				got = []string{}
				for _, e := range f.Endpoints {
					got = append(got, e.String())
				}
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("endpoints (-want +got):\n%s", diff)
			}
		})
	}
}

// backend answers each connection with its name.
type backend struct {
	net.Listener
	conns chan net.Conn
}

func newBackend(t *testing.T, address, name string) *backend {
	t.Helper()
	l, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	b := &backend{Listener: l, conns: make(chan net.Conn, 16)}
	stop := make(chan struct{})
	go func() {
		defer close(b.conns)
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			fmt.Fprintln(conn, name)
			select {
			case b.conns <- conn:
			case <-stop:
				conn.Close()
			}
		}
	}()
	t.Cleanup(func() {
		l.Close()
		close(stop)
		for conn := range b.conns {
			conn.Close()
		}
	})
	return b
}

// dial connects to address when somebody listens there, and returns the first line.
func dial(t *testing.T, address string) (net.Conn, string) {
	t.Helper()
	deadline := time.Now().Add(patience)
	for {
		conn, err := net.DialTimeout("tcp", address, patience)
		if err != nil {
			if time.Now().After(deadline) {
				t.Fatal(err)
			}
			continue // the proxy has yet to listen
		}
		_ = conn.SetDeadline(deadline)
		line := make([]byte, 64)
		n, err := conn.Read(line)
		if err != nil {
			conn.Close()
			if time.Now().After(deadline) {
				t.Fatalf("read from %s: %v", address, err)
			}
			continue // it has yet to hear of an endpoint
		}
		t.Cleanup(func() { conn.Close() })
		return conn, strings.TrimSpace(string(line[:n]))
	}
}

// run runs a proxy until the returned function is called.
func run(t *testing.T, api *fakeapi.API) (stop func()) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	p := proxy.New(proxy.Options{Client: api, Informers: api, Logger: slog.New(slog.DiscardHandler)})
	ended := make(chan error, 1)
	go func() { ended <- p.Run(ctx) }()
	stop = func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Run: %v", err)
		}
		ended <- nil
	}
	t.Cleanup(stop)
	return stop
}

func TestConnectionsGoRoundAndPassOverTheDead(t *testing.T) {
	newBackend(t, "127.77.0.1:18080", "one")
	newBackend(t, "127.77.0.2:18080", "two")
	// Nobody listens on 127.77.0.3.
	api := fakeapi.New(service("127.77.1.1", 18081), slice("a", 18080,
		endpoint("127.77.0.1", true, true, false), endpoint("127.77.0.2", true, true, false),
		endpoint("127.77.0.3", true, true, false)))
	run(t, api)
	seen := map[string]int{}
	for range 12 {
		conn, line := dial(t, "127.77.1.1:18081")
		conn.Close()
		seen[line]++
	}
	if seen["one"] < 4 || seen["two"] < 4 {
		t.Errorf("connections: %v, want twelve, at least four to each", seen)
	}
}

func TestOpenConnectionStaysWithItsTerminatingEndpoint(t *testing.T) {
	old := newBackend(t, "127.77.0.11:18080", "old")
	newBackend(t, "127.77.0.12:18080", "new")
	first := slice("a", 18080, endpoint("127.77.0.11", true, true, false))
	api := fakeapi.New(service("127.77.1.2", 18081), first)
	run(t, api)
	conn, line := dial(t, "127.77.1.2:18081")
	if line != "old" {
		t.Fatalf("connected to %q", line)
	}
	server := <-old.conns

	first.Endpoints = []discoveryv1.Endpoint{
		endpoint("127.77.0.11", false, true, true), endpoint("127.77.0.12", true, true, false),
	}
	if err := api.Update(t.Context(), first); err != nil {
		t.Fatal(err)
	}
	for line != "new" { // the proxy hears of it in its own time
		_, line = dial(t, "127.77.1.2:18081")
	}
	for range 4 {
		if _, line := dial(t, "127.77.1.2:18081"); line != "new" {
			t.Errorf("a new connection went to %q", line)
		}
	}
	// The open one still carries both ways, and one end's end is passed on.
	fmt.Fprint(conn, "ping")
	if err := conn.(*net.TCPConn).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(server); err != nil || string(got) != "ping" {
		t.Errorf("the endpoint read %q, %v", got, err)
	}
	fmt.Fprint(server, "pong")
	server.Close()
	if got, err := io.ReadAll(conn); err != nil || string(got) != "pong" {
		t.Errorf("the client read %q, %v", got, err)
	}
}

func TestDeletedServiceStopsListening(t *testing.T) {
	newBackend(t, "127.77.0.21:18080", "one")
	svc := service("127.77.1.3", 18081)
	api := fakeapi.New(svc, slice("a", 18080, endpoint("127.77.0.21", true, true, false)))
	run(t, api)
	dial(t, "127.77.1.3:18081")
	if err := api.Delete(t.Context(), svc); err != nil {
		t.Fatal(err)
	}
	deadline := time.Now().Add(patience)
	for {
		conn, err := net.Dial("tcp", "127.77.1.3:18081")
		if err != nil {
			return
		}
		conn.Close()
		if time.Now().After(deadline) {
			t.Fatal("still listening")
		}
	}
}

// TestClusterIPIsAddedToLoopback runs in a network namespace of its own.
func TestClusterIPIsAddedToLoopback(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	const inside = "SETPOINT_TEST_NETWORK"
	if os.Getenv(inside) == "" {
		cmd := exec.Command("/proc/self/exe", "-test.run=^"+t.Name()+"$", "-test.v")
		cmd.Env = append(os.Environ(), inside+"=1")
		cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL}
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		return
	}
	up := exec.Command("ip", "link", "set", "lo", "up")
	if out, err := up.CombinedOutput(); err != nil {
		t.Skipf("ip: %v %s", err, out)
	}
	newBackend(t, "127.77.0.31:18080", "one")
	stop := run(t, fakeapi.New(service("10.0.0.5", 80), slice("a", 18080, endpoint("127.77.0.31", true, true, false))))
	if _, line := dial(t, "10.0.0.5:80"); line != "one" {
		t.Errorf("connected to %q", line)
	}
	stop()
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range addrs {
		if strings.HasPrefix(a.String(), "10.0.0.5") {
			t.Errorf("after the end, %s is still there", a)
		}
	}
}

func TestConnectionThatNobodyTakesIsReset(t *testing.T) {
	newBackend(t, "127.77.0.41:18080", "one")
	endpoints := slice("a", 18080, endpoint("127.77.0.41", true, true, false))
	api := fakeapi.New(service("127.77.1.4", 18081), endpoints)
	run(t, api)
	dial(t, "127.77.1.4:18081")
	// Nobody listens on any of these.
	endpoints.Endpoints = []discoveryv1.Endpoint{
		endpoint("127.77.0.42", true, true, false), endpoint("127.77.0.43", true, true, false),
	}
	if err := api.Update(t.Context(), endpoints); err != nil {
		t.Fatal(err)
	}
	deadline := time.Now().Add(patience)
	for {
		conn, err := net.Dial("tcp", "127.77.1.4:18081")
		if errors.Is(err, syscall.ECONNRESET) {
			return // before the dialer had looked
		}
		if err != nil {
			t.Fatal(err)
		}
		_ = conn.SetDeadline(deadline)
		_, err = conn.Read(make([]byte, 8))
		conn.Close()
		if errors.Is(err, syscall.ECONNRESET) {
			return
		}
		if err != nil {
			t.Fatalf("read: %v, want a reset", err)
		}
	}
}
