package apiserver_test

import (
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"

	"github.com/setpoint-dev/setpoint/apiserver"
	"github.com/setpoint-dev/setpoint/kinds"
	"github.com/setpoint-dev/setpoint/kinds/builtin"
	"github.com/setpoint-dev/setpoint/store/memory"
)

// TestBootstrapAgain starts servers on one store, as restarts do, after somebody has written too.
func TestBootstrapAgain(t *testing.T) {
	s := memory.New(memory.Options{})
	defer s.Close()
	for start := range 3 {
		server, err := apiserver.New(apiserver.Options{Store: s, Kinds: kinds.NewRegistry(builtin.Set())})
		if err != nil {
			t.Fatal(err)
		}
		before := s.Revision()
		if err := server.Bootstrap(t.Context()); err != nil {
			t.Fatalf("start %d: %v", start, err)
		}
		if err := server.Announce(t.Context(), netip.MustParseAddrPort("127.0.0.1:6443")); err != nil {
			t.Fatal(err)
		}
		if wrote := s.Revision() != before; wrote != (start == 0) {
			t.Errorf("start %d: wrote %v; only the first has something to write", start, wrote)
		}
	}
}

func TestFirstObjects(t *testing.T) {
	a := newAPI(t)
	for path, want := range map[string]string{
		"/apis/scheduling.k8s.io/v1/priorityclasses/system-node-critical":                `"value":2000001000`,
		"/apis/networking.k8s.io/v1/servicecidrs/kubernetes":                             `"type":"Ready"`,
		"/apis/apiregistration.k8s.io/v1/apiservices/v1.":                                `"groupPriorityMinimum":18000`,
		"/apis/apiregistration.k8s.io/v1/apiservices/v1.authentication.k8s.io":           `"reason":"Local"`,
		"/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas/catch-all":                    `"reason":"Found"`,
		"/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas/system-nodes":                 `"matchingPrecedence":500`,
		"/apis/flowcontrol.apiserver.k8s.io/v1/prioritylevelconfigurations/workload-low": `"nominalConcurrencyShares":100`,
	} {
		if got := a.want(200, "GET "+path, "", ""); !strings.Contains(got.text, want) {
			t.Errorf("%s has no %s: %s", path, want, got.text)
		}
	}
}

func TestAnnounce(t *testing.T) {
	a := newAPI(t)
	const slice = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices/kubernetes"
	const endpoints = "/api/v1/namespaces/default/endpoints/kubernetes"
	for at, want := range map[string][2]string{
		"127.0.0.1:6443": {`"addresses":["127.0.0.1"]`, `"ip":"127.0.0.1"`},
		"0.0.0.0:1234":   {`"port":1234`, `"port":1234`},
		"10.1.2.3:6443":  {`"addresses":["10.1.2.3"]`, `"ip":"10.1.2.3"`},
	} {
		if err := a.server.Announce(t.Context(), netip.MustParseAddrPort(at)); err != nil {
			t.Fatal(err)
		}
		for i, path := range []string{slice, endpoints} {
			if got := a.want(200, "GET "+path, "", ""); !strings.Contains(got.text, want[i]) {
				t.Errorf("announced %s: %s", at, got.text)
			}
		}
	}
}

// TestUnknownTokenIsRefused sends a token to a server that knows none: bad credentials are not the
// same as none.
func TestUnknownTokenIsRefused(t *testing.T) {
	s := memory.New(memory.Options{})
	defer s.Close()
	server, err := apiserver.New(apiserver.Options{Store: s, Kinds: kinds.NewRegistry(builtin.Set())})
	if err != nil {
		t.Fatal(err)
	}
	for authorization, want := range map[string]int{"Bearer nosuch": 401, "": 403} {
		r := httptest.NewRequestWithContext(t.Context(), "GET", "/api/v1/namespaces", nil)
		if authorization != "" {
			r.Header.Set("Authorization", authorization)
		}
		w := httptest.NewRecorder()
		server.ServeHTTP(w, r)
		if w.Code != want {
			t.Errorf("Authorization %q: %d, want %d", authorization, w.Code, want)
		}
	}
}
