// Package streaming speaks with clients of the Kubernetes API in the protocols by which they run
// commands in containers and reach ports of pods: WebSocket, in all versions of its subprotocols,
// and SPDY/3.1, which older clients speak. Whoever answers a request sees streams.
//
// The streams wait: who does not read makes the other side stop writing, and nothing is buffered
// without bound. A client that is gone is noticed within two pings, even if nothing is read from it.
package streaming

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/streaming/pkg/httpstream"
	"k8s.io/streaming/pkg/httpstream/spdy"
)

const (
	// pingPeriod is how often a client is sent something that it need not react to. What is sent to
	// a client that is gone is answered with a reset, which shows that it is.
	pingPeriod = 5 * time.Second
	// lingerMax is how long a client may take to read the last bytes, and to close its side.
	lingerMax = 10 * time.Second
	// createMax is how long a client may take to open its streams.
	createMax = 30 * time.Second
	// chunkMax bounds a message to a client.
	chunkMax = 32 << 10
)

// ErrGone says that the client is gone, or did not go on as its protocol wants, when its request had
// been upgraded. There is nobody to tell.
var ErrGone = errors.New("the client is gone")

// IsWebSocket says whether a request asks to become a WebSocket.
func IsWebSocket(r *http.Request) bool {
	return httpstream.IsUpgradeRequest(r) && strings.EqualFold(r.Header.Get("Upgrade"), "websocket")
}

func isSPDY(r *http.Request) bool {
	return httpstream.IsUpgradeRequest(r) && strings.EqualFold(r.Header.Get("Upgrade"), spdy.HeaderSpdy31)
}

func errUpgradeRequired() error { return apierrors.NewBadRequest("Upgrade request required") }

// errProtocol is the answer to a client none of whose subprotocols is known.
func errProtocol(asked, known []string) error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusForbidden, Reason: metav1.StatusReasonForbidden,
		Message: fmt.Sprintf("unable to upgrade: none of the protocols %q is known: it must be one of %q", asked, known),
	}}
}

// conn is a client's connection. It is gone when reading or writing it has failed, or it was closed.
type conn struct {
	net.Conn
	buffered *bufio.Reader // what the HTTP server may have read ahead
	once     sync.Once
	gone     chan struct{}
}

func (c *conn) end() { c.once.Do(func() { close(c.gone) }) }

func (c *conn) Read(p []byte) (int, error) {
	n, err := c.buffered.Read(p)
	if err != nil {
		c.end()
	}
	return n, err
}

func (c *conn) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	if err != nil {
		c.end()
	}
	return n, err
}

func (c *conn) Close() error {
	c.end()
	return c.Conn.Close()
}

func (c *conn) isGone() bool {
	select {
	case <-c.gone:
		return true
	default:
		return false
	}
}

// wholeReader reads a stream of SPDY, which ends in the same way when the client ends it and when the
// connection breaks: the latter is an error here, for what was cut off must not look complete.
type wholeReader struct {
	io.Reader
	conn *conn
}

func (r wholeReader) Read(p []byte) (int, error) {
	n, err := r.Reader.Read(p)
	if err == io.EOF && r.conn.isGone() {
		err = ErrGone
	}
	return n, err
}

// hijack takes a request's connection over.
func hijack(w http.ResponseWriter) (*conn, error) {
	raw, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return nil, apierrors.NewBadRequest("the connection cannot be upgraded: use HTTP/1.1")
	}
	return &conn{Conn: raw, buffered: buffered.Reader, gone: make(chan struct{})}, nil
}

// hijacker is a response of which only the connection can be had, as a conn.
type hijacker struct {
	http.ResponseWriter
	conn *conn
}

func (h *hijacker) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	c, err := hijack(h.ResponseWriter)
	if err != nil {
		return nil, nil, err
	}
	h.conn = c
	return c, bufio.NewReadWriter(bufio.NewReaderSize(c, 4<<10), bufio.NewWriterSize(c, 4<<10)), nil
}

// upgradeSPDY negotiates a protocol and turns a request into a connection of streams, of which accept
// is told.
func upgradeSPDY(
	w http.ResponseWriter, r *http.Request, known []string, accept httpstream.NewStreamHandler,
) (httpstream.Connection, *conn, string, error) {
	protocol, err := negotiateSPDY(w, r, known)
	if err != nil {
		return nil, nil, "", err
	}
	c, err := hijack(w)
	if err != nil {
		return nil, nil, "", err
	}
	_, err = fmt.Fprintf(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: %s\r\n%s: %s\r\n\r\n",
		spdy.HeaderSpdy31, httpstream.HeaderProtocolVersion, protocol)
	if err != nil {
		c.Close()
		return nil, nil, "", ErrGone
	}
	streams, err := spdy.NewServerConnectionWithPings(c, accept, pingPeriod)
	if err != nil {
		return nil, nil, "", ErrGone // it is closed
	}
	return streams, c, protocol, nil
}

// negotiateSPDY chooses the first of the client's protocols that is known.
func negotiateSPDY(w http.ResponseWriter, r *http.Request, known []string) (string, error) {
	var asked []string
	for _, line := range r.Header.Values(httpstream.HeaderProtocolVersion) {
		for name := range strings.SplitSeq(line, ",") {
			if name = strings.TrimSpace(name); slices.Contains(known, name) {
				return name, nil
			} else if name != "" {
				asked = append(asked, name)
			}
		}
	}
	if len(asked) == 0 {
		return "", apierrors.NewBadRequest("unable to upgrade: the header " + httpstream.HeaderProtocolVersion + " is missing")
	}
	for _, name := range known {
		w.Header().Add(httpstream.HeaderAcceptedProtocolVersions, name)
	}
	return "", errProtocol(asked, known)
}
