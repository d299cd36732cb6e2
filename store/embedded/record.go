package embedded

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"

	"github.com/setpoint-dev/setpoint/store"
)

// A record is one object in a frame: a change in the log, an entry in a checkpoint.
//
//	CRC-32C of the head 4 | head | value
//	head: place | resource | path | revision | number | origin | CRC-32C of the value 4 | its length
//
// The number is a change's type, or the revision that an entry was created in. The frame's checksum
// covers all of it; those of a record say, when that is wrong, which object it is about, and its place
// whether there were others.
type record struct {
	place    place // in a batch
	key      store.Key
	revision store.Revision
	number   uint64
	origin   string
	value    []byte // shares the frame's memory
}

// place is where a record stands in its batch: twice its number, from zero, and one more if it is the
// last.
type place uint64

func placeOf(i int, last bool) place {
	if last {
		return place(2*i + 1)
	}
	return place(2 * i)
}

func (p place) last() bool  { return p%2 == 1 }
func (p place) number() int { return int(p / 2) }

func appendRecord(dst []byte, r *record) []byte {
	at := len(dst)
	dst = append(dst, 0, 0, 0, 0)
	dst = binary.AppendUvarint(dst, uint64(r.place))
	dst = appendString(dst, r.key.Resource)
	dst = appendString(dst, r.key.Path)
	dst = binary.AppendUvarint(dst, uint64(r.revision))
	dst = binary.AppendUvarint(dst, r.number)
	dst = appendString(dst, r.origin)
	dst = binary.LittleEndian.AppendUint32(dst, crc32.Checksum(r.value, castagnoli))
	dst = binary.AppendUvarint(dst, uint64(len(r.value)))
	binary.LittleEndian.PutUint32(dst[at:], crc32.Checksum(dst[at+4:], castagnoli))
	return append(dst, r.value...)
}

func appendString(dst []byte, s string) []byte {
	return append(binary.AppendUvarint(dst, uint64(len(s))), s...)
}

// record reads one of a frame whose checksum is right.
func (p *parser) record(names interned) record {
	r, _, _, n := p.head(names)
	r.value = p.take(n)
	return r
}

// head reads up to the value, and returns what is recorded of that.
func (p *parser) head(names interned) (r record, headSum, valueSum uint32, valueBytes uint64) {
	headSum = p.uint32()
	r.place = place(p.uvarint())
	r.key.Resource = names.name(p.bytes())
	r.key.Path = string(p.bytes())
	r.revision = store.Revision(p.uvarint())
	r.number = p.uvarint()
	r.origin = string(p.bytes())
	valueSum = p.uint32()
	return r, headSum, valueSum, p.uvarint()
}

// checked reads a record whose frame is damaged. It returns an error for the value if only that is,
// and then the record without it; ok says that a record is there at all.
func (p *parser) checked(names interned) (r record, damage error, ok bool) {
	start := p.rest
	r, headSum, valueSum, n := p.head(names)
	if p.err != nil {
		return r, nil, false
	}
	head := start[4 : len(start)-len(p.rest)]
	if crc32.Checksum(head, castagnoli) != headSum {
		return r, nil, false
	}
	if n > uint64(len(p.rest)) {
		damage = fmt.Errorf("%d of its %d bytes are there", len(p.rest), n)
		p.rest = nil
		return r, damage, true
	}
	r.value = p.take(n)
	if sum := crc32.Checksum(r.value, castagnoli); sum != valueSum {
		damage = fmt.Errorf("its checksum is %08x, recorded as %08x", sum, valueSum)
	}
	return r, damage, true
}

// interned has one string for all keys of a resource.
type interned map[string]string

func (in interned) name(b []byte) string {
	if s, ok := in[string(b)]; ok {
		return s
	}
	s := string(b)
	if in != nil {
		in[s] = s
	}
	return s
}

func (p *parser) uint32() uint32 {
	b := p.take(4)
	if b == nil {
		return 0
	}
	return binary.LittleEndian.Uint32(b)
}

func (p *parser) take(n uint64) []byte {
	if n > uint64(len(p.rest)) {
		p.fail()
		return nil
	}
	b := p.rest[:n:n]
	p.rest = p.rest[n:]
	return b
}
