package apiserver_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/setpoint-dev/setpoint/apiserver"
	"github.com/setpoint-dev/setpoint/apiserver/authn"
	"github.com/setpoint-dev/setpoint/apiserver/pki"
)

// overTLS serves a site on a port, and returns its address, what ends it, and its authority.
func (s *site) overTLS() (address string, stop func() error, authority *pki.Authority) {
	s.t.Helper()
	authority, err := pki.Open(s.t.TempDir(), time.Now)
	if err != nil {
		s.t.Fatal(err)
	}
	conf, err := authority.ServerConfig("127.0.0.1")
	if err != nil {
		s.t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		s.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.server.Serve(ctx, listener, conf) }()
	stop = func() error { cancel(); return <-ended }
	s.t.Cleanup(cancel)
	return "https://" + listener.Addr().String(), stop, authority
}

func tlsClient(t *testing.T, a *pki.Authority, http2 bool, user string, groups ...string) *http.Client {
	t.Helper()
	conf := &tls.Config{RootCAs: a.Pool()}
	if user != "" {
		cert, key, err := a.Client(user, user, groups...)
		if err != nil {
			t.Fatal(err)
		}
		pair, err := tls.X509KeyPair(cert, key)
		if err != nil {
			t.Fatal(err)
		}
		conf.Certificates = []tls.Certificate{pair}
	}
	transport := &http.Transport{TLSClientConfig: conf, ForceAttemptHTTP2: http2}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

func TestServe(t *testing.T) {
	s := newSite(t, func(o *apiserver.Options) {
		o.Authenticator = authn.Chain(authn.Certificates(), authn.Tokens(map[string]*authn.User{"s3cret": {Name: "robot"}}))
	})
	s.configMap("a", "")
	address, stop, authority := s.overTLS()
	for _, c := range []struct {
		about  string
		client *http.Client
		token  string
		proto  int
		code   int
		user   string
	}{
		{"a certificate", tlsClient(t, authority, true, "admin", "system:masters"), "", 2, 200, ""},
		{"a certificate over HTTP/1.1", tlsClient(t, authority, false, "admin", "system:masters"), "", 1, 200, ""},
		{"another certificate", tlsClient(t, authority, true, "jane", "devs"), "", 2, 403, "jane"},
		{"nothing", tlsClient(t, authority, true, ""), "", 2, 403, "system:anonymous"},
		{"a token", tlsClient(t, authority, true, ""), "s3cret", 2, 403, "robot"},
		{"a bad token", tlsClient(t, authority, true, ""), "guess", 2, 401, "Unauthorized"},
	} {
		t.Run(c.about, func(t *testing.T) {
			req, _ := http.NewRequest("GET", address+cm+"/a", nil)
			if c.token != "" {
				req.Header.Set("Authorization", "Bearer "+c.token)
			}
			resp, err := c.client.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			body, _ := io.ReadAll(resp.Body)
			if resp.StatusCode != c.code || resp.ProtoMajor != c.proto || !strings.Contains(string(body), c.user) {
				t.Errorf("%s %s: %s", resp.Proto, resp.Status, body)
			}
			if resp.Header.Get("Audit-Id") == "" || resp.Header.Get("Cache-Control") != "no-cache, private" {
				t.Errorf("header %v", resp.Header)
			}
		})
	}
	if err := stop(); err != nil {
		t.Errorf("serve ended with %v", err)
	}
}

// A stop ends watches properly, on both protocols, and waits for nobody.
func TestServeStopEndsWatches(t *testing.T) {
	s := newSite(t)
	from := s.configMap("a", "").revision()
	address, stop, authority := s.overTLS()
	var watches []*bufio.Reader
	for _, http2 := range []bool{true, false} {
		c := tlsClient(t, authority, http2, "admin", "system:masters")
		resp, err := c.Get(address + cm + "?watch=1&resourceVersion=" + from)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		watches = append(watches, bufio.NewReader(resp.Body))
	}
	s.configMap("b", "")
	for i, w := range watches {
		if line, err := w.ReadString('\n'); err != nil || !strings.HasPrefix(line, `{"type":"ADDED"`) {
			t.Errorf("watch %d: %q, %v", i, line, err)
		}
	}
	if err := stop(); err != nil {
		t.Errorf("serve ended with %v", err)
	}
	for i, w := range watches {
		if rest, err := io.ReadAll(w); len(rest) > 0 || err != nil && !errors.Is(err, io.EOF) {
			t.Errorf("watch %d ended with %q, %v", i, rest, err)
		}
	}
}

func TestServeRefusesOtherAuthorities(t *testing.T) {
	s := newSite(t)
	address, _, authority := s.overTLS()
	stranger, err := pki.Open(t.TempDir(), time.Now)
	if err != nil {
		t.Fatal(err)
	}
	c := tlsClient(t, stranger, false, "admin", "system:masters")
	c.Transport.(*http.Transport).TLSClientConfig.RootCAs = authority.Pool()
	resp, err := c.Get(address + cm)
	if err == nil {
		resp.Body.Close()
		t.Errorf("a certificate of a stranger's authority was let in: %s", resp.Status)
	}
}
