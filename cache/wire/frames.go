package wire

import (
	"bytes"
	"encoding/binary"
	"io"
	"math/bits"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// framer finds the ends of JSON objects that follow each other.
type framer struct{ runtime.Framer }

// NewFrameReader implements runtime.Framer. Each frame is what lies between the outermost braces.
func (framer) NewFrameReader(r io.ReadCloser) io.ReadCloser { return &frames{source: r} }

const (
	roomMin = 4 << 10
	// roomKept bounds the buffer that a quiet watch keeps after a large frame.
	roomKept = 64 << 10
)

// frames reads frame by frame. One that does not fit into what Read is given is continued by the
// next Read, as runtime.Framer has it.
type frames struct {
	source io.ReadCloser
	room   []byte // empty, where buf is a part of
	buf    []byte // read and not yet given away
	frame  []byte // the rest of a frame that was begun; part of buf
	begun  bool
}

func (f *frames) Close() error { return f.source.Close() }

func (f *frames) Read(p []byte) (int, error) {
	if !f.begun {
		frame, err := f.next()
		if err != nil {
			return 0, err
		}
		f.frame, f.begun = frame, true
	}
	n := copy(p, f.frame)
	if f.frame = f.frame[n:]; len(f.frame) > 0 {
		return n, io.ErrShortBuffer
	}
	f.begun = false
	return n, nil
}

// next returns the next frame, which is good until it is called again.
func (f *frames) next() ([]byte, error) {
	var s boundary
	for {
		if end := s.find(f.buf); end > 0 {
			frame := f.buf[:end]
			f.buf = f.buf[end:]
			return frame, nil
		}
		f.makeRoom()
		n, err := f.source.Read(f.buf[len(f.buf):cap(f.buf)])
		f.buf = f.buf[:len(f.buf)+n]
		if n == 0 && err != nil {
			if err == io.EOF && len(bytes.TrimSpace(f.buf)) > 0 {
				err = io.ErrUnexpectedEOF
			}
			return nil, err
		}
	}
}

// makeRoom has the buffer begin with what is left in it, and have room behind that. What was given
// away is no longer wanted, so its place can be used again.
func (f *frames) makeRoom() {
	if cap(f.buf) > len(f.buf) && len(f.buf) > 0 {
		return
	}
	size := max(roomMin, 2*len(f.buf))
	if cap(f.room) < size || cap(f.room) > roomKept && len(f.buf) == 0 {
		f.room = make([]byte, 0, size)
	}
	f.buf = append(f.room, f.buf...)
}

// boundary looks for the end of an object, across reads.
type boundary struct {
	at     int // how far it has looked
	depth  int
	quoted bool
}

// find returns where the object ends that the text begins with, or 0 if it does not end yet. The
// text is that of the last call, with more behind it.
func (b *boundary) find(text []byte) int {
	for b.at < len(text) {
		if b.quoted {
			if !b.closeQuote(text) {
				return 0
			}
			continue
		}
		c := text[b.at]
		b.at++
		switch c {
		case '"':
			b.quoted = true
		case '{', '[':
			b.depth++
		case '}', ']':
			if b.depth--; b.depth <= 0 {
				return b.at
			}
		}
	}
	return 0
}

// closeQuote goes behind the quote that ends a string, if it is there.
func (b *boundary) closeQuote(text []byte) bool {
	for b.at < len(text) {
		if b.at+8 <= len(text) {
			n := special(binary.LittleEndian.Uint64(text[b.at:]))
			if b.at += n; n == 8 {
				continue
			}
		}
		switch text[b.at] {
		case '"':
			b.at++
			b.quoted = false
			return true
		case '\\':
			if b.at+1 >= len(text) {
				return false
			}
			b.at++
		}
		b.at++
	}
	return false
}

// special returns which of eight bytes is the first quote or backslash, 8 if none is.
func special(eight uint64) int {
	const ones = 0x0101010101010101
	quotes, slashes := eight^(ones*'"'), eight^(ones*'\\')
	// The lowest zero byte of a word is where subtracting one from each borrows first.
	zeros := ((quotes - ones) &^ quotes) | ((slashes - ones) &^ slashes)
	return bits.TrailingZeros64(zeros&(ones<<7)) / 8
}

// splitEvent takes a frame apart that is written as servers write it: the type, then the object.
func splitEvent(frame []byte) (kind string, object []byte, ok bool) {
	frame = bytes.TrimSpace(frame)
	rest, ok1 := bytes.CutPrefix(frame, []byte(`{"type":"`))
	word, object, ok2 := bytes.Cut(rest, []byte(`","object":`))
	if !ok1 || !ok2 || !plain(word) || len(object) < 2 || object[0] != '{' {
		return "", nil, false
	}
	object, ok = bytes.CutSuffix(object, []byte("}"))
	return eventName(word), object, ok
}

// eventName spares the usual types an allocation.
func eventName(word []byte) string {
	for _, name := range [...]string{"ADDED", "MODIFIED", "DELETED", "BOOKMARK"} {
		if string(word) == name {
			return name
		}
	}
	return string(word)
}

// kindOf reads the kind of an object that is written as servers write it: kind and apiVersion come
// first, in either order.
func kindOf(data []byte) (gvk schema.GroupVersionKind, ok bool) {
	rest, ok := bytes.CutPrefix(bytes.TrimLeft(data, " \n"), []byte("{"))
	if !ok {
		return gvk, false
	}
	var kind, version []byte
	for range 2 {
		var name, value []byte
		if name, value, rest, ok = stringMember(rest); !ok {
			return gvk, false
		}
		switch string(name) {
		case "kind":
			kind = value
		case "apiVersion":
			version = value
		}
		rest = bytes.TrimPrefix(rest, []byte(","))
	}
	if len(kind) == 0 || len(version) == 0 {
		return gvk, false
	}
	gv, err := schema.ParseGroupVersion(string(version))
	return gv.WithKind(string(kind)), err == nil
}

// stringMember reads `"name":"value"`.
func stringMember(text []byte) (name, value, rest []byte, ok bool) {
	text, ok = bytes.CutPrefix(text, []byte(`"`))
	name, text, ok1 := bytes.Cut(text, []byte(`":"`))
	value, rest, ok2 := bytes.Cut(text, []byte(`"`))
	return name, value, rest, ok && ok1 && ok2 && plain(name) && plain(value)
}

// plain says whether a string stands for itself.
func plain(text []byte) bool { return !bytes.ContainsAny(text, `\"`) }
