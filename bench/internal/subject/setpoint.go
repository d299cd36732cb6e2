package subject

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"time"
)

type setpoint struct {
	processes
	binary, dir string
	flags       []string
}

// NewSetpoint returns a whole Setpoint, with its controllers and a node, whose folder is dir; flags
// are further ones of "setpoint up".
func NewSetpoint(binary, dir string, flags ...string) Subject {
	return &setpoint{binary: binary, dir: dir, flags: flags}
}

func (s *setpoint) Start(ctx context.Context) (time.Duration, error) {
	began := time.Now()
	args := append([]string{"up", "--data-dir", filepath.Join(s.dir, "data"),
		"--listen", fmt.Sprintf("127.0.0.1:%d", freePort()), "--kubeconfig", s.kubeconfig()}, s.flags...)
	err := s.run(s.dir, s.binary, args...)
	if err == nil {
		err = untilReady(ctx, s)
	}
	return time.Since(began), err
}

func (s *setpoint) kubeconfig() string { return filepath.Join(s.dir, "kubeconfig") }

var kubeconfigField = regexp.MustCompile(`(?m)^\s*"?([a-z-]+)"?:\s*"?([^",\s]+)"?,?\s*$`)

// Client reads the kubeconfig that setpoint writes: one cluster, one user with a certificate.
func (s *setpoint) Client() (*http.Client, string, error) {
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
