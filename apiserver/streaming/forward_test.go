package streaming_test

import (
	"context"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/gorilla/websocket"
	"k8s.io/streaming/pkg/httpstream"
	"k8s.io/streaming/pkg/httpstream/spdy"

	"github.com/setpoint-dev/setpoint/apiserver/streaming"
)

// port is a connection to what play plays. CloseWrite ends what play reads.
type port struct {
	*io.PipeReader
	*io.PipeWriter
}

func (p port) CloseWrite() error { return p.PipeWriter.Close() }
func (p port) Close() error {
	return errors.Join(p.PipeReader.Close(), p.PipeWriter.CloseWithError(net.ErrClosed))
}

// forwarding connects every port but 1, at which nothing listens. What play returns goes to ended.
func forwarding(
	ctx context.Context, ports []uint16, ended chan<- error, play func(port uint16, in io.Reader, out io.Writer) error,
) http.HandlerFunc {
	dial := func(_ context.Context, number uint16) (streaming.Port, error) {
		if number == 1 {
			return nil, errors.New("connection refused")
		}
		in, typed := io.Pipe()
		printed, out := io.Pipe()
		go func() {
			err := play(number, in, out)
			out.Close()
			in.Close()
			ended <- err
		}()
		return port{printed, typed}, nil
	}
	return func(w http.ResponseWriter, r *http.Request) {
		if err := streaming.ServeForward(ctx, w, r, ports, dial); err != nil && !errors.Is(err, streaming.ErrGone) {
			http.Error(w, err.Error(), http.StatusTeapot)
		}
	}
}

// answer says what was sent to a port, when that has ended.
func answer(port uint16, in io.Reader, out io.Writer) error {
	sent, err := io.ReadAll(in)
	fmt.Fprintf(out, "%d got %s", port, sent)
	return err
}

// clientsOfStreams connect in SPDY, itself and through a WebSocket.
var clientsOfStreams = map[string]func(*testing.T, *network) (httpstream.Connection, io.Closer){
	"SPDY": func(t *testing.T, n *network) (httpstream.Connection, io.Closer) {
		c, raw, _ := n.spdy(t, "portforward.k8s.io")
		return c, raw
	},
	"SPDY through a WebSocket": func(t *testing.T, n *network) (httpstream.Connection, io.Closer) {
		ws := n.webSocket(t, "SPDY/3.1+portforward.k8s.io")
		c, err := spdy.NewClientConnection(&tunneled{Conn: ws.NetConn(), ws: ws})
		if err != nil {
			t.Fatal(err)
		}
		return c, ws
	},
}

// tunneled is the client's side of bytes in messages.
type tunneled struct {
	net.Conn
	ws   *websocket.Conn
	rest []byte
}

func (c *tunneled) Read(p []byte) (int, error) {
	for len(c.rest) == 0 {
		_, message, err := c.ws.ReadMessage()
		if err != nil {
			return 0, err
		}
		c.rest = message
	}
	n := copy(p, c.rest)
	c.rest = c.rest[n:]
	return n, nil
}

func (c *tunneled) Write(p []byte) (int, error) {
	return len(p), c.ws.WriteMessage(websocket.BinaryMessage, p)
}

// pairOf opens the two streams of a connection to a port.
func pairOf(t *testing.T, c httpstream.Connection, port, id string) (data, failed httpstream.Stream) {
	t.Helper()
	failed = open(t, c, "streamType", "error", "port", port, "requestID", id)
	failed.Close()
	return open(t, c, "streamType", "data", "port", port, "requestID", id), failed
}

// Each pair of streams is a connection; one that cannot be made costs the others nothing.
func TestForwardStreams(t *testing.T) {
	for name, connect := range clientsOfStreams {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, n *network) {
				ended := make(chan error, 2)
				n.handler = forwarding(t.Context(), nil, ended, answer)
				c, _ := connect(t, n)
				defer c.Close()
				first, firstFailed := pairOf(t, c, "8080", "0")
				_, refused := pairOf(t, c, "1", "1")
				second, _ := pairOf(t, c, "8081", "") // an old client, which gives no number
				io.WriteString(first, "hello")
				if got := text(t, refused); got != "error forwarding port 1: connection refused" {
					t.Errorf("a port at which nothing listens: %q", got)
				}
				second.Close()
				first.Close()
				got := texts(t, first, firstFailed, second)
				if diff := cmp.Diff([]string{"8080 got hello", "", "8081 got "}, got); diff != "" {
					t.Errorf("streams (-want +got):\n%s", diff)
				}
				for range 2 {
					if err := <-ended; err != nil {
						t.Error(err)
					}
				}
			})
		})
	}
}

// What is cut off in the middle does not look complete to the port.
func TestForwardCutOff(t *testing.T) {
	for name, connect := range clientsOfStreams {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, n *network) {
				ended := make(chan error, 1)
				n.handler = forwarding(t.Context(), nil, ended, answer)
				c, raw := connect(t, n)
				defer c.Close()
				data, _ := pairOf(t, c, "8080", "0")
				io.WriteString(data, "hel")
				raw.Close()
				if err := <-ended; !errors.Is(err, net.ErrClosed) {
					t.Errorf("the port's input ended with %v", err)
				}
			})
		})
	}
}

