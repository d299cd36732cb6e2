// Package webhook calls the servers of people who extend the API: a POST of JSON over HTTPS, to a
// URL or to a Service, whose certificate is checked against the authorities that the caller names.
//
// A Client may be used concurrently. It keeps connections, and bounds how many servers it keeps them
// to and what an answer may hold.
package webhook

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"path"
	"strconv"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/setpoint-dev/setpoint/kinds/tree"
)

// answerBytesMax bounds an answer: an object of the largest size, as a patch or as itself, in base64.
const answerBytesMax = 8 << 20

// transportsMax bounds the servers to which connections are kept.
const transportsMax = 100

// idleTimeout is how long a connection is kept that nobody uses.
const idleTimeout = 30 * time.Second

// Client calls webhooks.
type Client struct {
	resolve func(ctx context.Context, namespace, name string, port int64) (string, error)

	mu         sync.Mutex
	transports map[server]*http.Transport
}

// server is whom a connection goes to, and what authorities are trusted for it.
type server struct{ host, authorities string }

// New makes a client. resolve finds where a port of a Service is served: "127.0.0.1:8443".
func New(resolve func(ctx context.Context, namespace, name string, port int64) (string, error)) *Client {
	return &Client{resolve: resolve, transports: map[server]*http.Transport{}}
}

// Close gives up the connections that nobody uses.
func (c *Client) Close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, t := range c.transports {
		t.CloseIdleConnections()
	}
	clear(c.transports)
}

// Post sends a body to the server of a clientConfig, a tree with url or service, and caBundle. It
// returns the body of an answer with code 200. What else the server answers is an error, as is no
// answer within the timeout.
func (c *Client) Post(ctx context.Context, config map[string]any, body []byte, timeout time.Duration) ([]byte, error) {
	at, err := address(config)
	if err != nil {
		return nil, err
	}
	if at.Path != "" {
		at.Path = path.Join("/", at.Path) // redirects are not followed
	}
	at.RawQuery = url.Values{"timeout": {strconv.Itoa(int(timeout.Seconds())) + "s"}}.Encode()
	transport, err := c.transport(at.Host, config)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, at.String(), bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Accept", "application/json")
	request.Header.Set("User-Agent", "setpoint-admission")
	client := http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error {
		return http.ErrUseLastResponse
	}}
	response, err := client.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(io.LimitReader(response.Body, answerBytesMax+1))
	switch {
	case err != nil:
		return nil, err
	case len(text) > answerBytesMax:
		return nil, fmt.Errorf("the answer has more than %d bytes", answerBytesMax)
	case response.StatusCode != http.StatusOK:
		return nil, refusal(response.StatusCode, text)
	}
	return text, nil
}

// refusal words an answer that is none, with the beginning of what it says.
func refusal(code int, text []byte) error {
	const most = 200
	said := string(bytes.TrimSpace(text[:min(len(text), most)]))
	return apierrors.NewGenericServerResponse(code, http.MethodPost, schema.GroupResource{}, "", said, 0, true)
}

// address is where a clientConfig leads; a Service is called by its name in the cluster.
func address(config map[string]any) (*url.URL, error) {
	if text := tree.Str(config, "url"); text != "" {
		return url.Parse(text)
	}
	service := tree.Map(config, "service")
	if service == nil {
		return nil, errors.New("clientConfig must have url or service")
	}
	port := tree.Int(service, "port")
	if port == 0 {
		port = 443
	}
	host := tree.Str(service, "name") + "." + tree.Str(service, "namespace") + ".svc"
	return &url.URL{
		Scheme: "https", Host: net.JoinHostPort(host, strconv.FormatInt(port, 10)), Path: tree.Str(service, "path"),
	}, nil
}

// transport returns the connections to a server.
func (c *Client) transport(host string, config map[string]any) (*http.Transport, error) {
	bundle := tree.Str(config, "caBundle")
	key := server{host, bundle}
	c.mu.Lock()
	defer c.mu.Unlock()
	if t := c.transports[key]; t != nil {
		return t, nil
	}
	t, err := c.newTransport(bundle, tree.Map(config, "service"))
	if err != nil {
		return nil, err
	}
	if len(c.transports) >= transportsMax {
		for _, old := range c.transports {
			old.CloseIdleConnections()
		}
		clear(c.transports)
	}
	c.transports[key] = t
	return t, nil
}

func (c *Client) newTransport(bundle string, service map[string]any) (*http.Transport, error) {
	conf := &tls.Config{MinVersion: tls.VersionTLS12}
	if bundle != "" {
		text, err := base64.StdEncoding.DecodeString(bundle)
		if err != nil {
			return nil, fmt.Errorf("caBundle: %w", err)
		}
		conf.RootCAs = x509.NewCertPool()
		if !conf.RootCAs.AppendCertsFromPEM(text) {
			return nil, errors.New("unable to load root certificates: caBundle has no certificate in PEM")
		}
	}
	dialer := &net.Dialer{Timeout: 10 * time.Second}
	t := &http.Transport{
		TLSClientConfig: conf, ForceAttemptHTTP2: true, IdleConnTimeout: idleTimeout, MaxIdleConnsPerHost: 10,
		DialContext: dialer.DialContext,
	}
	if service == nil {
		t.Proxy = http.ProxyFromEnvironment
		return t, nil
	}
	namespace, name := tree.Str(service, "namespace"), tree.Str(service, "name")
	t.DialContext = func(ctx context.Context, network, host string) (net.Conn, error) {
		_, port, err := net.SplitHostPort(host)
		if err != nil {
			return nil, err
		}
		n, err := strconv.ParseInt(port, 10, 32)
		if err != nil {
			return nil, err
		}
		at, err := c.resolve(ctx, namespace, name, n)
		if err != nil {
			return nil, err
		}
		return dialer.DialContext(ctx, network, at)
	}
	return t, nil
}
