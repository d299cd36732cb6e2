// Package pack holds texts that look alike in little memory: each is kept as what differs from
// texts seen before.
//
// The objects of a kind have the same member names in the same order, and most values in common.
// A Packer therefore learns a sample of the first texts that look like nothing it knows, and packs
// every text by a Lempel-Ziv code over the sample and the text itself. Packing takes about a
// microsecond a kilobyte, unpacking a fraction of that: it is copies and nothing else.
package pack

import (
	"encoding/binary"
	"errors"
	"math/bits"
	"sync"
	"sync/atomic"
)

const (
	// sampleMax bounds what is learned. All of it is in reach of a match at the end of it, which is
	// what offsets of two bytes allow.
	sampleMax = 32 << 10
	// learnMax bounds one text that is learned, so that a sample is of several.
	learnMax = sampleMax / 4
	// offsetMax is the furthest that a match may lie behind.
	offsetMax = 1<<16 - 1
	// matchMin is the shortest match: shorter ones cost as much as the text.
	matchMin = 5
	hashBits = 12
)

// Text is a packed text. It can be unpacked only by the Packer that made it. The zero value is an
// empty text.
type Text string

// Packer packs texts. The zero value is ready for use, by many goroutines. It takes little more
// than its sample.
type Packer struct {
	sample atomic.Pointer[[]byte] // only ever grows

	mu    sync.Mutex
	known *[1 << hashBits]uint16 // where in the sample a hash was first seen, plus one
}

// encoder is what one text is packed with.
type encoder struct {
	table [1 << hashBits]uint32 // where in the text a hash was last seen, plus one
	out   []byte
}

var encoders = sync.Pool{New: func() any { return new(encoder) }}

// Pack packs a text, and learns from it if it looks like nothing that is known.
func (p *Packer) Pack(text []byte) Text {
	p.mu.Lock()
	defer p.mu.Unlock()
	e := encoders.Get().(*encoder)
	defer encoders.Put(e)
	sample := p.learned()
	e.encode(text, sample, p.known)
	if len(e.out) > len(text)/16 && len(text) <= learnMax && len(sample)+len(text) <= sampleMax {
		p.learn(sample, text)
		e.encode(text, p.learned(), p.known)
	}
	packed := Text(e.out)
	if cap(e.out) > 4*sampleMax { // one large text is no reason to hold so much for good
		e.out = nil
	}
	return packed
}

func (p *Packer) learned() []byte {
	if s := p.sample.Load(); s != nil {
		return *s
	}
	return nil
}

// learn adds a text to the sample. What was packed before needs only what was there before.
func (p *Packer) learn(sample, text []byte) {
	if p.known == nil {
		p.known = new([1 << hashBits]uint16)
	}
	from := len(sample)
	sample = append(append(make([]byte, 0, from+len(text)), sample...), text...)
	for i := from; i+8 <= len(sample); i++ {
		// The first of several equal places has the longest match.
		if at := &p.known[hash(sample[i:])]; *at == 0 {
			*at = uint16(i) + 1
		}
	}
	p.sample.Store(&sample)
}

// encode leaves in out: the lengths of the sample and of the text, and then, again and again, the
// length of a literal, the literal, the length of a match, and how far behind it lies, as if the
// text stood behind the sample.
func (e *encoder) encode(text, sample []byte, known *[1 << hashBits]uint16) {
	clear(e.table[:])
	out := binary.AppendUvarint(e.out[:0], uint64(len(sample)))
	out = binary.AppendUvarint(out, uint64(len(text)))
	literal := 0
	for i := 0; i+8 <= len(text); {
		h := hash(text[i:])
		var n, behind int
		if at := int(e.table[h]); at > 0 {
			n, behind = common(text[at-1:], text[i:]), i-(at-1)
		} else if known != nil && known[h] > 0 {
			at := int(known[h])
			n, behind = common(sample[at-1:], text[i:]), len(sample)+i-(at-1)
		}
		e.table[h] = uint32(i) + 1
		if n < matchMin || behind > offsetMax {
			i++
			continue
		}
		out = append(binary.AppendUvarint(out, uint64(i-literal)), text[literal:i]...)
		out = binary.AppendUvarint(out, uint64(n))
		out = binary.LittleEndian.AppendUint16(out, uint16(behind))
		i += n
		literal = i
	}
	e.out = append(binary.AppendUvarint(out, uint64(len(text)-literal)), text[literal:]...)
}

