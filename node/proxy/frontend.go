package proxy

import (
	"context"
	"io"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"
)

// dialTimeout is how long an endpoint may take to accept before the next one is
// tried. Endpoints are on this machine or the next; a second is very long.
const dialTimeout = time.Second

// frontend listens on one address.
type frontend struct {
	listener net.Listener
	next     atomic.Uint64
	current  atomic.Pointer[[]netip.AddrPort]
}

func (f *frontend) set(endpoints []netip.AddrPort) { f.current.Store(&endpoints) }

// accept forwards connections until the listener is closed. Each connection is
// a goroutine that ends with the connection, or with ctx.
func (f *frontend) accept(ctx context.Context, conns *sync.WaitGroup) {
	for {
		conn, err := f.listener.Accept()
		if err != nil {
			if ctx.Err() != nil || isClosed(err) {
				return
			}
			// Out of descriptors, most likely: some connection must end first.
			select {
			case <-ctx.Done():
				return
			case <-time.After(50 * time.Millisecond):
				continue
			}
		}
		conns.Go(func() { f.forward(ctx, conn) })
	}
}

func (f *frontend) forward(ctx context.Context, client net.Conn) {
	defer client.Close()
	server := f.dial(ctx)
	if server == nil {
		reset(client)
		return
	}
	defer server.Close()
	stop := context.AfterFunc(ctx, func() {
		client.Close()
		server.Close()
	})
	defer stop()
	var both sync.WaitGroup
	both.Go(func() { pipe(server, client) })
	both.Go(func() { pipe(client, server) })
	both.Wait()
}

// dial connects to the next endpoint that accepts; nil when none does.
func (f *frontend) dial(ctx context.Context) net.Conn {
	dialer := net.Dialer{Timeout: dialTimeout}
	tried := map[netip.AddrPort]bool{}
	for {
		endpoint, ok := f.pick(tried)
		if !ok {
			return nil
		}
		tried[endpoint] = true
		conn, err := dialer.DialContext(ctx, "tcp", endpoint.String())
		if err == nil {
			return conn
		}
		if ctx.Err() != nil {
			return nil
		}
	}
}

// pick takes the next endpoint that was not tried. It looks at the newest
// endpoints each time: those that came meanwhile count.
func (f *frontend) pick(tried map[netip.AddrPort]bool) (netip.AddrPort, bool) {
	endpoints := *f.current.Load()
	n := uint64(len(endpoints))
	if n == 0 {
		return netip.AddrPort{}, false
	}
	first := f.next.Add(1)
	for i := range n {
		if e := endpoints[(first+i)%n]; !tried[e] {
			return e, true
		}
	}
	return netip.AddrPort{}, false
}

// pipe copies one direction and passes its end on: the other direction may go
// on. A side that breaks ends both.
func pipe(to, from net.Conn) {
	if _, err := io.Copy(to, from); err != nil {
		reset(to)
		reset(from)
		return
	}
	if half, ok := to.(interface{ CloseWrite() error }); ok {
		_ = half.CloseWrite()
	}
}

// reset ends a connection so that the other side sees an error, not an end.
func reset(conn net.Conn) {
	if tcp, ok := conn.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	conn.Close()
}
