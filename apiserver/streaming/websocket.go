package streaming

import (
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/gorilla/websocket"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// upgradeWebSocket turns a request into a WebSocket that speaks one of the known subprotocols. A
// client that asks for none gets none, if that is known as "".
func upgradeWebSocket(w http.ResponseWriter, r *http.Request, known []string) (*websocket.Conn, *conn, error) {
	asked := websocket.Subprotocols(r)
	knows := func(name string) bool { return slices.Contains(known, name) }
	if len(asked) > 0 && !slices.ContainsFunc(asked, knows) || len(asked) == 0 && !knows("") {
		return nil, nil, errProtocol(asked, known)
	}
	h := &hijacker{ResponseWriter: w}
	var refusal error
	up := websocket.Upgrader{
		Subprotocols: slices.DeleteFunc(slices.Clone(known), func(name string) bool { return name == "" }),
		// Who may ask is decided by credentials that a page of somebody else's does not have.
		CheckOrigin:    func(*http.Request) bool { return true },
		ReadBufferSize: 4 << 10, WriteBufferSize: 4 << 10,
		Error: func(_ http.ResponseWriter, _ *http.Request, code int, err error) {
			refusal = apierrors.NewBadRequest(err.Error())
			if code >= http.StatusInternalServerError {
				refusal = fmt.Errorf("upgrade: %w", err)
			}
		},
	}
	ws, err := up.Upgrade(h, r, nil)
	switch {
	case err == nil:
		return ws, h.conn, nil
	case refusal != nil:
		return nil, nil, refusal
	default:
		return nil, nil, ErrGone
	}
}

// ping pings a client until it is gone.
func ping(ws *websocket.Conn, c *conn) {
	ticker := time.NewTicker(pingPeriod)
	defer ticker.Stop()
	for {
		select {
		case <-c.gone:
			return
		case <-ticker.C:
			// It waits like everything that is sent: who reads nothing for a while is not gone. An
			// error shows in the conn.
			_ = ws.WriteControl(websocket.PingMessage, nil, time.Time{})
		}
	}
}

// linger closes a WebSocket so that the client reads all that was sent: a connection that is closed
// with something of the client's unread may take back what it has not read yet.
func linger(ws *websocket.Conn, c *conn, read <-chan struct{}) {
	end := websocket.FormatCloseMessage(websocket.CloseNormalClosure, "")
	if ws.WriteControl(websocket.CloseMessage, end, time.Now().Add(lingerMax)) == nil {
		timer := time.NewTimer(lingerMax)
		defer timer.Stop()
		select {
		case <-read:
		case <-timer.C:
		}
	}
	c.Close()
	<-read
}

// channels are streams over a WebSocket. Each message begins with the number of its stream: a byte,
// or where messages are text, a digit before the data in base64.
type channels struct {
	ws   *websocket.Conn
	conn *conn
	text bool
	ends bool // a message of 255 and a stream's number ends the stream

	inputs map[byte]*io.PipeWriter // what is not here is read and dropped
	read   chan struct{}           // closed when nothing more is read

	mu  sync.Mutex // guards writing
	buf []byte
}

const streamEnd = 255

// serve reads until the client is gone.
func (c *channels) serve() {
	go ping(c.ws, c.conn)
	go func() {
		defer close(c.read)
		defer c.conn.end()
		defer func() {
			for _, in := range c.inputs {
				in.CloseWithError(ErrGone) // what is cut off must not look complete
			}
		}()
		for {
			_, message, err := c.ws.NextReader()
			if err == nil {
				err = c.receive(message)
			}
			if err != nil {
				return
			}
		}
	}()
}

// receive passes a message on as it comes in.
func (c *channels) receive(message io.Reader) error {
	var head [1]byte
	if _, err := io.ReadFull(message, head[:]); err != nil {
		return nil // an empty message says nothing
	}
	number := head[0]
	if c.ends && number == streamEnd {
		if _, err := io.ReadFull(message, head[:]); err == nil && c.inputs[head[0]] != nil {
			c.inputs[head[0]].Close()
		}
		return nil
	}
	if c.text {
		number -= '0'
		message = base64.NewDecoder(base64.StdEncoding, message)
	}
	in := c.inputs[number]
	if in == nil {
		return nil
	}
	if _, err := io.Copy(in, message); err != nil && c.conn.isGone() {
		return err
	}
	return nil // what nobody reads any more is dropped
}

// input returns a stream that the client writes. It must be called before serve.
func (c *channels) input(number byte) io.ReadCloser {
	r, w := io.Pipe()
	c.inputs[number] = w
	return r
}

// output returns a stream that the client reads.
func (c *channels) output(number byte) io.Writer { return channel{c, number} }

type channel struct {
	c      *channels
	number byte
}

// Write sends p as messages; nothing is a message too, which some clients wait for.
func (o channel) Write(p []byte) (int, error) {
	written := 0
	for {
		n := min(len(p), chunkMax)
		if err := o.c.send(o.number, p[:n]); err != nil {
			return written, err
		}
		written += n
		if p = p[n:]; len(p) == 0 {
			return written, nil
		}
	}
}

func (c *channels) send(number byte, p []byte) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.text {
		c.buf = base64.StdEncoding.AppendEncode(append(c.buf[:0], '0'+number), p)
		return c.ws.WriteMessage(websocket.TextMessage, c.buf)
	}
	c.buf = append(append(c.buf[:0], number), p...)
	return c.ws.WriteMessage(websocket.BinaryMessage, c.buf)
}
