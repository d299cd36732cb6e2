package node

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"time"

	"golang.org/x/net/http2"
	"k8s.io/client-go/rest"
)

// tunnelProtocol is what the connection becomes: HTTP/2, with the API server
// as the client and the agent as the server.
const tunnelProtocol = "setpoint-node/1"

// Dial returns an Options.Tunnel that asks the API server of config to turn a
// request into the connection for the named node.
func Dial(config *rest.Config, name string) (func(context.Context) (io.ReadWriteCloser, error), error) {
	config = rest.CopyConfig(config)
	config.NextProtos = []string{"http/1.1"} // what can be upgraded
	config.Timeout = 0
	transport, err := rest.TransportFor(config)
	if err != nil {
		return nil, fmt.Errorf("tunnel: %w", err)
	}
	base, _, err := rest.DefaultServerUrlFor(config)
	if err != nil {
		return nil, fmt.Errorf("tunnel: %w", err)
	}
	target := base.JoinPath("setpoint.dev", "v1", "nodes", url.PathEscape(name), "connect").String()
	return func(ctx context.Context) (io.ReadWriteCloser, error) {
		// The bound is that of the answer: the connection that it becomes is nobody's any more.
		ctx, cancel := context.WithTimeout(ctx, answerMax)
		defer cancel()
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, target, nil)
		if err != nil {
			return nil, err
		}
		req.Header.Set("Connection", "Upgrade")
		req.Header.Set("Upgrade", tunnelProtocol)
		res, err := transport.RoundTrip(req)
		if err != nil {
			return nil, err
		}
		conn, ok := res.Body.(io.ReadWriteCloser)
		if res.StatusCode != http.StatusSwitchingProtocols || !ok {
			defer res.Body.Close()
			text, _ := io.ReadAll(io.LimitReader(res.Body, 1<<10))
			return nil, fmt.Errorf("POST %s: %s: %s", target, res.Status, text)
		}
		return conn, nil
	}, nil
}

// A tunnel that breaks is opened again after 0.5 s, 1 s, … 15 s.
const (
	tunnelDelayMin = 500 * time.Millisecond
	tunnelDelayMax = 15 * time.Second
)

// How much may go over a tunnel at a time. A command or connection that reads
// nothing keeps its own buffer full and nobody else's: all of them together fit
// into the connection's.
const (
	streamsMax   = 4000
	streamBuffer = 256 << 10
)

// serveTunnel keeps the tunnel open and answers on it until ctx ends.
func (a *Agent) serveTunnel(ctx context.Context) {
	server := &http2.Server{
		// An idle connection that was cut in silence is noticed.
		ReadIdleTimeout:              15 * time.Second,
		PingTimeout:                  15 * time.Second,
		MaxConcurrentStreams:         streamsMax,
		MaxUploadBufferPerStream:     streamBuffer,
		MaxUploadBufferPerConnection: streamsMax * streamBuffer,
	}
	handler := a.Handler()
	for delay := tunnelDelayMin; ; delay = min(2*delay, tunnelDelayMax) {
		began := a.Clock.Now()
		conn, err := a.Tunnel(ctx)
		if err == nil {
			stop := context.AfterFunc(ctx, func() { conn.Close() })
			server.ServeConn(asConn(conn), &http2.ServeConnOpts{Context: ctx, Handler: handler})
			stop()
			conn.Close()
		} else if ctx.Err() == nil {
			a.Logger.Debug("opening the connection to the server", "error", err)
		}
		if a.Clock.Since(began) > tunnelDelayMax {
			delay = tunnelDelayMin
		}
		if a.sleep(ctx, delay) != nil {
			return
		}
	}
}

// asConn makes a stream a net.Conn for a server that sets no deadlines on it.
func asConn(rwc io.ReadWriteCloser) net.Conn {
	if conn, ok := rwc.(net.Conn); ok {
		return conn
	}
	return stream{rwc}
}

type stream struct{ io.ReadWriteCloser }

func (stream) LocalAddr() net.Addr              { return streamAddr{} }
func (stream) RemoteAddr() net.Addr             { return streamAddr{} }
func (stream) SetDeadline(time.Time) error      { return nil }
func (stream) SetReadDeadline(time.Time) error  { return nil }
func (stream) SetWriteDeadline(time.Time) error { return nil }

type streamAddr struct{}

func (streamAddr) Network() string { return "tunnel" }
func (streamAddr) String() string  { return "tunnel" }