// hash is of the first five bytes of at least eight.
func hash(b []byte) uint32 {
	return uint32((binary.LittleEndian.Uint64(b) << 24 * 889523592379) >> (64 - hashBits))
}

// common is how many bytes two texts have in common at their beginnings.
func common(a, b []byte) int {
	n, end := 0, min(len(a), len(b))
	for end-n >= 8 {
		if x := binary.LittleEndian.Uint64(a[n:]) ^ binary.LittleEndian.Uint64(b[n:]); x != 0 {
			return n + bits.TrailingZeros64(x)/8
		}
		n += 8
	}
	for n < end && a[n] == b[n] {
		n++
	}
	return n
}

var errBroken = errors.New("pack: this text was not packed by this packer")

// Unpack appends the text to dst.
// Possible errors: the text is of another packer.
func (p *Packer) Unpack(dst []byte, t Text) ([]byte, error) {
	if t == "" {
		return dst, nil
	}
	r := reader{rest: string(t)}
	base, size := r.length(), r.length()
	sample := p.learned()
	if base > len(sample) || size < 0 || r.bad {
		return dst, errBroken
	}
	start := len(dst)
	dst = grow(dst, size)
	for !r.bad {
		dst = append(dst, r.take(r.length())...)
		if r.rest == "" {
			break
		}
		n, behind := r.length(), r.offset()
		if n > size-(len(dst)-start) { // a few bytes can say that much follows: no more than was said at first
			return dst, errBroken
		}
		from := len(dst) - behind // in dst, if it does not lie before its start
		if over := start - from; over > 0 {
			if over > base {
				return dst, errBroken
			}
			m := min(n, over)
			dst = append(dst, sample[base-over:base-over+m]...)
			n, from = n-m, start
		}
		dst = repeat(dst, from, n)
	}
	if r.bad || len(dst)-start != size {
		return dst, errBroken
	}
	return dst, nil
}

// repeat appends n bytes from a place before the end, which they may run into.
func repeat(dst []byte, from, n int) []byte {
	for n > 0 {
		if from >= len(dst) {
			return dst
		}
		m := min(n, len(dst)-from)
		dst = append(dst, dst[from:from+m]...)
		from, n = from+m, n-m
	}
	return dst
}

func grow(dst []byte, n int) []byte {
	if cap(dst)-len(dst) >= n {
		return dst
	}
	return append(make([]byte, 0, len(dst)+n), dst...)
}

// reader reads what encode has written; bad is set when there is less.
type reader struct {
	rest string
	bad  bool
}

func (r *reader) length() int {
	n, shift := uint64(0), 0
	for i := range len(r.rest) {
		b := r.rest[i]
		n |= uint64(b&0x7f) << shift
		if shift += 7; b < 0x80 {
			r.rest = r.rest[i+1:]
			if n > 1<<31 {
				break
			}
			return int(n)
		}
		if shift > 35 {
			break
		}
	}
	r.bad, r.rest = true, ""
	return 0
}

func (r *reader) take(n int) string {
	if n > len(r.rest) {
		r.bad, n = true, len(r.rest)
	}
	taken := r.rest[:n]
	r.rest = r.rest[n:]
	return taken
}

func (r *reader) offset() int {
	b := r.take(2)
	if r.bad {
		return 0
	}
	return int(b[0]) | int(b[1])<<8
}
