package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// A subject is a control plane under measurement.
type subject interface {
	// start runs it on an empty folder and returns how long the first answer took.
	start(context.Context) (time.Duration, error)
	stop()
	// lists says whether there are lists and watches.
	lists() bool
	// client returns a client that is an administrator, and the address to ask.
	client() (*http.Client, string, error)
	// processor is what its processes have used of the processors so far.
	processor() time.Duration
	// memory is what its processes have resident, in bytes.
	memory() int64
}

// processes are what a subject consists of.
type processes struct{ running []*exec.Cmd }

func (p *processes) run(dir, name string, args ...string) error {
	log, err := os.Create(filepath.Join(dir, filepath.Base(name)+".log"))
	if err != nil {
		return err
	}
	defer log.Close()
	cmd := exec.Command(name, args...)
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		return err
	}
	p.running = append(p.running, cmd)
	return nil
}

func (p *processes) lists() bool { return true }

func (p *processes) stop() {
	for i := len(p.running) - 1; i >= 0; i-- {
		_ = p.running[i].Process.Signal(syscall.SIGTERM)
		_ = p.running[i].Wait()
	}
}

func (p *processes) processor() time.Duration {
	const tick = 10 * time.Millisecond // USER_HZ of Linux
	var sum time.Duration
	for _, cmd := range p.running {
		stat, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", cmd.Process.Pid))
		if _, rest, ok := strings.Cut(string(stat), ") "); ok {
			fields := strings.Fields(rest) // the state is the first; utime and stime come 11 later
			user, _ := strconv.ParseInt(fields[11], 10, 64)
			system, _ := strconv.ParseInt(fields[12], 10, 64)
			sum += time.Duration(user+system) * tick
		}
	}
	return sum
}

func (p *processes) memory() int64 {
	var sum int64
	for _, cmd := range p.running {
		status, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", cmd.Process.Pid))
		if _, rest, ok := strings.Cut(string(status), "VmRSS:"); ok {
			kb, _ := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
			sum += kb << 10
		}
	}
	return sum
}

// untilReady asks until /readyz answers 200.
func untilReady(ctx context.Context, s subject) error {
	for began := time.Now(); time.Since(began) < time.Minute && ctx.Err() == nil; time.Sleep(time.Millisecond) {
		web, host, err := s.client()
		if err != nil {
			continue
		}
		resp, err := web.Get(host + "/readyz")
		web.CloseIdleConnections()
		if err != nil {
			continue
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
		if resp.StatusCode == http.StatusOK {
			return nil
		}
	}
	return errors.Join(ctx.Err(), errors.New("not ready within a minute"))
}

// freePort returns a port that nobody listens on.
func freePort() int {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}

type setpoint struct {
	processes
	binary, dir string
}

func newSetpoint(binary, dir string) subject { return &setpoint{binary: binary, dir: dir} }

func (s *setpoint) start(ctx context.Context) (time.Duration, error) {
	began := time.Now()
	err := s.run(s.dir, s.binary, "up", "--data-dir", filepath.Join(s.dir, "data"),
		"--listen", fmt.Sprintf("127.0.0.1:%d", freePort()), "--kubeconfig", s.kubeconfig())
	if err == nil {
		err = untilReady(ctx, s)
	}
	return time.Since(began), err
}

func (s *setpoint) kubeconfig() string { return filepath.Join(s.dir, "kubeconfig") }

var kubeconfigField = regexp.MustCompile(`(?m)^\s*"?([a-z-]+)"?:\s*"?([^",\s]+)"?,?\s*$`)

// client reads the kubeconfig that setpoint writes: one cluster, one user with a certificate.
func (s *setpoint) client() (*http.Client, string, error) {
	data, err := os.ReadFile(s.kubeconfig())
	if err != nil {
		return nil, "", err
	}
	fields := map[string]string{}
	for _, m := range kubeconfigField.FindAllStringSubmatch(string(data), -1) {
		fields[m[1]] = m[2]
	}
	decoded := func(name string) []byte {
		data, _ := base64.StdEncoding.DecodeString(fields[name])
		return data
	}
	pair, err := tls.X509KeyPair(decoded("client-certificate-data"), decoded("client-key-data"))
	if err != nil {
		return nil, "", err
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(decoded("certificate-authority-data"))
	return transport(&tls.Config{Certificates: []tls.Certificate{pair}, RootCAs: roots}, 64), fields["server"], nil
}

// kube is kube-apiserver on etcd, with the settings of a plain installation.
type kube struct {
	processes
	etcd, apiserver, dir string
	port                 int
}

func newKube(etcd, apiserver, dir string) subject {
	return &kube{etcd: etcd, apiserver: apiserver, dir: dir}
}

const token = "benchmark"

func (k *kube) start(ctx context.Context) (time.Duration, error) {
	if err := k.writeFiles(); err != nil {
		return 0, err
	}
	k.port = freePort()
	client, peer := freePort(), freePort()
	etcdURL := fmt.Sprintf("http://127.0.0.1:%d", client)
	peerURL := fmt.Sprintf("http://127.0.0.1:%d", peer)
	began := time.Now()
	err := k.run(k.dir, k.etcd, "--data-dir", filepath.Join(k.dir, "etcd"),
		"--listen-client-urls", etcdURL, "--advertise-client-urls", etcdURL,
		"--listen-peer-urls", peerURL, "--initial-advertise-peer-urls", peerURL,
		"--initial-cluster", "default="+peerURL)
	if err != nil {
		return 0, err
	}
	key := filepath.Join(k.dir, "sa.key")
	err = k.run(k.dir, k.apiserver, "--etcd-servers", etcdURL, "--bind-address", "127.0.0.1",
		"--secure-port", strconv.Itoa(k.port), "--cert-dir", filepath.Join(k.dir, "certs"),
		"--token-auth-file", filepath.Join(k.dir, "tokens.csv"), "--authorization-mode", "RBAC",
		"--service-account-key-file", key, "--service-account-signing-key-file", key,
		"--service-account-issuer", "https://kubernetes.default.svc",
		"--service-cluster-ip-range", "10.0.0.0/24", "--disable-admission-plugins", "ServiceAccount")
	if err == nil {
		err = untilReady(ctx, k)
	}
	return time.Since(began), err
}

func (k *kube) writeFiles() error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return err
	}
	block := pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der})
	if err := os.WriteFile(filepath.Join(k.dir, "sa.key"), block, 0o600); err != nil {
		return err
	}
	users := token + ",admin,admin,system:masters\n"
	return os.WriteFile(filepath.Join(k.dir, "tokens.csv"), []byte(users), 0o600)
}

func (k *kube) client() (*http.Client, string, error) {
	web := transport(&tls.Config{InsecureSkipVerify: true}, 64)
	web.Transport = bearer{web.Transport}
	return web, fmt.Sprintf("https://127.0.0.1:%d", k.port), nil
}

// bearer adds the administrator's token to each request.
type bearer struct{ next http.RoundTripper }

func (b bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+token)
	return b.next.RoundTrip(r)
}
