package embedded

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"iter"
	"time"

	"github.com/setpoint-dev/setpoint/store"
	"github.com/setpoint-dev/setpoint/store/internal/core"
)

// A frame is the unit that is written and checked, in the log and in checkpoints alike:
//
//	magic 4 | CRC-32C of what follows 4 | length of the body 4 | number 8 | body
//
// Integers are little-endian. Numbers rise by one from frame to frame, so a missing one shows.
const frameHead = 4 + 4 + 4 + 8

// The magic starts with a byte that no UTF-8 text has, so no JSON value looks like a frame.
// It ends with the format.
var magic = []byte{0xf5, 'S', 'P', '2'}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// CorruptError says that what was once written to a file cannot be read back. Nothing of the
// store is served then.
type CorruptError struct {
	File   string
	Offset int64
	Err    error
}

func (e *CorruptError) Error() string {
	return fmt.Sprintf("store: %s is damaged at byte %d: %v", e.File, e.Offset, e.Err)
}

// Unwrap returns what was found.
func (e *CorruptError) Unwrap() error { return e.Err }

// beginFrame appends a frame's head; the body follows, and then endFrame.
func beginFrame(dst []byte, number uint64) []byte {
	dst = append(dst, magic...)
	dst = append(dst, make([]byte, 8)...)
	return binary.LittleEndian.AppendUint64(dst, number)
}

// endFrame fills in the head of the frame that starts at the offset and is the last one in buf.
func endFrame(buf []byte, start int) {
	frame := buf[start:]
	binary.LittleEndian.PutUint32(frame[8:], uint32(len(frame)-frameHead))
	binary.LittleEndian.PutUint32(frame[4:], crc32.Checksum(frame[8:], castagnoli))
}

// checkMagic says why no frame begins with these bytes, if none does.
func checkMagic(head []byte) error {
	switch {
	case bytes.Equal(head[:4], magic):
		return nil
	case bytes.Equal(head[:3], magic[:3]) && head[3] >= '0' && head[3] <= '9':
		return fmt.Errorf("the format is %c, this program reads %c", head[3], magic[3])
	}
	return errors.New("no frame starts here")
}

// parseFrame returns the first frame in data.
func parseFrame(data []byte) (number uint64, body []byte, err error) {
	if len(data) < frameHead {
		return 0, nil, fmt.Errorf("%d bytes are too few for a frame", len(data))
	}
	if err := checkMagic(data); err != nil {
		return 0, nil, err
	}
	n := uint64(binary.LittleEndian.Uint32(data[8:]))
	if n > uint64(len(data)-frameHead) {
		return 0, nil, fmt.Errorf("frame of %d bytes is cut off after %d", n, len(data)-frameHead)
	}
	data = data[:frameHead+n]
	got, want := crc32.Checksum(data[8:], castagnoli), binary.LittleEndian.Uint32(data[4:])
	if got != want {
		return 0, nil, fmt.Errorf("checksum is %08x, recorded as %08x", got, want)
	}
	return binary.LittleEndian.Uint64(data[12:]), data[frameHead:], nil
}

// findFrame returns the offset of the first whole frame in data with at least the number.
func findFrame(data []byte, number uint64) (int, bool) {
	for at := 0; ; at++ {
		i := bytes.Index(data[at:], magic)
		if i < 0 {
			return 0, false
		}
		at += i
		if n, _, err := parseFrame(data[at:]); err == nil && n >= number {
			return at, true
		}
	}
}

// appendBatch appends the frame of a group of commits that are decided together.
func appendBatch(
	dst []byte, number uint64, now time.Time, changes iter.Seq[core.Change],
) []byte {
	start := len(dst)
	dst = beginFrame(dst, number)
	dst = binary.AppendVarint(dst, now.UnixNano())
	i, held := 0, record{}
	for ch := range changes {
		if i > 0 {
			held.place = placeOf(i-1, false)
			dst = appendRecord(dst, &held)
		}
		held = record{key: ch.Key, revision: ch.Revision, number: uint64(ch.Type), origin: ch.Origin, value: ch.Value}
		i++
	}
	if i > 0 {
		held.place = placeOf(i-1, true)
		dst = appendRecord(dst, &held)
	}
	endFrame(dst, start)
	return dst
}

// parseBatch reads the body of a batch's frame back. The changes share no memory with it.
func parseBatch(body []byte, yield func(core.Change) error) (time.Time, error) {
	p := parser{rest: body}
	at := time.Unix(0, p.varint())
	for len(p.rest) > 0 && p.err == nil {
		r := p.record(nil)
		if p.err != nil {
			break
		}
		if err := yield(r.change()); err != nil {
			return at, err
		}
	}
	return at, p.err
}

// change is what a record of the log says.
func (r *record) change() core.Change {
	return core.Change{
		Revision: r.revision, Type: store.EventType(r.number), Key: r.key, Value: bytes.Clone(r.value), Origin: r.origin,
	}
}

// parser reads a frame's body; the first error sticks.
type parser struct {
	rest []byte
	err  error
}

var errBody = errors.New(
	"the body does not parse, though its checksum is right: it was written by another version")

func (p *parser) uvarint() uint64 {
	v, n := binary.Uvarint(p.rest)
	if n <= 0 {
		p.fail()
		return 0
	}
	p.rest = p.rest[n:]
	return v
}

func (p *parser) varint() int64 {
	v, n := binary.Varint(p.rest)
	if n <= 0 {
		p.fail()
		return 0
	}
	p.rest = p.rest[n:]
	return v
}

func (p *parser) bytes() []byte {
	return p.take(p.uvarint())
}

func (p *parser) fail() { p.rest, p.err = nil, errBody }
