package streaming

import (
	"encoding/json"
	"io"
	"net/http"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/remotecommand"
	"k8s.io/streaming/pkg/httpstream"

	"github.com/setpoint-dev/setpoint/internal/nodewire"
)

// Streams says which streams of a command a client wants.
type Streams struct {
	Stdin, Stdout, Stderr, TTY bool
}

// Command is a client that runs a command, or is attached to a container.
type Command struct {
	Stdin          io.Reader          // ends when the client says so, fails if it is cut off; nil if not wanted
	Stdout, Stderr io.Writer          // drop what is not wanted
	Sizes          chan nodewire.Size // of the client's terminal, the newest; never closed

	conn   *conn
	stdin  io.Closer // drops what is still typed; nil if that needs nothing
	status func(*metav1.Status) error
	finish func() // lets the client read all that was sent
}

// AcceptCommand upgrades a request for a command. The error is ErrGone, or a Status that the request
// can still be answered with.
func AcceptCommand(w http.ResponseWriter, r *http.Request, want Streams) (*Command, error) {
	switch {
	case IsWebSocket(r):
		return webSocketCommand(w, r, want)
	case isSPDY(r):
		return spdyCommand(w, r, want)
	}
	return nil, errUpgradeRequired()
}

// Gone is closed when the client is.
func (c *Command) Gone() <-chan struct{} { return c.conn.gone }

// Finish tells the client how the command ended, and closes the connection when that was read, or
// when the client has had time enough to.
func (c *Command) Finish(status *metav1.Status) {
	defer c.Close()
	defer c.Expire()()
	if c.status(status) == nil {
		c.dropInput()
		c.finish()
	}
}

// Expire closes the connection after the time that a client may take to read what was sent, so that
// one that reads nothing holds nobody up. The function that it returns calls that off.
func (c *Command) Expire() (stop func() bool) {
	return time.AfterFunc(lingerMax, func() { c.conn.Close() }).Stop
}

// Close closes the connection.
func (c *Command) Close() {
	c.dropInput()
	c.conn.Close()
}

func (c *Command) dropInput() {
	if c.stdin != nil {
		c.stdin.Close()
	}
}

// The subprotocols, the best first.
var (
	commandWebSocket = []string{
		remotecommand.StreamProtocolV5Name, remotecommand.StreamProtocolV4Name, v4Base64,
		"channel.k8s.io", base64Name, "",
	}
	commandSPDY = []string{
		remotecommand.StreamProtocolV4Name, remotecommand.StreamProtocolV3Name,
		remotecommand.StreamProtocolV2Name, remotecommand.StreamProtocolV1Name,
	}
)

const (
	base64Name = "base64.channel.k8s.io"
	v4Base64   = "v4.base64.channel.k8s.io"
)

// The numbers of the streams.
const (
	stdinNumber = iota
	stdoutNumber
	stderrNumber
	errorNumber
	sizeNumber
)

func webSocketCommand(w http.ResponseWriter, r *http.Request, want Streams) (*Command, error) {
	ws, conn, err := upgradeWebSocket(w, r, commandWebSocket)
	if err != nil {
		return nil, err
	}
	protocol := ws.Subprotocol()
	ch := &channels{
		ws: ws, conn: conn,
		text:   protocol == base64Name || protocol == v4Base64,
		ends:   protocol == remotecommand.StreamProtocolV5Name,
		inputs: map[byte]*io.PipeWriter{}, read: make(chan struct{}),
	}
	c := &Command{
		Stdout: io.Discard, Stderr: io.Discard, Sizes: make(chan nodewire.Size, 1), conn: conn,
		status: statusWriter(ch.output(errorNumber), protocol),
	}
	lowest := byte(errorNumber)
	if want.Stderr {
		c.Stderr, lowest = ch.output(stderrNumber), stderrNumber
	}
	if want.Stdout {
		c.Stdout, lowest = ch.output(stdoutNumber), stdoutNumber
	}
	if want.Stdin {
		stdin := ch.input(stdinNumber)
		c.Stdin, c.stdin = stdin, stdin
	}
	sizes := ch.input(sizeNumber)
	go readSizes(sizes, c.Sizes)
	c.finish = func() { linger(ws, conn, ch.read) }
	ch.serve()
	// An empty message tells the client that the streams are there.
	if err := ch.send(lowest, nil); err != nil {
		c.Close()
		return nil, ErrGone
	}
	return c, nil
}

