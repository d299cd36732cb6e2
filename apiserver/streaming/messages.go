package streaming

import (
	"bytes"
	"encoding/base64"
	"net/http"
	"time"

	"github.com/gorilla/websocket"
)

// Form is how an answer is cut into messages.
type Form int

const (
	Bytes Form = iota // as it is written: of a log
	Lines             // a line is a message, without its end: of a watch
)

// The subprotocols of an answer in messages.
const (
	binaryMessages = "binary.k8s.io"
	base64Messages = "base64.binary.k8s.io"
)

// Messages is an http.ResponseWriter whose request becomes a WebSocket with the first byte of an
// answer of 200. Any other answer stays HTTP.
type Messages struct {
	http.ResponseWriter
	request *http.Request
	form    Form
	gone    func() // called when the client is gone

	ws      *websocket.Conn // nil before the upgrade
	conn    *conn
	read    chan struct{}
	refusal error
	rest    []byte // of a line whose end is not there yet
}

// NewMessages wraps the answer to a request. gone is called once the client is.
func NewMessages(w http.ResponseWriter, r *http.Request, form Form, gone func()) *Messages {
	return &Messages{ResponseWriter: w, request: r, form: form, gone: gone}
}

// Upgraded says whether the request has become a WebSocket, or why it could not.
func (m *Messages) Upgraded() (bool, error) { return m.ws != nil, m.refusal }

// WriteHeader begins the answer.
func (m *Messages) WriteHeader(code int) {
	if code != http.StatusOK || m.ws != nil || m.refusal != nil {
		if m.ws == nil && m.refusal == nil {
			m.ResponseWriter.WriteHeader(code)
		}
		return
	}
	known := []string{binaryMessages, base64Messages, ""}
	if m.form == Lines {
		known = []string{""}
		if asked := websocket.Subprotocols(m.request); len(asked) > 0 {
			known = asked[:1] // there is one way, and clients call it differently
		}
	}
	m.ws, m.conn, m.refusal = upgradeWebSocket(m.ResponseWriter, m.request, known)
	if m.refusal != nil {
		return
	}
	m.read = make(chan struct{})
	go ping(m.ws, m.conn)
	go func() { // what the client says is dropped; ends with it
		defer close(m.read)
		defer m.gone()
		defer m.conn.end()
		for {
			if _, _, err := m.ws.NextReader(); err != nil {
				return
			}
		}
	}()
}

// Write sends messages.
func (m *Messages) Write(p []byte) (int, error) {
	if m.ws == nil && m.refusal == nil {
		m.WriteHeader(http.StatusOK)
	}
	if m.refusal != nil {
		return 0, m.refusal
	}
	if m.form == Bytes {
		return len(p), m.send(p)
	}
	m.rest = append(m.rest, p...)
	for {
		line, rest, ok := bytes.Cut(m.rest, []byte("\n"))
		if !ok {
			m.rest = bytes.Clone(line)
			return len(p), nil
		}
		if err := m.send(line); err != nil {
			return 0, err
		}
		m.rest = rest
	}
}

func (m *Messages) send(p []byte) error {
	switch {
	case m.form == Lines:
		return m.ws.WriteMessage(websocket.TextMessage, p)
	case m.ws.Subprotocol() == base64Messages:
		return m.ws.WriteMessage(websocket.TextMessage, base64.StdEncoding.AppendEncode(nil, p))
	default:
		return m.ws.WriteMessage(websocket.BinaryMessage, p)
	}
}

// FlushError has nothing to do: a message is sent at once.
func (m *Messages) FlushError() error { return m.refusal }

// Flush is FlushError for those who do not ask.
func (m *Messages) Flush() {}

// SetWriteDeadline bounds the next messages.
func (m *Messages) SetWriteDeadline(at time.Time) error {
	if m.ws == nil {
		return http.ErrNotSupported
	}
	return m.ws.SetWriteDeadline(at)
}

// Close ends the WebSocket, if there is one, so that the client reads all that was sent.
func (m *Messages) Close() {
	if m.ws != nil {
		linger(m.ws, m.conn, m.read)
	}
}
