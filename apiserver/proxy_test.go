package apiserver_test

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/gorilla/websocket"

	"github.com/setpoint-dev/setpoint/apiserver/authn"
)

// gateway is an agent whose pods and machine are all one server on loopback. Its own paths it answers
// itself.
func gateway(t *testing.T, to *httptest.Server, asked chan<- string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked <- r.Method + " " + r.URL.Path
		if r.Method == http.MethodGet {
			io.WriteString(w, "the agent's own")
			return
		}
		conn, err := net.Dial("tcp", to.Listener.Addr().String())
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		go func() {
			_, _ = io.Copy(conn, r.Body)
			_ = conn.(*net.TCPConn).CloseWrite()
		}()
		w.WriteHeader(http.StatusOK)
		out := flushed{w}
		_ = http.NewResponseController(w).Flush()
		_, _ = io.Copy(out, conn)
	})
}

// proxied is a site with a pod behind a service, at which a server listens that says what it is asked
// and echoes the messages of WebSockets.
func proxied(t *testing.T) (s *site, web *httptest.Server, asked chan string) {
	inside := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if websocket.IsWebSocketUpgrade(r) {
			up := websocket.Upgrader{Subprotocols: []string{"own.protocol"}, CheckOrigin: func(*http.Request) bool { return true }}
			ws, err := up.Upgrade(w, r, nil)
			if err != nil {
				return
			}
			defer ws.Close()
			for {
				kind, text, err := ws.ReadMessage()
				if err != nil || ws.WriteMessage(kind, text) != nil {
					return
				}
			}
		}
		n, _ := io.Copy(io.Discard, r.Body)
		w.WriteHeader(http.StatusAccepted)
		fmt.Fprintf(w, "%s %s %d bytes, user %q, credentials %q", r.Method, r.RequestURI, n,
			r.Header.Get("Impersonate-User"), r.Header.Get("Authorization"))
	}))
	t.Cleanup(inside.Close)
	s = newSite(t)
	s.pod("p", `"nodeName":"n1","containers":[{"name":"c","image":"i","ports":[{"containerPort":8080}]}]`)
	s.must("PATCH", podPath+"/p/status", `{"status":{"podIP":"127.200.0.1","podIPs":[{"ip":"127.200.0.1"}]}}`,
		"Content-Type", "application/merge-patch+json")
	s.must("POST", "/api/v1/nodes", `{"metadata":{"name":"n1"}}`)
	s.must("POST", "/api/v1/namespaces/default/services",
		`{"metadata":{"name":"web"},"spec":{"ports":[{"name":"http","port":80}]}}`)
	s.must("POST", "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices", `{
		"metadata":{"name":"web-1","labels":{"kubernetes.io/service-name":"web"}},"addressType":"IPv4",
		"ports":[{"name":"http","port":8443}],
		"endpoints":[{"addresses":["127.200.0.1"],"targetRef":{"kind":"Pod","name":"p","namespace":"default"}},
			{"addresses":["10.1.1.1"]},{"addresses":["127.200.0.9"],"targetRef":{"kind":"Pod","name":"p","namespace":"default"}}]}`)
	asked = make(chan string, 1)
	s.connectAgent("n1", gateway(t, inside, asked))
	s.agents(1)
	return s, s.port(), asked
}