// statusWriter says in a protocol's way how a command ended: as a Status, or before version 4 as the
// text of an error.
func statusWriter(w io.Writer, protocol string) func(*metav1.Status) error {
	switch protocol {
	case remotecommand.StreamProtocolV5Name, remotecommand.StreamProtocolV4Name, v4Base64:
		return func(status *metav1.Status) error {
			text, err := json.Marshal(status)
			if err == nil {
				_, err = w.Write(text)
			}
			return err
		}
	}
	return func(status *metav1.Status) error {
		if status.Status == metav1.StatusSuccess {
			return nil
		}
		_, err := io.WriteString(w, status.Message)
		return err
	}
}

// sizeBytesMax bounds the text of a size, and so what is kept of one that does not end.
const sizeBytesMax = 1 << 10

// readSizes passes on the sizes of a terminal until their stream ends, or is none of sizes. One that
// nobody has taken yet is replaced by the next.
func readSizes(r io.ReadCloser, sizes chan nodewire.Size) {
	defer r.Close()
	text := &io.LimitedReader{R: r}
	for decoder := json.NewDecoder(text); ; {
		var size nodewire.Size
		text.N = sizeBytesMax
		if decoder.Decode(&size) != nil {
			return
		}
		select {
		case <-sizes:
		default:
		}
		sizes <- size // there is room: nobody else sends
	}
}

// spdyCommand waits for the streams that the client opens, one of each type.
func spdyCommand(w http.ResponseWriter, r *http.Request, want Streams) (*Command, error) {
	opened := make(chan spdyStream, 5)
	gone := make(chan struct{})
	streams, conn, protocol, err := upgradeSPDY(w, r, commandSPDY, func(s httpstream.Stream, replied <-chan struct{}) error {
		select {
		case opened <- spdyStream{s, replied}:
			return nil
		case <-gone:
			return ErrGone
		}
	})
	if err != nil {
		return nil, err
	}
	defer close(gone)
	resizes := protocol == remotecommand.StreamProtocolV4Name || protocol == remotecommand.StreamProtocolV3Name
	byType, err := awaitStreams(opened, conn, want, resizes)
	if err != nil {
		streams.Close()
		return nil, err
	}
	c := &Command{Stdout: io.Discard, Stderr: io.Discard, Sizes: make(chan nodewire.Size, 1), conn: conn}
	if s := byType["stdin"]; s != nil && want.Stdin {
		c.Stdin = wholeReader{s, conn}
	}
	if s := byType["stdout"]; s != nil {
		c.Stdout = s
	}
	if s := byType["stderr"]; s != nil {
		c.Stderr = s
	}
	if s := byType["resize"]; s != nil {
		go readSizes(s, c.Sizes)
	}
	c.status = statusWriter(byType["error"], protocol)
	c.finish = func() { endStreams(streams, byType) }
	return c, nil
}

// spdyStream is a stream, and what is closed when the client was told that it is open.
type spdyStream struct {
	httpstream.Stream
	replied <-chan struct{}
}

// awaitStreams returns the streams that the client wants, by type, once all are open.
func awaitStreams(opened <-chan spdyStream, conn *conn, want Streams, resizes bool) (map[string]httpstream.Stream, error) {
	expected := map[string]bool{
		"error": true, "stdin": want.Stdin, "stdout": want.Stdout, "stderr": want.Stderr,
		"resize": want.TTY && resizes,
	}
	missing := 0
	for _, wanted := range expected {
		if wanted {
			missing++
		}
	}
	timer := time.NewTimer(createMax)
	defer timer.Stop()
	byType := map[string]httpstream.Stream{}
	for missing > 0 {
		select {
		case s := <-opened:
			kind := s.Headers().Get("streamType")
			if byType[kind] != nil {
				return nil, ErrGone
			}
			byType[kind] = s.Stream
			if expected[kind] {
				missing--
			}
			select {
			case <-s.replied:
			case <-conn.gone:
				return nil, ErrGone
			}
		case <-conn.gone:
			return nil, ErrGone
		case <-timer.C:
			return nil, ErrGone
		}
	}
	return byType, nil
}

// endStreams ends each stream and gives the client time to read them.
func endStreams(streams httpstream.Connection, byType map[string]httpstream.Stream) {
	var ends sync.WaitGroup
	for _, s := range byType {
		ends.Go(func() { s.Close() })
	}
	ends.Wait()
	timer := time.NewTimer(lingerMax)
	defer timer.Stop()
	select {
	case <-streams.CloseChan():
	case <-timer.C:
	}
	streams.Close()
}
