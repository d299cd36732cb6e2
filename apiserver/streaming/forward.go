package streaming

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/gorilla/websocket"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/portforward"
	"k8s.io/streaming/pkg/httpstream"
	"k8s.io/streaming/pkg/httpstream/spdy"
)

// Dial connects to a port. The connection's CloseWrite ends what is sent; when the other side ends,
// all of it does.
type Dial func(ctx context.Context, port uint16) (Port, error)

// Port is a connection to a port.
type Port interface {
	io.ReadWriteCloser
	CloseWrite() error
}

// forwardsMax bounds the connections of one client: each costs a few buffers here and at the node.
const forwardsMax = 1000

// The protocols of forwarding: SPDY, itself or through a WebSocket, in which each connection is two
// streams; and channels of a WebSocket, whose ports the request names.
const spdyTunnel = portforward.WebsocketsSPDYTunnelingPortForwardV1

var (
	forwardSPDY     = []string{portforward.PortForwardV1Name}
	forwardChannels = []string{"v4.channel.k8s.io", v4Base64, ""}
)

// ServeForward upgrades a request and connects the client to ports until it is gone or the context
// ends. The error is nil, ErrGone, or a Status that the request can still be answered with.
func ServeForward(
	ctx context.Context, w http.ResponseWriter, r *http.Request, ports []uint16, dial Dial,
) error {
	ctx, cancel := context.WithCancel(ctx)
	f := &forward{ctx: ctx, dial: dial, serving: make(chan struct{}), pairs: map[string]*pair{}}
	defer f.end(cancel)
	switch {
	case isSPDY(r):
		streams, c, _, err := upgradeSPDY(w, r, forwardSPDY, f.opened)
		if err != nil {
			return err
		}
		return f.serve(streams, c)
	case !IsWebSocket(r):
		return errUpgradeRequired()
	case tunnels(r):
		ws, c, err := upgradeWebSocket(w, r, []string{spdyTunnel})
		if err != nil {
			return err
		}
		streams, err := spdy.NewServerConnectionWithPings(&messages{conn: c, ws: ws}, f.opened, pingPeriod)
		if err != nil {
			return ErrGone
		}
		return f.serve(streams, c)
	}
	return f.serveChannels(w, r, ports)
}

func tunnels(r *http.Request) bool {
	for _, name := range websocket.Subprotocols(r) {
		if strings.HasPrefix(name, portforward.WebsocketsSPDYTunnelingPrefix) {
			return true
		}
	}
	return false
}

// forward is one client's forwarding.
type forward struct {
	ctx     context.Context
	dial    Dial
	running sync.WaitGroup

	serving chan struct{} // closed when the two below are set
	streams httpstream.Connection
	conn    *conn // below streams

	mu    sync.Mutex       // guards all below
	pairs map[string]*pair // that are not complete, by the client's number
	count int              // of connections
}

// pair is the two streams of a connection.
type pair struct {
	data, errors httpstream.Stream
	timer        *time.Timer // ends a pair that stays alone
}

// end ends all connections and waits for them. None begins any more.
func (f *forward) end(cancel func()) {
	f.mu.Lock()
	cancel()
	for _, p := range f.pairs {
		p.timer.Stop()
	}
	f.mu.Unlock()
	f.running.Wait()
}

// serve waits for the client's end, or the context's.
func (f *forward) serve(streams httpstream.Connection, c *conn) error {
	defer streams.Close()
	defer c.Close()
	f.streams, f.conn = streams, c
	close(f.serving)
	select {
	case <-f.ctx.Done():
	case <-c.gone:
	case <-streams.CloseChan():
	}
	return nil
}

// opened takes a stream that the client has opened. Two of them make a connection.
func (f *forward) opened(s httpstream.Stream, replied <-chan struct{}) error {
	port, err := strconv.ParseUint(s.Headers().Get(portHeader), 10, 16)
	if err != nil || port == 0 {
		return fmt.Errorf("port: found %q, allowed are 1 to 65535", s.Headers().Get(portHeader))
	}
	kind := s.Headers().Get("streamType")
	id := s.Headers().Get("requestID")
	if id == "" { // the oldest clients open the two one after the other
		number := int(s.Identifier())
		if kind == "data" {
			number -= 2
		}
		id = strconv.Itoa(number)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.ctx.Err() != nil {
		return ErrGone // see end
	}
	p := f.pairs[id]
	if p == nil {
		if f.count+len(f.pairs) >= forwardsMax {
			return fmt.Errorf("too many connections: at most %d are allowed", forwardsMax)
		}
		p = &pair{timer: time.AfterFunc(createMax, func() { f.drop(id) })}
		f.pairs[id] = p
	}
	switch {
	case kind == "data" && p.data == nil:
		p.data = s
	case kind == "error" && p.errors == nil:
		p.errors = s
	default:
		return fmt.Errorf("streamType: found %q, allowed are one data and one error", kind)
	}
	if p.data == nil || p.errors == nil {
		return nil
	}
	p.timer.Stop()
	delete(f.pairs, id)
	f.count++
	f.running.Go(func() {
		defer f.done()
		for _, ready := range []<-chan struct{}{f.serving, replied} { // only then may it be written to
			select {
			case <-ready:
			case <-f.ctx.Done():
				return
			}
		}
		f.connect(uint16(port), p)
		f.streams.RemoveStreams(p.data, p.errors)
	})
	return nil
}

const portHeader = "port"

// done counts a connection no more.
func (f *forward) done() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.count--
}

