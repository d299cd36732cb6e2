package pki_test

import (
	"crypto/tls"
	"crypto/x509"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/tools/clientcmd"

	"github.com/setpoint-dev/setpoint/apiserver/pki"
)

var start = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func open(t *testing.T, dir string, now time.Time) *pki.Authority {
	t.Helper()
	a, err := pki.Open(dir, func() time.Time { return now })
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func read(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func TestAuthorityIsKept(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	first := open(t, dir, start)
	again := open(t, dir, start.Add(time.Hour))
	if string(first.PEM()) != string(again.PEM()) {
		t.Error("a second opening made another authority")
	}
	for _, file := range []string{"ca.crt", "ca.key"} {
		info, err := os.Stat(filepath.Join(dir, file))
		if err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: mode %v, %v", file, info.Mode(), err)
		}
	}
}

func TestDamagedAuthorityIsNotReplaced(t *testing.T) {
	for about, damage := range map[string]func(dir string) error{
		"no key":    func(dir string) error { return os.Remove(filepath.Join(dir, "ca.key")) },
		"not a key": func(dir string) error { return os.WriteFile(filepath.Join(dir, "ca.key"), []byte("x"), 0o600) },
		"not its key": func(dir string) error {
			return os.Rename(filepath.Join(dir, "server.key"), filepath.Join(dir, "ca.key"))
		},
		"no longer alive": nil,
	} {
		t.Run(about, func(t *testing.T) {
			dir := t.TempDir()
			if _, err := open(t, dir, start).ServerConfig("localhost"); err != nil {
				t.Fatal(err)
			}
			before, now := read(t, filepath.Join(dir, "ca.crt")), start
			if damage == nil {
				now = start.AddDate(11, 0, 0)
			} else if err := damage(dir); err != nil {
				t.Fatal(err)
			}
			if _, err := pki.Open(dir, func() time.Time { return now }); err == nil || !strings.Contains(err.Error(), "ca.crt") {
				t.Errorf("error %v, want one that names ca.crt", err)
			}
			if read(t, filepath.Join(dir, "ca.crt")) != before {
				t.Error("the authority was replaced")
			}
		})
	}
}

func TestServerCertificateIsRenewed(t *testing.T) {
	dir := t.TempDir()
	serial := func(now time.Time, hosts ...string) string {
		conf, err := open(t, dir, now).ServerConfig(hosts...)
		if err != nil {
			t.Fatal(err)
		}
		cert, err := conf.GetCertificate(nil)
		if err != nil {
			t.Fatal(err)
		}
		return cert.Leaf.SerialNumber.String()
	}
	first := serial(start, "127.0.0.1", "localhost")
	if got := serial(start.AddDate(0, 6, 0), "localhost"); got != first {
		t.Error("a good certificate was replaced")
	}
	other := serial(start.AddDate(0, 6, 0), "localhost", "setpoint.example.com")
	if other == first {
		t.Error("a certificate that does not name the host was kept")
	}
	if got := serial(start.AddDate(1, 5, 15), "localhost"); got == other {
		t.Error("a certificate near its end was kept")
	}
}

func TestServerCertificateIsRenewedWhileTheServerRuns(t *testing.T) {
	now := start
	a, err := pki.Open(t.TempDir(), func() time.Time { return now })
	if err != nil {
		t.Fatal(err)
	}
	conf, err := a.ServerConfig("localhost")
	if err != nil {
		t.Fatal(err)
	}
	first, _ := conf.GetCertificate(nil)
	now = now.AddDate(0, 11, 25)
	second, err := conf.GetCertificate(nil)
	if err != nil || second == first {
		t.Errorf("the same certificate as %s before its end (%v)", first.Leaf.NotAfter.Sub(now), err)
	}
}

// A client that has nothing but the kubeconfig reaches the server and is known by its name.
func TestKubeconfig(t *testing.T) {
	a := open(t, t.TempDir(), time.Now())
	conf, err := a.ServerConfig("127.0.0.1")
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		subject := r.TLS.VerifiedChains[0][0].Subject
		io.WriteString(w, subject.CommonName+" of "+strings.Join(subject.Organization, ","))
	}))
	server.Listener = tls.NewListener(server.Listener, conf)
	server.Start()
	defer server.Close()
	address := strings.Replace(server.URL, "http:", "https:", 1)

	cert, key, err := a.Client("admin", "admin", "system:masters")
	if err != nil {
		t.Fatal(err)
	}
	text, err := pki.Access{Server: address, Authority: a.PEM(), Certificate: cert, Key: key, User: "admin"}.Kubeconfig()
	if err != nil {
		t.Fatal(err)
	}
	rest, err := clientcmd.RESTConfigFromKubeConfig(text)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(rest.CAData)
	pair, err := tls.X509KeyPair(rest.CertData, rest.KeyData)
	if err != nil {
		t.Fatal(err)
	}
	c := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{
		RootCAs: pool, Certificates: []tls.Certificate{pair},
	}}}
	resp, err := c.Get(rest.Host)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, _ := io.ReadAll(resp.Body)
	if got, want := string(body), "admin of system:masters"; got != want {
		t.Errorf("the server knows %q, want %q", got, want)
	}
}

func TestClientCertificateFollowsItsUser(t *testing.T) {
	a := open(t, t.TempDir(), start)
	client := func(user string, groups ...string) string {
		cert, _, err := a.Client("c", user, groups...)
		if err != nil {
			t.Fatal(err)
		}
		return string(cert)
	}
	first := client("u", "g")
	if client("u", "g") != first {
		t.Error("a good certificate was replaced")
	}
	if client("u", "g", "h") == first {
		t.Error("the certificate of a user in other groups was kept")
	}
}

// TestInMemory has the authority give the same answers as one in a directory: what it once made is
// what it gives the next time.
func TestInMemory(t *testing.T) {
	a, err := pki.InMemory(func() time.Time { return start })
	if err != nil {
		t.Fatal(err)
	}
	first, key, err := a.Client("admin", "admin", "system:masters")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tls.X509KeyPair(first, key); err != nil {
		t.Errorf("the client's certificate and key: %v", err)
	}
	again, _, err := a.Client("admin", "admin", "system:masters")
	if err != nil || string(again) != string(first) {
		t.Errorf("asked again, the authority made another certificate (error %v)", err)
	}
	if _, err := a.ServerConfig("localhost"); err != nil {
		t.Errorf("server: %v", err)
	}
}
