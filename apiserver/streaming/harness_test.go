package streaming_test

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gorilla/websocket"
	"k8s.io/streaming/pkg/httpstream"
	"k8s.io/streaming/pkg/httpstream/spdy"
)

// network is a listener whose connections are pipes: nothing is buffered in them, so who does not read
// is waited for at once, and a test lives in a bubble in which nothing may be left running.
type network struct {
	handler  http.HandlerFunc // what is served to those who connect from now on
	incoming chan net.Conn
	closed   chan struct{}
	once     sync.Once
}

func (n *network) Accept() (net.Conn, error) {
	select {
	case c := <-n.incoming:
		return c, nil
	case <-n.closed:
		return nil, net.ErrClosed
	}
}

func (n *network) Close() error   { n.once.Do(func() { close(n.closed) }); return nil }
func (n *network) Addr() net.Addr { return &net.TCPAddr{} }

func (n *network) dial(context.Context, string, string) (net.Conn, error) {
	ours, theirs := net.Pipe()
	n.incoming <- theirs
	return ours, nil
}

// inBubble runs a test on a network of its own. Goroutines that are left at its end fail it.
func inBubble(t *testing.T, test func(*testing.T, *network)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		n := &network{incoming: make(chan net.Conn), closed: make(chan struct{})}
		server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { n.handler(w, r) })}
		ended := make(chan error, 1)
		go func() { ended <- server.Serve(n) }()
		test(t, n)
		server.Close()
		if err := <-ended; !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	})
}

// webSocket connects with subprotocols.
func (n *network) webSocket(t *testing.T, protocols ...string) *websocket.Conn {
	t.Helper()
	dialer := websocket.Dialer{NetDialContext: n.dial, Subprotocols: protocols}
	ws, _, err := dialer.Dial("ws://server/", nil)
	if err != nil {
		t.Fatal(err)
	}
	return ws
}

// spdy connects in SPDY, and returns the protocol that was chosen. raw breaks the connection off.
func (n *network) spdy(t *testing.T, protocols ...string) (streams httpstream.Connection, raw net.Conn, protocol string) {
	t.Helper()
	raw, _ = n.dial(t.Context(), "", "")
	resp := ask(t, raw, protocols...)
	if resp.StatusCode != http.StatusSwitchingProtocols {
		t.Fatal(resp.Status)
	}
	streams, err := spdy.NewClientConnection(raw)
	if err != nil {
		t.Fatal(err)
	}
	return streams, raw, resp.Header.Get(httpstream.HeaderProtocolVersion)
}

// ask sends the request that begins SPDY.
func ask(t *testing.T, conn net.Conn, protocols ...string) *http.Response {
	t.Helper()
	req := &http.Request{Method: http.MethodPost, URL: &url.URL{Host: "server", Path: "/"}, Header: http.Header{
		"Connection": {"Upgrade"}, "Upgrade": {spdy.HeaderSpdy31}, httpstream.HeaderProtocolVersion: protocols,
	}}
	sent := make(chan error, 1)
	go func() { sent <- req.Write(conn) }()
	// A byte at a time: what is behind the answer is the connection's.
	resp, err := http.ReadResponse(bufio.NewReaderSize(oneByte{conn}, 16), req)
	if err != nil {
		t.Fatal(err)
	}
	if err := <-sent; err != nil {
		t.Fatal(err)
	}
	return resp
}

type oneByte struct{ io.Reader }

func (o oneByte) Read(p []byte) (int, error) { return o.Reader.Read(p[:1]) }

// open opens a stream with headers, which are names and values.
func open(t *testing.T, c httpstream.Connection, headers ...string) httpstream.Stream {
	t.Helper()
	h := http.Header{}
	for i := 0; i < len(headers); i += 2 {
		h.Set(headers[i], headers[i+1])
	}
	s, err := c.CreateStream(h)
	if err != nil {
		t.Fatalf("%q: %v", strings.Join(headers, " "), err)
	}
	return s
}

// text reads a stream to its end.
func text(t *testing.T, r io.Reader) string {
	t.Helper()
	all, err := io.ReadAll(r)
	if err != nil {
		t.Errorf("after %q: %v", all, err)
	}
	return string(all)
}

// texts reads streams to their ends, all at once: in SPDY one that is not read may hold others up.
func texts(t *testing.T, streams ...io.Reader) []string {
	t.Helper()
	all := make([]string, len(streams))
	var reading sync.WaitGroup
	for i, s := range streams {
		reading.Go(func() { all[i] = text(t, s) })
	}
	reading.Wait()
	return all
}

// message reads one message.
func message(t *testing.T, ws *websocket.Conn) string {
	t.Helper()
	_, text, err := ws.ReadMessage()
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// closed reads on until the other side has closed, and returns its code.
func closed(ws *websocket.Conn) int {
	defer ws.Close()
	for {
		if _, _, err := ws.ReadMessage(); err != nil {
			var end *websocket.CloseError
			if errors.As(err, &end) {
				return end.Code
			}
			return -1
		}
	}
}

// passed is how long something took on the bubble's clock.
func passed(do func()) time.Duration {
	begun := time.Now()
	do()
	return time.Since(begun)
}
