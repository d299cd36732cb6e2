package setpoint

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"net"

	"k8s.io/client-go/rest"

	"github.com/setpoint-dev/setpoint/apiserver/authn"
	"github.com/setpoint-dev/setpoint/apiserver/pki"
)

var (
	adminUser       = &authn.User{Name: "admin", Groups: []string{"system:masters"}}
	controllersUser = &authn.User{Name: "system:setpoint-controllers", Groups: []string{"system:masters"}}
)

// RESTConfig returns the configuration of an in-process client that is an administrator. It works
// between Start and Stop.
func (c *ControlPlane) RESTConfig() *rest.Config { return c.configOf(adminUser) }

// RESTConfigOf is RESTConfig for a client that is somebody else. What he may do is the authorizer's
// to say; who is in the group system:masters may do everything.
func (c *ControlPlane) RESTConfigOf(user string, groups ...string) *rest.Config {
	return c.configOf(&authn.User{Name: user, Groups: groups})
}

func (c *ControlPlane) configOf(user *authn.User) *rest.Config {
	return &rest.Config{
		Host:      "http://setpoint.in-process",
		Transport: c.server.Transport(user),
		QPS:       -1, // the server bounds what is asked of it
	}
}

// Address returns where the server listens, "127.0.0.1:6443", or "" without a port.
func (c *ControlPlane) Address() string {
	if c.listener == nil {
		return ""
	}
	return c.listener.Addr().String()
}

// Kubeconfig returns a kubeconfig with a client certificate of an administrator. It needs a port.
func (c *ControlPlane) Kubeconfig() ([]byte, error) {
	return c.KubeconfigOf(adminUser.Name, adminUser.Groups...)
}

// KubeconfigOf is Kubeconfig for somebody else.
func (c *ControlPlane) KubeconfigOf(user string, groups ...string) ([]byte, error) {
	if c.listener == nil {
		return nil, errors.New("a control plane without a port has no kubeconfig")
	}
	cert, key, err := c.authority.Client(keyFileOf(user), user, groups...)
	if err != nil {
		return nil, err
	}
	return pki.Access{
		Server: "https://" + c.reachable(), Authority: c.authority.PEM(),
		Certificate: cert, Key: key, User: user,
	}.Kubeconfig()
}

// keyFileOf names the files of a user's certificate. Users' names hold whatever they like.
func keyFileOf(user string) string {
	if user == adminUser.Name {
		return user
	}
	sum := sha256.Sum256([]byte(user))
	return "client-" + hex.EncodeToString(sum[:8])
}

// reachable is the address by which clients on this machine reach the server: a server that listens
// on all addresses has none of its own.
func (c *ControlPlane) reachable() string {
	host, port, _ := net.SplitHostPort(c.Address())
	if ip := net.ParseIP(host); ip != nil && ip.IsUnspecified() {
		host = "127.0.0.1"
	}
	return net.JoinHostPort(host, port)
}

func (c *ControlPlane) hosts() []string {
	hosts := append([]string{"localhost", "127.0.0.1", "::1"}, c.opts.Hosts...)
	if host, _, err := net.SplitHostPort(c.Address()); err == nil {
		hosts = append(hosts, host)
	}
	return append(hosts, "kubernetes", "kubernetes.default", "kubernetes.default.svc")
}
