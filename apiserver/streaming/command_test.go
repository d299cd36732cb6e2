package streaming_test

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/gorilla/websocket"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/setpoint-dev/setpoint/apiserver/streaming"
	"github.com/setpoint-dev/setpoint/internal/nodewire"
)

var all = streaming.Streams{Stdin: true, Stdout: true, Stderr: true}

// failure is how a command with an exit code of 3 ends.
var failure = &metav1.Status{
	Status: metav1.StatusFailure, Reason: "NonZeroExitCode", Message: "it ended with 3",
	Details: &metav1.StatusDetails{Causes: []metav1.StatusCause{{Type: "ExitCode", Message: "3"}}},
}

// command accepts a client and plays a command to it, which ends with a status, or breaks off if that
// is nil.
func command(t *testing.T, want streaming.Streams, play func(*streaming.Command) *metav1.Status) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		c, err := streaming.AcceptCommand(w, r, want)
		if err != nil {
			if !errors.Is(err, streaming.ErrGone) {
				http.Error(w, err.Error(), http.StatusTeapot)
			}
			return
		}
		defer c.Close()
		if status := play(c); status != nil {
			c.Finish(status)
		}
	}
}

// echo prints what is typed, complains, and fails.
func echo(c *streaming.Command) *metav1.Status {
	typed, err := io.ReadAll(c.Stdin)
	fmt.Fprintf(c.Stdout, "got %s, %v", typed, err)
	io.WriteString(c.Stderr, "oops")
	return failure
}

// In every version of the subprotocol a client finds the streams under their numbers, after an empty
// message that says that they are there; only the newest can end its input.
func TestCommandOverWebSocket(t *testing.T) {
	status, _ := json.Marshal(failure)
	for _, test := range []struct {
		protocol  string
		base64    bool
		ended     string // what says how it ended
		endsInput bool
	}{
		{protocol: "v5.channel.k8s.io", ended: string(status), endsInput: true},
		{protocol: "v4.channel.k8s.io", ended: string(status)},
		{protocol: "v4.base64.channel.k8s.io", ended: string(status), base64: true},
		{protocol: "channel.k8s.io", ended: failure.Message},
		{protocol: "base64.channel.k8s.io", ended: failure.Message, base64: true},
		{protocol: "", ended: failure.Message},
	} {
		t.Run(test.protocol, func(t *testing.T) {
			play := func(c *streaming.Command) *metav1.Status {
				var typed [5]byte
				_, err := io.ReadFull(c.Stdin, typed[:])
				if test.endsInput {
					_, err = c.Stdin.Read(typed[4:])
				}
				fmt.Fprintf(c.Stdout, "got %s, %v", typed, err)
				io.WriteString(c.Stderr, "oops")
				return failure
			}
			inBubble(t, func(t *testing.T, n *network) {
				n.handler = command(t, all, play)
				var asked []string
				if test.protocol != "" {
					asked = []string{"nosuch", test.protocol}
				}
				ws := n.webSocket(t, asked...)
				if got := ws.Subprotocol(); got != test.protocol {
					t.Errorf("the protocol is %q", got)
				}
				send := func(number byte, text string) {
					kind, data := websocket.BinaryMessage, append([]byte{number}, text...)
					if test.base64 {
						kind = websocket.TextMessage
						data = base64.StdEncoding.AppendEncode([]byte{'0' + number}, []byte(text))
					}
					if err := ws.WriteMessage(kind, data); err != nil {
						t.Fatal(err)
					}
				}
				var got []string
				receive := func() {
					m := message(t, ws)
					number, text := m[0], m[1:]
					if test.base64 {
						plain, err := base64.StdEncoding.DecodeString(text)
						if err != nil {
							t.Error(err)
						}
						number, text = number-'0', string(plain)
					}
					got = append(got, fmt.Sprint(number, " ", text))
				}
				receive()
				send(0, "he")
				send(9, "nobody reads this")
				send(0, "llo")
				if test.endsInput {
					send(255, "\x00")
				}
				for range 3 {
					receive()
				}
				want := []string{"1 ", "1 got hello, <nil>", "2 oops", "3 " + test.ended}
				if test.endsInput {
					want[1] = "1 got hello, EOF"
				}
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("messages (-want +got):\n%s", diff)
				}
				if code := closed(ws); code != websocket.CloseNormalClosure {
					t.Errorf("closed with %d", code)
				}
			})
		})
	}
}