// drop forgets a stream whose other one did not come.
func (f *forward) drop(id string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if p := f.pairs[id]; p != nil {
		delete(f.pairs, id)
		for _, s := range []httpstream.Stream{p.data, p.errors} {
			if s != nil {
				_ = s.Reset()
			}
		}
	}
}

// connect serves one connection.
func (f *forward) connect(port uint16, p *pair) {
	stop := context.AfterFunc(f.ctx, func() { p.data.Reset(); p.errors.Reset() })
	defer stop()
	if err := f.relay(port, duplex{wholeReader{p.data, f.conn}, p.data}); err != nil {
		fmt.Fprintf(p.errors, "error forwarding port %d: %v", port, err)
		p.errors.Close()
		p.data.Reset()
		return
	}
	p.data.Close()
	p.errors.Close()
}

// relay copies between a client's stream and a port until the port's side ends, or both directions
// have.
func (f *forward) relay(port uint16, client io.ReadWriter) error {
	ctx, cancel := context.WithCancel(f.ctx)
	defer cancel()
	conn, err := f.dial(ctx, port)
	if err != nil {
		return err
	}
	defer conn.Close()
	f.running.Go(func() { // ends with the client's stream
		if _, err := io.Copy(conn, client); err == nil {
			_ = conn.CloseWrite()
		} else {
			conn.Close()
		}
	})
	_, err = io.Copy(client, conn)
	if f.ctx.Err() != nil {
		return nil
	}
	return err
}

// serveChannels serves the ports of a request over channels, two for each: data and an error. Each
// begins with the port's number.
func (f *forward) serveChannels(w http.ResponseWriter, r *http.Request, ports []uint16) error {
	ctx, cancel := context.WithCancel(f.ctx)
	defer cancel()
	f.ctx = ctx
	if len(ports) == 0 {
		return apierrors.NewBadRequest(`query parameter "ports" is required`)
	}
	ws, c, err := upgradeWebSocket(w, r, forwardChannels)
	if err != nil {
		return err
	}
	ch := &channels{
		ws: ws, conn: c, text: ws.Subprotocol() == v4Base64,
		inputs: map[byte]*io.PipeWriter{}, read: make(chan struct{}),
	}
	go func() { // ends with the client, or when all ports have been served
		select {
		case <-c.gone:
			cancel()
		case <-ctx.Done():
			c.Close()
		}
	}()
	var all sync.WaitGroup
	for i, port := range ports {
		data, failed := ch.output(byte(2*i)), ch.output(byte(2*i+1))
		in := ch.input(byte(2 * i))
		head := binary.LittleEndian.AppendUint16(nil, port)
		all.Go(func() {
			defer in.Close()
			_, err := data.Write(head)
			if _, alsoErr := failed.Write(head); errors.Join(err, alsoErr) != nil {
				return
			}
			if err := f.relay(port, duplex{in, data}); err != nil {
				fmt.Fprintf(failed, "error forwarding port %d: %v", port, err)
			}
		})
	}
	ch.serve()
	all.Wait()
	linger(ws, c, ch.read)
	return nil
}

type duplex struct {
	io.Reader
	io.Writer
}

// messages is a byte stream over a WebSocket, whose messages are pieces of it.
type messages struct {
	*conn // closes, and knows addresses
	ws    *websocket.Conn
	rest  io.Reader
	mu    sync.Mutex // guards writing
}

func (m *messages) Read(p []byte) (int, error) {
	for {
		if m.rest == nil {
			kind, message, err := m.ws.NextReader()
			if err != nil {
				m.conn.end()
				return 0, io.EOF
			}
			if kind != websocket.BinaryMessage {
				return 0, fmt.Errorf("a message that is not binary")
			}
			m.rest = message
		}
		n, err := m.rest.Read(p)
		if err == io.EOF {
			m.rest, err = nil, nil
		}
		if n > 0 || err != nil {
			return n, err
		}
	}
}

func (m *messages) Write(p []byte) (int, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.ws.WriteMessage(websocket.BinaryMessage, p); err != nil {
		return 0, err
	}
	return len(p), nil
}
