// Package pki keeps the keys of a control plane, in a directory or in memory: a certificate authority
// that is made once, the server's certificate, and client certificates for those who ask.
//
// Private keys are in files that only their owner may read; files are replaced as a whole, so that
// a crash leaves the old or the new one.
package pki

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"net"
	"os"
	"sync"
	"time"
)

const (
	authorityLife = 10 * 365 * 24 * time.Hour
	leafLife      = 365 * 24 * time.Hour
	// renewBefore is how long before its end the server's certificate is replaced.
	renewBefore = 30 * 24 * time.Hour
	// backdate forgives clocks that are a little behind.
	backdate = 5 * time.Minute
)

// Authority signs certificates. It may be used concurrently.
type Authority struct {
	files files
	now   func() time.Time
	cert  *x509.Certificate
	key   crypto.Signer
	pem   []byte

	mu     sync.Mutex
	server *tls.Certificate
}

// Open reads the authority from ca.crt and ca.key in the directory, and makes both, and the
// directory, if neither file is there. An authority that has one file of the two, or has expired,
// is an error: clients trust it by name, so it is not replaced behind their backs.
func Open(dir string, now func() time.Time) (*Authority, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("pki: %w", err)
	}
	return open(folder(dir), now)
}

// InMemory makes an authority that is kept nowhere and goes with the process.
func InMemory(now func() time.Time) (*Authority, error) { return open(&memory{}, now) }

func open(files files, now func() time.Time) (*Authority, error) {
	a := &Authority{files: files, now: now}
	pair, err := a.load("ca")
	if errors.Is(err, fs.ErrNotExist) {
		pair, err = a.makeAuthority()
	}
	if err != nil {
		return nil, err
	}
	a.cert, a.key = pair.Leaf, pair.PrivateKey.(crypto.Signer)
	a.pem = encode("CERTIFICATE", a.cert.Raw)
	if now().After(a.cert.NotAfter) {
		return nil, fmt.Errorf("pki: %s expired on %s: move it away to have a new one made, "+
			"and give clients its successor", a.files.place("ca.crt"), a.cert.NotAfter.Format(time.DateOnly))
	}
	return a, nil
}

// PEM is the authority's certificate, for clients to trust.
func (a *Authority) PEM() []byte { return a.pem }

// Pool trusts the authority alone.
func (a *Authority) Pool() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(a.cert)
	return pool
}

// ServerConfig is the TLS configuration of a server reached under the hosts, names or addresses:
// it shows a certificate of the authority, kept in server.crt and server.key, and verifies client
// certificates where they are given. The certificate is renewed, while the server runs too, when
// its end is near or hosts have come that it does not name.
func (a *Authority) ServerConfig(hosts ...string) (*tls.Config, error) {
	if _, err := a.serverCertificate(hosts); err != nil {
		return nil, err
	}
	return &tls.Config{
		ClientCAs:  a.Pool(),
		ClientAuth: tls.VerifyClientCertIfGiven,
		MinVersion: tls.VersionTLS12,
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
			return a.serverCertificate(hosts)
		},
		Time: a.now,
	}, nil
}

func (a *Authority) serverCertificate(hosts []string) (*tls.Certificate, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.server == nil {
		pair, err := a.load("server")
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		a.server = pair
	}
	if a.server != nil && a.good(a.server.Leaf, hosts) {
		return a.server, nil
	}
	template := a.leaf(pkix.Name{CommonName: "setpoint"}, x509.ExtKeyUsageServerAuth)
	for _, host := range hosts {
		if ip := net.ParseIP(host); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, host)
		}
	}
	pair, err := a.issue("server", template)
	if err != nil {
		return nil, err
	}
	a.server = pair
	return pair, nil
}

// good says whether a certificate is the authority's, lasts, and names all hosts.
func (a *Authority) good(cert *x509.Certificate, hosts []string) bool {
	if cert.CheckSignatureFrom(a.cert) != nil || a.now().After(cert.NotAfter.Add(-renewBefore)) {
		return false
	}
	for _, host := range hosts {
		if cert.VerifyHostname(host) != nil {
			return false
		}
	}
	return true
}

// Client returns a client certificate and its key, in PEM, for a user and its groups. It is kept in
// NAME.crt and NAME.key, and made anew when its end is near or the user is another.
func (a *Authority) Client(name, user string, groups ...string) (cert, key []byte, err error) {
	pair, err := a.load(name)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, nil, err
	}
	if pair == nil || !a.good(pair.Leaf, nil) || pair.Leaf.Subject.CommonName != user ||
		fmt.Sprint(pair.Leaf.Subject.Organization) != fmt.Sprint(groups) {
		subject := pkix.Name{CommonName: user, Organization: groups}
		if _, err := a.issue(name, a.leaf(subject, x509.ExtKeyUsageClientAuth)); err != nil {
			return nil, nil, err
		}
	}
	if cert, err = a.files.read(name + ".crt"); err != nil {
		return nil, nil, fmt.Errorf("pki: %w", err)
	}
	if key, err = a.files.read(name + ".key"); err != nil {
		return nil, nil, fmt.Errorf("pki: %w", err)
	}
	return cert, key, nil
}

func (a *Authority) leaf(subject pkix.Name, usage x509.ExtKeyUsage) *x509.Certificate {
	return &x509.Certificate{
		Subject:     subject,
		NotBefore:   a.now().Add(-backdate),
		NotAfter:    a.now().Add(leafLife),
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{usage},
	}
}

func (a *Authority) makeAuthority() (*tls.Certificate, error) {
	return a.issue("ca", &x509.Certificate{
		Subject:               pkix.Name{CommonName: "setpoint-ca"},
		NotBefore:             a.now().Add(-backdate),
		NotAfter:              a.now().Add(authorityLife),
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
		BasicConstraintsValid: true,
		IsCA:                  true,
	})
}

// issue makes a key and a certificate and keeps both. The authority's own is signed by itself.
func (a *Authority) issue(name string, template *x509.Certificate) (*tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("pki: %w", err)
	}
	if template.SerialNumber, err = rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127)); err != nil {
		return nil, fmt.Errorf("pki: %w", err)
	}
	parent, signer := a.cert, a.key
	if parent == nil {
		parent, signer = template, key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), signer)
	if err != nil {
		return nil, fmt.Errorf("pki: %w", err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, fmt.Errorf("pki: %w", err)
	}
	// The key goes first: a certificate without its key would be taken for a damaged pair.
	if err := a.files.write(name+".key", encode("PRIVATE KEY", keyDER)); err != nil {
		return nil, err
	}
	if err := a.files.write(name+".crt", encode("CERTIFICATE", der)); err != nil {
		return nil, err
	}
	return a.load(name)
}

// load reads a pair. The error is fs.ErrNotExist if its certificate is not there.
func (a *Authority) load(name string) (*tls.Certificate, error) {
	cert, err := a.files.read(name + ".crt")
	if err != nil {
		return nil, fmt.Errorf("pki: %w", err)
	}
	key, err := a.files.read(name + ".key")
	if err != nil {
		return nil, fmt.Errorf("pki: %s has no key beside it: %v", a.files.place(name+".crt"), err)
	}
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return nil, fmt.Errorf("pki: %s and its key: %w", a.files.place(name+".crt"), err)
	}
	return &pair, nil
}

func encode(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}