// The end of the context ends the forwarding, what goes on in it, and streams that wait for another;
// a client that reads nothing does not keep it.
func TestForwardEnds(t *testing.T) {
	flood := func(_ uint16, _ io.Reader, out io.Writer) error {
		for {
			if _, err := out.Write(make([]byte, 1<<20)); err != nil {
				return err
			}
		}
	}
	for name, connect := range clientsOfStreams {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, n *network) {
				ctx, cancel := context.WithCancel(t.Context())
				ended := make(chan error, 1)
				n.handler = forwarding(ctx, nil, ended, flood)
				c, _ := connect(t, n)
				defer c.Close()
				open(t, c, "streamType", "data", "port", "8080", "requestID", "7")
				data, _ := pairOf(t, c, "8080", "0")
				if _, err := io.ReadFull(data, make([]byte, 1<<10)); err != nil {
					t.Fatal(err)
				}
				if d := passed(func() { cancel(); <-ended; <-c.CloseChan() }); d != 0 {
					t.Errorf("it took %s", d)
				}
			})
		})
	}
}

// A stream whose other one does not come is reset, and those that are none of a pair are refused.
func TestForwardRefusesStreams(t *testing.T) {
	inBubble(t, func(t *testing.T, n *network) {
		n.handler = forwarding(t.Context(), nil, nil, answer)
		c, _, _ := n.spdy(t, "portforward.k8s.io")
		defer c.Close()
		for _, headers := range [][]string{
			{"streamType", "data"}, {"streamType", "data", "port", "0"}, {"streamType", "data", "port", "65536"},
			{"streamType", "other", "port", "80", "requestID", "3"},
		} {
			h := http.Header{}
			for i := 0; i < len(headers); i += 2 {
				h.Set(headers[i], headers[i+1])
			}
			if s, err := c.CreateStream(h); err == nil {
				if _, err := s.Read(make([]byte, 1)); err == nil || err == io.EOF && s.Close() == nil {
					t.Errorf("%q was taken, and ended with %v", headers, err)
				}
			}
		}
		alone := open(t, c, "streamType", "data", "port", "80", "requestID", "5")
		if d := passed(func() { alone.Read(make([]byte, 1)) }); d < 10*time.Second || d > time.Minute {
			t.Errorf("a stream alone lasted %s", d)
		}
	})
}

// A client of channels names its ports beforehand; each has two channels, whose first message is the
// number of the port.
func TestForwardChannels(t *testing.T) {
	for protocol, inText := range map[string]bool{"v4.channel.k8s.io": false, "v4.base64.channel.k8s.io": true, "": false} {
		t.Run(protocol, func(t *testing.T) {
			inBubble(t, func(t *testing.T, n *network) {
				ended := make(chan error, 1)
				line := func(port uint16, in io.Reader, out io.Writer) error {
					var sent [5]byte
					_, err := io.ReadFull(in, sent[:])
					fmt.Fprintf(out, "%d got %s", port, sent)
					return err
				}
				n.handler = forwarding(t.Context(), []uint16{8080, 1}, ended, line)
				var asked []string
				if protocol != "" {
					asked = []string{protocol}
				}
				ws := n.webSocket(t, asked...)
				channels := map[byte]string{}
				receive := func() {
					m := message(t, ws)
					number, data := m[0], m[1:]
					if inText {
						plain, err := base64.StdEncoding.DecodeString(data)
						if err != nil {
							t.Error(err)
						}
						number, data = number-'0', string(plain)
					}
					channels[number] += data
				}
				for range 5 { // four numbers and a refusal
					receive()
				}
				hello := append([]byte{0}, "hello"...)
				if inText {
					hello = base64.StdEncoding.AppendEncode([]byte{'0'}, []byte("hello"))
				}
				if err := ws.WriteMessage(websocket.BinaryMessage, hello); err != nil {
					t.Fatal(err)
				}
				receive()
				head := func(port uint16) string { return string(binary.LittleEndian.AppendUint16(nil, port)) }
				want := map[byte]string{
					0: head(8080) + "8080 got hello", 1: head(8080),
					2: head(1), 3: head(1) + "error forwarding port 1: connection refused",
				}
				if diff := cmp.Diff(want, channels); diff != "" {
					t.Errorf("channels (-want +got):\n%s", diff)
				}
				if code := closed(ws); code != websocket.CloseNormalClosure {
					t.Errorf("closed with %d", code)
				}
				if err := <-ended; err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// The client's end of channels is the end of their connections, and so is the context's.
func TestForwardChannelsEnd(t *testing.T) {
	for _, name := range []string{"client", "context"} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, n *network) {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				ended := make(chan error, 1)
				n.handler = forwarding(ctx, []uint16{8080}, ended, answer)
				ws := n.webSocket(t)
				message(t, ws)
				message(t, ws)
				if name == "client" {
					ws.Close()
				} else {
					cancel()
				}
				if err := <-ended; !errors.Is(err, net.ErrClosed) {
					t.Errorf("the port's input ended with %v", err)
				}
				ws.Close()
			})
		})
	}
}

func TestForwardRefusals(t *testing.T) {
	inBubble(t, func(t *testing.T, n *network) {
		n.handler = forwarding(t.Context(), nil, nil, answer)
		for protocol, want := range map[string]string{
			"":                      `query parameter "ports" is required`,
			"v4.channel.k8s.io":     `query parameter "ports" is required`,
			"SPDY/3.1+other.k8s.io": `none of the protocols ["SPDY/3.1+other.k8s.io"] is known`,
		} {
			dialer := websocket.Dialer{NetDialContext: n.dial}
			if protocol != "" {
				dialer.Subprotocols = []string{protocol}
			}
			_, resp, err := dialer.Dial("ws://server/", nil)
			if err == nil {
				t.Errorf("%q was taken", protocol)
				continue
			}
			if got := text(t, resp.Body); !strings.Contains(got, want) {
				t.Errorf("%q: %s", protocol, got)
			}
		}
	})
}