// In SPDY a client opens the streams; in all versions but the newest it is told a text.
func TestCommandOverSPDY(t *testing.T) {
	status, _ := json.Marshal(failure)
	for protocol, want := range map[string]string{
		"v4.channel.k8s.io": string(status), "v3.channel.k8s.io": failure.Message,
		"v2.channel.k8s.io": failure.Message, "channel.k8s.io": failure.Message,
	} {
		t.Run(protocol, func(t *testing.T) {
			inBubble(t, func(t *testing.T, n *network) {
				n.handler = command(t, all, echo)
				c, _, chosen := n.spdy(t, "nosuch", protocol)
				defer c.Close()
				if chosen != protocol {
					t.Errorf("the protocol is %q", chosen)
				}
				failed := open(t, c, "streamType", "error")
				in := open(t, c, "streamType", "stdin")
				out, errs := open(t, c, "streamType", "stdout"), open(t, c, "streamType", "stderr")
				io.WriteString(in, "hello")
				in.Close()
				got := texts(t, out, errs, failed)
				if diff := cmp.Diff([]string{"got hello, <nil>", "oops", want}, got); diff != "" {
					t.Errorf("streams (-want +got):\n%s", diff)
				}
			})
		})
	}
}

// What a client cannot be served with is said over HTTP.
func TestCommandRefusals(t *testing.T) {
	inBubble(t, func(t *testing.T, n *network) {
		n.handler = command(t, all, echo)
		web := &http.Client{Transport: &http.Transport{DialContext: n.dial, DisableKeepAlives: true}}
		resp, err := web.Get("http://server/")
		if err != nil {
			t.Fatal(err)
		}
		if got := text(t, resp.Body); got != "Upgrade request required\n" {
			t.Errorf("without an upgrade: %s", got)
		}
		dialer := websocket.Dialer{NetDialContext: n.dial, Subprotocols: []string{"v6.channel.k8s.io"}}
		if _, resp, err = dialer.Dial("ws://server/", nil); err == nil || resp.StatusCode != http.StatusTeapot {
			t.Fatalf("an unknown subprotocol: %v", err)
		}
		if got := text(t, resp.Body); !strings.Contains(got, `none of the protocols ["v6.channel.k8s.io"] is known`) {
			t.Errorf("an unknown subprotocol: %s", got)
		}
		for _, test := range []struct {
			asked []string
			want  string
		}{{nil, "the header X-Stream-Protocol-Version is missing"}, {[]string{"v9"}, `none of the protocols ["v9"] is known`}} {
			conn, _ := n.dial(t.Context(), "", "")
			resp := ask(t, conn, test.asked...)
			if got := text(t, resp.Body); !strings.Contains(got, test.want) {
				t.Errorf("SPDY with %q: %s", test.asked, got)
			}
			conn.Close()
		}
	})
}

// A terminal's size arrives, the newest if several wait; text that does not end is not kept.
func TestSizes(t *testing.T) {
	inBubble(t, func(t *testing.T, n *network) {
		sized := make(chan nodewire.Size)
		play := func(c *streaming.Command) *metav1.Status {
			for size := range c.Sizes {
				if sized <- size; size.Width == 9 {
					break
				}
			}
			select {
			case size := <-c.Sizes:
				t.Errorf("a size of a megabyte was taken: %v", size)
			case <-c.Gone():
			}
			return nil
		}
		n.handler = command(t, streaming.Streams{Stdout: true, TTY: true}, play)
		ws := n.webSocket(t, "v4.channel.k8s.io")
		message(t, ws)
		send := func(text string) {
			if err := ws.WriteMessage(websocket.BinaryMessage, []byte("\x04"+text)); err != nil {
				t.Fatal(err)
			}
		}
		send(`{"Width":80,"Height":24}`)
		if got := <-sized; got != (nodewire.Size{Width: 80, Height: 24}) {
			t.Errorf("the size is %v", got)
		}
		send(`{"Width":9,"Height":1}`)
		<-sized
		send(`{"Width":7,"Other":"` + strings.Repeat("9", 1<<20)) // it would block if it were neither read nor dropped
		send(`"}`)
		synctest.Wait()
		ws.Close()
	})
}

