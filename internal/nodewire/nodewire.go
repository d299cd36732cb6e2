// Package nodewire is how an API server and the agent of a node speak about one command: in frames,
// over a stream in each direction. The server sends Start, when its own client is ready, and then
// input; the agent sends output, and as its last frame Done.
//
//	kind (1 byte)  length (4 bytes, big endian)  payload
//
// A Writer may be used by several goroutines, so that two outputs can share a stream; a Reader by
// one. Whoever does not read makes the other wait, so nothing is buffered without bound.
package nodewire

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"sync"
)

// Kind says what a frame is.
type Kind byte

// The frames. The server sends the first four.
const (
	Start    Kind = iota + 1 // the client is there: begin
	Stdin                    // input
	StdinEnd                 // there is no more input
	Resize                   // the terminal's Size, as JSON
	Stdout                   // output
	Stderr                   // output of the other kind
	Done                     // how it ended: a Result, as JSON
)

// PayloadMax bounds a frame: large enough that frames cost nothing beside their content, and small
// enough that each reader can keep one.
const PayloadMax = 32 << 10

// Size is that of a terminal, in characters. It is spelled as clients spell it.
type Size struct {
	Width  uint16
	Height uint16
}

// Result is how a command ended.
type Result struct {
	ExitCode int32
	Error    string // why it did not run, or not to its end; empty otherwise
}

// Writer writes frames.
type Writer struct {
	mu  sync.Mutex
	to  io.Writer
	buf []byte
}

// NewWriter returns a Writer of frames to w, each with one Write.
func NewWriter(w io.Writer) *Writer { return &Writer{to: w} }

// Write writes data as one frame, or as several if it is long.
func (w *Writer) Write(kind Kind, data []byte) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	for {
		n := min(len(data), PayloadMax)
		w.buf = append(w.buf[:0], byte(kind))
		w.buf = binary.BigEndian.AppendUint32(w.buf, uint32(n))
		w.buf = append(w.buf, data[:n]...)
		if _, err := w.to.Write(w.buf); err != nil {
			return err
		}
		if data = data[n:]; len(data) == 0 {
			return nil
		}
	}
}

// WriteJSON writes a document as one frame.
func (w *Writer) WriteJSON(kind Kind, doc any) error {
	text, err := json.Marshal(doc)
	if err != nil {
		return err
	}
	return w.Write(kind, text)
}

// Stream returns a writer whose bytes become frames of one kind.
func (w *Writer) Stream(kind Kind) io.Writer { return stream{w, kind} }

type stream struct {
	w    *Writer
	kind Kind
}

func (s stream) Write(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	if err := s.w.Write(s.kind, p); err != nil {
		return 0, err
	}
	return len(p), nil
}

// Reader reads frames.
type Reader struct {
	from io.Reader
	buf  []byte
}

// NewReader returns a Reader of the frames in r.
func NewReader(r io.Reader) *Reader { return &Reader{from: r, buf: make([]byte, PayloadMax)} }

// Next returns the next frame. Its payload is good until the next call. The error is io.EOF at the
// end of a stream that is whole.
func (r *Reader) Next() (Kind, []byte, error) {
	var head [5]byte
	if _, err := io.ReadFull(r.from, head[:]); err != nil {
		return 0, nil, err
	}
	n := binary.BigEndian.Uint32(head[1:])
	if n > PayloadMax {
		return 0, nil, fmt.Errorf("nodewire: a frame of %d bytes, at most %d are allowed", n, PayloadMax)
	}
	if _, err := io.ReadFull(r.from, r.buf[:n]); err != nil {
		return 0, nil, fmt.Errorf("nodewire: a frame was cut off: %w", err)
	}
	return Kind(head[0]), r.buf[:n], nil
}
