package probe_test

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/setpoint-dev/setpoint/node/probe"
)

func TestTracker(t *testing.T) {
	for name, c := range map[string]struct {
		probe   corev1.Probe
		initial bool
		answers string // + success, - failure
		want    string // after each: T or F, lower case while the row is incomplete
	}{
		"one success is enough, three failures are needed": {corev1.Probe{}, false, "+--+---+", "TttTttFT"},
		"thresholds":                        {corev1.Probe{SuccessThreshold: 2, FailureThreshold: 1}, false, "+-++-", "fFfTF"},
		"failures that are not in a row":    {corev1.Probe{FailureThreshold: 2}, true, "-+-+--", "tTtTtF"},
		"a liveness probe is true at first": {corev1.Probe{}, true, "--", "tt"},
	} {
		t.Run(name, func(t *testing.T) {
			tracker := probe.NewTracker(&c.probe, c.initial)
			got := ""
			for _, answer := range c.answers {
				ok, complete := tracker.Observe(answer == '+')
				letter := "f"
				if ok {
					letter = "t"
				}
				if complete {
					letter = strings.ToUpper(letter)
				}
				got += letter
			}
			if got != c.want {
				t.Errorf("%s gives %s, want %s", c.answers, got, c.want)
			}
		})
	}
}

// target is where a test server listens, under the port's name "http".
func target(t *testing.T, server *httptest.Server) probe.Target {
	t.Helper()
	at := netip.MustParseAddrPort(server.Listener.Addr().String())
	return probe.Target{
		IP:    at.Addr().String(),
		Ports: []corev1.ContainerPort{{Name: "http", ContainerPort: int32(at.Port())}},
	}
}

func TestHTTP(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/header":
			if r.Host != "example.com" || r.Header.Get("X-Test") != "1" {
				w.WriteHeader(http.StatusTeapot)
			}
		case "/away":
			http.Redirect(w, r, "http://nowhere.invalid/", http.StatusFound)
		case "/home":
			http.Redirect(w, r, "/broken", http.StatusFound)
		case "/broken":
			w.WriteHeader(http.StatusInternalServerError)
		}
	}))
	defer server.Close()
	headers := []corev1.HTTPHeader{{Name: "host", Value: "example.com"}, {Name: "X-Test", Value: "1"}}
	for path, want := range map[string]string{
		"/":       "",
		"ok?x=1":  "",
		"/header": "",
		"/away":   "", // its own answer was a redirect
		"/broken": "HTTP probe failed with statuscode: 500",
		"/home":   "HTTP probe failed with statuscode: 500",
	} {
		handler := &corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{
			Path: path, Port: intstr.FromString("http"), HTTPHeaders: headers,
		}}
		got := ""
		if err := probe.Check(t.Context(), handler, target(t, server)); err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("%s: %q, want %q", path, got, want)
		}
	}
}

func TestTCPAndPorts(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := l.Addr().(*net.TCPAddr).Port
	check := func(p intstr.IntOrString) error {
		handler := &corev1.ProbeHandler{TCPSocket: &corev1.TCPSocketAction{Port: p}}
		return probe.Check(t.Context(), handler, probe.Target{IP: "127.0.0.1"})
	}
	if err := check(intstr.FromInt(port)); err != nil {
		t.Error(err)
	}
	l.Close()
	if err := check(intstr.FromInt(port)); err == nil {
		t.Error("nobody listens: no error")
	}
	if err := check(intstr.FromString("web")); err == nil || !strings.Contains(err.Error(), `"web"`) {
		t.Errorf("a name that no port has: %v", err)
	}
}

func TestExec(t *testing.T) {
	for name, c := range map[string]struct {
		code   int
		output string
		err    error
		want   string
	}{
		"success":             {0, "fine", nil, ""},
		"failure":             {1, "not fine\n", nil, "not fine"},
		"failure without say": {3, "", nil, `command ["check"] exited with code 3`},
		"can't be run":        {0, "", errors.New("no such container"), "no such container"},
	} {
		t.Run(name, func(t *testing.T) {
			handler := &corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{"check"}}}
			err := probe.Check(t.Context(), handler, probe.Target{
				Exec: func(context.Context, []string) (int, []byte, error) { return c.code, []byte(c.output), c.err },
			})
			got := ""
			if err != nil {
				got = err.Error()
			}
			if got != c.want {
				t.Errorf("%q, want %q", got, c.want)
			}
		})
	}
}

func TestGRPC(t *testing.T) {
	status := map[string]byte{"": 1, "web": 1, "db": 2}
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body := make([]byte, 256)
		n, _ := r.Body.Read(body)
		service := ""
		if n > 7 {
			service = string(body[7:n])
		}
		w.Header().Set("Content-Type", "application/grpc")
		w.Header().Set("Trailer", "Grpc-Status")
		if code, ok := status[service]; ok {
			_, _ = w.Write([]byte{0, 0, 0, 0, 2, 0x08, code})
			w.Header().Set("Grpc-Status", "0")
		} else {
			w.Header().Set("Grpc-Status", "5")
		}
	}))
	var protocols http.Protocols
	protocols.SetUnencryptedHTTP2(true)
	server.Config.Protocols = &protocols
	server.Start()
	defer server.Close()
	at := target(t, server)
	for service, want := range map[string]string{
		"": "", "web": "",
		"db":   `service "db" is not serving`,
		"none": `service "none": gRPC status "5"`,
	} {
		handler := &corev1.ProbeHandler{GRPC: &corev1.GRPCAction{Port: at.Ports[0].ContainerPort, Service: &service}}
		got := ""
		if err := probe.Check(t.Context(), handler, at); err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("%q: %q, want %q", service, got, want)
		}
	}
}
