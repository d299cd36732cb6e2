// Package probe finds out how a container is. Check asks once; a Tracker turns
// a row of answers into a result that does not flicker.
//
// Answers and thresholds mean what they mean to a kubelet: an HTTP status from
// 200 to 399 is a success, a TCP port that accepts is, a command that exits
// with 0 is, and a gRPC server that says SERVING is.
package probe

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// Target is what is asked.
type Target struct {
	IP    string // of the pod
	Ports []corev1.ContainerPort
	// Exec runs a command beside the container.
	Exec func(ctx context.Context, command []string) (exitCode int, output []byte, err error)
}

// Timeout is how long one answer may take.
func Timeout(p *corev1.Probe) time.Duration {
	return time.Duration(max(1, p.TimeoutSeconds)) * time.Second
}

// Check asks once. The error says why the answer is not a success; nil is one.
func Check(ctx context.Context, p *corev1.ProbeHandler, t Target) error {
	switch {
	case p.Exec != nil:
		return checkExec(ctx, p.Exec, t)
	case p.HTTPGet != nil:
		_, err := Get(ctx, p.HTTPGet, t)
		return err
	case p.TCPSocket != nil:
		return checkTCP(ctx, p.TCPSocket, t)
	case p.GRPC != nil:
		return checkGRPC(ctx, p.GRPC, t)
	default:
		return errors.New("the probe has no handler: one of exec, httpGet, tcpSocket and grpc must be set")
	}
}

func checkExec(ctx context.Context, p *corev1.ExecAction, t Target) error {
	code, output, err := t.Exec(ctx, p.Command)
	if err != nil {
		return err
	}
	if code == 0 {
		return nil
	}
	if text := strings.TrimSpace(string(output)); text != "" {
		return errors.New(text)
	}
	return fmt.Errorf("command %q exited with code %d", p.Command, code)
}

// transport keeps no connection: a probe must see a server that accepts no new
// ones. Certificates are not checked, since a pod has none for its address.
var transport = &http.Transport{
	DisableKeepAlives:  true,
	DisableCompression: true,
	Proxy:              nil,
	TLSClientConfig:    &tls.Config{InsecureSkipVerify: true},
}

// bodyMax bounds what is read of an answer, which people see in an event.
const bodyMax = 10 << 10

// Get makes the request that p describes and returns the beginning of the
// body; the error says why the answer is not a success.
func Get(ctx context.Context, p *corev1.HTTPGetAction, t Target) ([]byte, error) {
	port, err := t.port(p.Port)
	if err != nil {
		return nil, err
	}
	scheme := strings.ToLower(string(p.Scheme))
	if scheme == "" {
		scheme = "http"
	}
	target, err := url.Parse(p.Path)
	if err != nil {
		return nil, fmt.Errorf("path: %w", err)
	}
	target.Scheme, target.Host = scheme, net.JoinHostPort(t.host(p.Host), strconv.Itoa(port))
	if !strings.HasPrefix(target.Path, "/") {
		target.Path = "/" + target.Path
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, target.String(), nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("User-Agent", "kube-probe/setpoint")
	req.Header.Set("Accept", "*/*")
	for _, h := range p.HTTPHeaders {
		if http.CanonicalHeaderKey(h.Name) == "Host" {
			req.Host = h.Value
			continue
		}
		req.Header.Add(h.Name, h.Value)
	}
	client := http.Client{Transport: transport, CheckRedirect: stayOnHost}
	res, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	body, err := io.ReadAll(io.LimitReader(res.Body, bodyMax))
	if err != nil {
		return nil, fmt.Errorf("body: %w", err)
	}
	if res.StatusCode < 200 || res.StatusCode >= 400 {
		return body, fmt.Errorf("HTTP probe failed with statuscode: %d", res.StatusCode)
	}
	return body, nil
}

// stayOnHost takes a redirect to another host as the answer: the container has
// answered, and the other host's health is not its own.
func stayOnHost(req *http.Request, via []*http.Request) error {
	if len(via) >= 10 {
		return errors.New("stopped after 10 redirects")
	}
	if req.URL.Hostname() != via[0].URL.Hostname() {
		return http.ErrUseLastResponse
	}
	return nil
}

func checkTCP(ctx context.Context, p *corev1.TCPSocketAction, t Target) error {
	port, err := t.port(p.Port)
	if err != nil {
		return err
	}
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", net.JoinHostPort(t.host(p.Host), strconv.Itoa(port)))
	if err != nil {
		return err
	}
	return conn.Close()
}

// checkGRPC makes the one call of the health protocol that a probe needs; a
// whole gRPC library for it would be the largest dependency of the agent.
// https://github.com/grpc/grpc/blob/master/doc/health-checking.md
func checkGRPC(ctx context.Context, p *corev1.GRPCAction, t Target) error {
	service := ""
	if p.Service != nil {
		service = *p.Service
	}
	if len(service) > 127 {
		return fmt.Errorf("grpc service: has %d characters, at most 127 are allowed", len(service))
	}
	message := []byte{}
	if service != "" {
		message = append([]byte{0x0a, byte(len(service))}, service...) // field 1, a string
	}
	frame := append([]byte{0, 0, 0, 0, byte(len(message))}, message...)
	target := "http://" + net.JoinHostPort(t.host(""), strconv.Itoa(int(p.Port))) + "/grpc.health.v1.Health/Check"
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, target, bytes.NewReader(frame))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/grpc")
	req.Header.Set("Te", "trailers")
	var protocols http.Protocols
	protocols.SetUnencryptedHTTP2(true)
	rt := &http.Transport{Protocols: &protocols}
	defer rt.CloseIdleConnections()
	res, err := rt.RoundTrip(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	body, err := io.ReadAll(io.LimitReader(res.Body, bodyMax))
	if err != nil {
		return fmt.Errorf("body: %w", err)
	}
	code := res.Trailer.Get("Grpc-Status")
	if code == "" {
		code = res.Header.Get("Grpc-Status")
	}
	if code != "0" {
		return fmt.Errorf("service %q: gRPC status %q", service, code)
	}
	// A frame with field 1, an enum, whose value 1 is SERVING.
	if !bytes.Equal(body, []byte{0, 0, 0, 0, 2, 0x08, 1}) {
		return fmt.Errorf("service %q is not serving", service)
	}
	return nil
}

func (t Target) host(named string) string {
	if named != "" {
		return named
	}
	return t.IP
}

// port resolves a number or the name of one of the container's ports.
func (t Target) port(p intstr.IntOrString) (int, error) {
	number := p.IntValue()
	if p.Type == intstr.String {
		for _, c := range t.Ports {
			if c.Name == p.StrVal {
				number = int(c.ContainerPort)
			}
		}
	}
	if number < 1 || number > 65535 {
		return 0, fmt.Errorf("port: found %q, which is neither a number from 1 to 65535 nor a name of a container's port", p.String())
	}
	return number, nil
}