// A client that is cut off has not ended its input, and nothing waits for it.
func TestCutOff(t *testing.T) {
	for name, cut := range map[string]func(*testing.T, *network){
		"WebSocket": func(t *testing.T, n *network) {
			ws := n.webSocket(t, "v5.channel.k8s.io")
			message(t, ws)
			ws.NetConn().Close()
		},
		"WebSocket, politely": func(t *testing.T, n *network) {
			ws := n.webSocket(t, "v5.channel.k8s.io")
			message(t, ws)
			_ = ws.WriteMessage(websocket.CloseMessage, nil)
			closed(ws)
		},
		"SPDY": func(t *testing.T, n *network) {
			c, raw, _ := n.spdy(t, "v4.channel.k8s.io")
			defer c.Close()
			for _, kind := range []string{"error", "stdin", "stdout", "stderr"} {
				open(t, c, "streamType", kind)
			}
			raw.Close()
		},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, n *network) {
				stdin := make(chan error, 1)
				n.handler = command(t, all, func(c *streaming.Command) *metav1.Status {
					_, err := io.Copy(io.Discard, c.Stdin)
					<-c.Gone()
					stdin <- err
					return nil
				})
				cut(t, n)
				if err := <-stdin; !errors.Is(err, streaming.ErrGone) {
					t.Errorf("the input ended with %v", err)
				}
			})
		})
	}
}

// Input that nobody reads holds nobody up: not the end of the command, nor the client's own.
func TestInputThatNobodyReads(t *testing.T) {
	for name, status := range map[string]*metav1.Status{"finished": failure, "broken off": nil} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, n *network) {
				typed := make(chan struct{})
				n.handler = command(t, all, func(*streaming.Command) *metav1.Status { <-typed; return status })
				ws := n.webSocket(t, "v4.channel.k8s.io")
				message(t, ws)
				if err := ws.WriteMessage(websocket.BinaryMessage, make([]byte, 100)); err != nil {
					t.Fatal(err)
				}
				go func() {
					for ws.WriteMessage(websocket.BinaryMessage, make([]byte, 100)) == nil {
					}
				}()
				close(typed)
				closed(ws)
			})
		})
	}
}

// A client that reads nothing for a while loses nothing; when the command is over it is given some
// seconds, and is then let go.
func TestClientThatReadsNothing(t *testing.T) {
	const pause = time.Hour
	inBubble(t, func(t *testing.T, n *network) {
		quiet := make(chan struct{})
		n.handler = command(t, all, func(c *streaming.Command) *metav1.Status {
			<-quiet
			io.WriteString(c.Stdout, "a line")
			return failure
		})
		ws := n.webSocket(t, "v4.channel.k8s.io")
		message(t, ws)
		<-time.After(pause)
		close(quiet)
		if got := message(t, ws); got != "\x01a line" {
			t.Errorf("got %q", got)
		}
		if code := closed(ws); code != websocket.CloseNormalClosure {
			t.Errorf("closed with %d", code)
		}
	})

	for name, stall := range map[string]func(*testing.T, *network) io.Closer{
		"WebSocket": func(t *testing.T, n *network) io.Closer {
			ws := n.webSocket(t, "v4.channel.k8s.io")
			message(t, ws)
			return ws
		},
		"SPDY": func(t *testing.T, n *network) io.Closer {
			c, raw, _ := n.spdy(t, "v4.channel.k8s.io")
			for _, kind := range []string{"error", "stdin", "stdout", "stderr"} {
				open(t, c, "streamType", kind)
			}
			return closers{raw, c}
		},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, n *network) {
				took := make(chan time.Duration, 1)
				n.handler = command(t, all, func(c *streaming.Command) *metav1.Status {
					took <- passed(func() { c.Finish(failure) })
					return nil
				})
				defer stall(t, n).Close()
				if d := <-took; d > time.Minute {
					t.Errorf("it was waited for %s", d)
				}
			})
		})
	}
}

type closers []io.Closer

func (all closers) Close() error {
	for _, c := range all {
		c.Close()
	}
	return nil
}

// A client of SPDY that does not open the streams it asked for is not waited for without end.
func TestStreamsThatAreNotOpened(t *testing.T) {
	inBubble(t, func(t *testing.T, n *network) {
		ended := make(chan error, 1)
		n.handler = func(w http.ResponseWriter, r *http.Request) {
			_, err := streaming.AcceptCommand(w, r, all)
			ended <- err
		}
		c, _, _ := n.spdy(t, "v4.channel.k8s.io")
		defer c.Close()
		open(t, c, "streamType", "error")
		if err := <-ended; !errors.Is(err, streaming.ErrGone) {
			t.Errorf("it ended with %v", err)
		}
	})
}
