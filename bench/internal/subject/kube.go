package subject

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"time"
)

// kube is kube-apiserver on etcd, with the settings of a plain installation.
type kube struct {
	processes
	etcd, apiserver, dir string
	port                 int
}

// NewKube returns kube-apiserver on etcd, without controllers, from binaries; dir is its folder.
func NewKube(etcd, apiserver, dir string) Subject {
	return &kube{etcd: etcd, apiserver: apiserver, dir: dir}
}

const token = "benchmark"

func (k *kube) Start(ctx context.Context) (time.Duration, error) {
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

func (k *kube) Client() (*http.Client, string, error) {
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