func TestProxyPassesOn(t *testing.T) {
	_, web, asked := proxied(t)
	const root = "/api/v1/namespaces/default/"
	large := strings.Repeat("x", 8<<20)
	for _, test := range []struct{ method, path, body, reaches, want string }{
		{"GET", root + "pods/p/proxy/", "", "POST /portForward/default/p/8080", "202 GET / 0 bytes"},
		{"GET", root + "pods/p:9/proxy//a%2Fb/../c?x=1&y=%20", "", "POST /portForward/default/p/9", "202 GET //a%2Fb/../c?x=1&y=%20 0 bytes"},
		{"POST", root + "pods/http:p:9/proxy/a", large, "POST /portForward/default/p/9", "202 POST /a 8388608 bytes"},
		{"DELETE", root + "services/web:http/proxy/a", "", "POST /portForward/default/p/8443", "202 DELETE /a 0 bytes"},
		{"PUT", root + "services/web:80/proxy/a", "x", "POST /portForward/default/p/8443", "202 PUT /a 1 bytes"},
		{"GET", "/api/v1/nodes/n1:9100/proxy/metrics", "", "POST /connect/9100", "202 GET /metrics 0 bytes"},
		{"GET", "/api/v1/nodes/n1/proxy/pods", "", "GET /pods", "200 the agent's own"},
		{"POST", "/api/v1/nodes/n1/proxy/exec/default/p/c", "", "", "405 "},
	} {
		req, err := http.NewRequestWithContext(t.Context(), test.method, web.URL+test.path, strings.NewReader(test.body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer secret")
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil {
			t.Errorf("%s: %v", test.path, err)
		}
		got, end := fmt.Sprint(resp.StatusCode, " ", string(text)), `, user "", credentials ""`
		if test.want[0] != '4' && !strings.HasSuffix(test.want, "own") {
			test.want += end
		}
		if got != test.want && !(test.want == "405 " && resp.StatusCode == 405) {
			t.Errorf("%s %s: %s\nwant %s", test.method, test.path, got, test.want)
		}
		if test.reaches != "" {
			if got := <-asked; got != test.reaches {
				t.Errorf("%s reaches %s, want %s", test.path, got, test.reaches)
			}
		}
	}
}

// A connection that the pod upgrades is the client's and the pod's, and ends with either.
func TestProxyUpgrades(t *testing.T) {
	s, web, asked := proxied(t)
	const root = "/api/v1/namespaces/default/"
	for _, path := range []string{"pods/p:9/proxy/echo", "services/web:http/proxy/echo"} {
		ws := s.dial(web, root+path, "own.protocol")
		<-asked
		if got := ws.Subprotocol(); got != "own.protocol" {
			t.Errorf("%s: the protocol is %q", path, got)
		}
		for _, text := range []string{"one", strings.Repeat("two", 100_000)} {
			if err := ws.WriteMessage(websocket.TextMessage, []byte(text)); err != nil {
				t.Fatal(err)
			}
			if got := message(t, ws); got != text {
				t.Errorf("%s echoes %.20q", path, got)
			}
		}
		ws.Close()
	}
	_, resp, err := websocket.DefaultDialer.Dial("ws"+strings.TrimPrefix(web.URL, "http")+"/api/v1/nodes/n1/proxy/exec/default/p/c", nil)
	if err == nil || resp.StatusCode != http.StatusBadRequest {
		t.Errorf("the agent itself was upgraded: %v", err)
	}
	ws := s.dial(web, root+"pods/p:9/proxy/echo")
	<-asked
	s.server.Stop()
	if _, _, err := ws.ReadMessage(); err == nil {
		t.Error("the server's end does not end it")
	}
	ws.Close()
}

// The ports of a forwarding are reached through the agent, for whoever may create one.
func TestPortForwardRelays(t *testing.T) {
	s := newSite(t)
	s.pod("p", `"nodeName":"n1","containers":[{"name":"c","image":"i"}]`)
	s.connectAgent("n1", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/1") {
			http.Error(w, "connection refused", http.StatusBadGateway)
			return
		}
		_ = http.NewResponseController(w).Flush()
		var sent [5]byte
		_, _ = io.ReadFull(r.Body, sent[:])
		fmt.Fprintf(w, "%s got %s", r.URL.Path, sent)
	}))
	s.agents(1)
	r := s.get(podPath + "/p/portforward?ports=8080")
	if want := `pod "p" is not running: its phase is Pending`; r.code != 400 || r.object(t).str("message") != want {
		t.Errorf("a pod that does not run yet: %d %s", r.code, r.text)
	}
	s.must("PATCH", podPath+"/p/status", `{"status":{"phase":"Running"}}`, "Content-Type", "application/merge-patch+json")
	ws := s.dial(s.port(), podPath+"/p/portforward?ports=8080,1", "v4.channel.k8s.io")
	defer ws.Close()
	got := map[byte]string{}
	for range 5 { // two numbers for each port, and a refusal
		m := message(t, ws)
		got[m[0]] += m[1:]
	}
	if err := ws.WriteMessage(websocket.BinaryMessage, []byte("\x00hello")); err != nil {
		t.Fatal(err)
	}
	m := message(t, ws)
	got[m[0]] += m[1:]
	want := map[byte]string{
		0: "\x90\x1f/portForward/default/p/8080 got hello", 1: "\x90\x1f",
		2: "\x01\x00", 3: "\x01\x00error forwarding port 1: connection refused",
	}
	for number, text := range want {
		if got[number] != text {
			t.Errorf("channel %d: %q, want %q", number, got[number], text)
		}
	}
}

// A node's agent, and anybody who may not, reaches nothing.
func TestProxyNeedsPermission(t *testing.T) {
	s := newSite(t)
	other := &site{t: t, client: &http.Client{Transport: s.server.Transport(&authn.User{Name: "jane"})}}
	for _, path := range []string{
		"/api/v1/nodes/n1/proxy/pods", "/api/v1/nodes/n1:9100/proxy/", podPath + "/p/proxy/",
		"/api/v1/namespaces/default/services/web/proxy/",
	} {
		if r := other.get(path); r.code != http.StatusForbidden {
			t.Errorf("%s: %d %s", path, r.code, r.text)
		}
	}
}
