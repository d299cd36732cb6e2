package schema

import (
	"encoding/base64"
	"fmt"
	"math"
	"strconv"
	"strings"
	"sync"
	"time"
	"unsafe"

	"google.golang.org/protobuf/encoding/protowire"
)

// HasProto says whether objects of the schema have a protobuf form. Those that are declared at run
// time have none.
func (s *Schema) HasProto() bool { return len(s.root().message) > 0 }

// AppendProto appends an object, given as its canonical JSON, as the message that goes inside an
// envelope: byte for byte what upstream's encoder makes of it. The object's apiVersion and kind are
// not part of it. The schema must have a protobuf form; an error says that the text is not canonical.
func (s *Schema) AppendProto(dst, canonical []byte) ([]byte, error) {
	e := protoEncoders.Get().(*protoEncoder)
	defer e.free()
	e.src = unsafe.String(unsafe.SliceData(canonical), len(canonical)) // read here, and not kept
	root := e.index(s.root())
	if e.bad || e.pos != len(e.src) {
		return dst, fmt.Errorf("not canonical JSON: %w", syntaxError(canonical))
	}
	e.structure(s.root(), root)
	if e.err != nil {
		return dst, e.err
	}
	return append(dst, e.out[e.at:]...), nil
}

// protoEncoder writes in two passes. The first finds where each value stands in the text; the
// second writes them back to front, as a message's length goes before it and is known after it.
type protoEncoder struct {
	scanner
	nodes []node
	slots []int32 // for each field of the structs under way: the node of its value, or noNode

	out []byte // filled from its end
	at  int    // where what was written begins
	err error  // the first
}

// node is a value in the text. Those of a struct, a list or a map are linked from last to first.
type node struct {
	start, end int32
	field      int32 // of a struct
	key        string
	last, prev int32
}

const noNode = -1

var protoEncoders = sync.Pool{New: func() any { return new(protoEncoder) }}

// nodesMax and outMax bound what one huge object leaves to the next ones.
const (
	nodesMax = 16 << 10
	outMax   = 256 << 10
)

func (e *protoEncoder) free() {
	if cap(e.nodes) > nodesMax || cap(e.out) > outMax || cap(e.scratch) > scratchMax {
		return
	}
	clear(e.nodes)
	*e = protoEncoder{
		scanner: scanner{scratch: e.scratch},
		nodes:   e.nodes[:0], slots: e.slots[:0], out: e.out, at: len(e.out),
	}
	protoEncoders.Put(e)
}

// index reads the value at hand, which is of a type, and returns its node.
func (e *protoEncoder) index(t *Type) int32 {
	c := e.space()
	at := int32(len(e.nodes))
	e.nodes = append(e.nodes, node{start: int32(e.pos), last: noNode, prev: noNode})
	switch {
	case c == '{' && t.Kind == Struct:
		e.indexStruct(t, at)
	case c == '{' && t.Kind == Map:
		e.enter()
		for first := true; e.more('}', first); first = false {
			key := e.key()
			e.nodes[e.child(at, t.Elem)].key = key
		}
	case c == '[' && t.Kind == List:
		e.indexItems(t.Elem, at)
	case c == '[' && t.proto == protoOrArray:
		e.indexItems(t, at)
	case c == '[' && t.proto == protoOrStrings:
		e.indexItems(stringType, at)
	default:
		e.skip()
	}
	e.nodes[at].end = int32(e.pos)
	return at
}

func (e *protoEncoder) indexStruct(t *Type, at int32) {
	e.enter()
	for first := true; e.more('}', first); first = false {
		i := t.find(e.key())
		if i < 0 {
			e.skip()
			continue
		}
		e.nodes[e.child(at, t.Fields[i].Type)].field = int32(i)
	}
}

func (e *protoEncoder) indexItems(elem *Type, at int32) {
	e.enter()
	for first := true; e.more(']', first); first = false {
		e.child(at, elem)
	}
}

// child reads a value inside that of a node.
func (e *protoEncoder) child(parent int32, t *Type) int32 {
	at := e.index(t)
	e.nodes[at].prev = e.nodes[parent].last
	e.nodes[parent].last = at
	return at
}

// structure writes the fields of a struct; at may be noNode, for the zero value.
func (e *protoEncoder) structure(t *Type, at int32) {
	base := len(e.slots)
	for range t.Fields {
		e.slots = append(e.slots, noNode)
	}
	if at != noNode {
		for kid := e.nodes[at].last; kid != noNode; kid = e.nodes[kid].prev {
			if slot := &e.slots[base+int(e.nodes[kid].field)]; *slot == noNode {
				*slot = kid // of duplicates the last counts
			}
		}
	}
	e.message(t, t.message, base)
	e.slots = e.slots[:base]
}

// message writes a struct, or an embedded part of it, whose fields' nodes are in the slots from base.
func (e *protoEncoder) message(t *Type, numbers []wire, base int) {
	for n := len(numbers) - 1; n > 0; n-- {
		switch w := numbers[n]; {
		case w.inline != nil:
			mark := e.mark()
			e.message(t, w.inline, base)
			e.prefix(n, mark)
		case w.field != noField:
			e.field(&t.Fields[w.field], n, e.slots[base+w.field])
		}
	}
}

// field writes what a field has under the number n. What is not there is written all the same if a
// Go value would be.
func (e *protoEncoder) field(f *Field, n int, at int32) {
	t := f.Type
	if at != noNode && e.text(at) == "null" {
		at = noNode
	}
	switch {
	case at == noNode && (f.Pointer || t.Kind == Bytes || t.Kind == List || t.Kind == Map):
	case t.Kind == List && !t.wrapped:
		for kid := e.nodes[at].last; kid != noNode; kid = e.nodes[kid].prev {
			e.value(t.Elem, n, kid)
		}
	case t.Kind == Map:
		for kid := e.nodes[at].last; kid != noNode; kid = e.nodes[kid].prev {
			mark := e.mark()
			e.value(t.Elem, 2, kid)
			e.string(1, e.nodes[kid].key)
			e.prefix(n, mark)
		}
	default:
		e.value(t, n, at)
	}
}

// value writes one value under the number n; at may be noNode, for the zero value.
func (e *protoEncoder) value(t *Type, n int, at int32) {
	text := ""
	if at != noNode {
		text = e.text(at)
	}
	if text == "null" {
		text, at = "", noNode
	}
	switch {
	case t.proto != 0:
		e.formed(t, n, at, text)
	case t.Kind == Bool:
		e.varint(n, protowire.EncodeBool(text == "true"))
	case t.Kind == Int32 || t.Kind == Int64:
		e.varint(n, uint64(e.integer(text)))
	case t.Kind == String:
		e.string(n, e.unquoted(at))
	case t.Kind == Bytes && at == noNode: // as a map's value
	case t.Kind == Bytes:
		e.base64(n, e.unquoted(at))
	default:
		mark := e.mark()
		e.inner(t, at, text)
		e.prefix(n, mark)
	}
}

// inner writes the content of a value that is a message.
func (e *protoEncoder) inner(t *Type, at int32, text string) {
	switch t.Kind {
	case Struct:
		if text != "" && text[0] != '{' {
			e.fail(t, text)
			return
		}
		e.structure(t, at)
	case List: // wrapped
		if at != noNode {
			for kid := e.nodes[at].last; kid != noNode; kid = e.nodes[kid].prev {
				e.value(t.Elem, 1, kid)
			}
		}
	case Quantity:
		if at == noNode {
			e.string(1, "0")
		} else {
			e.string(1, e.unquoted(at))
		}
	case IntOrString:
		e.intOrString(at, text)
	case Time, MicroTime:
		if at != noNode {
			e.time(t, e.unquoted(at))
		}
	case Any:
		if text != "" {
			e.string(1, text)
		}
	}
}

func (e *protoEncoder) intOrString(at int32, text string) {
	if text != "" && text[0] == '"' {
		e.string(3, e.unquoted(at))
		e.varint(2, 0)
		e.varint(1, 1)
		return
	}
	e.string(3, "")
	e.varint(2, uint64(e.integer(text)))
	e.varint(1, 0)
}

func (e *protoEncoder) time(t *Type, text string) {
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		e.fail(t, text)
		return
	}
	e.varint(2, uint64(at.Nanosecond()))
	e.varint(1, uint64(at.Unix()))
}

// formed writes a value that protobuf has not as JSON has it.
func (e *protoEncoder) formed(t *Type, n int, at int32, text string) {
	if t.proto == protoDouble {
		f, err := strconv.ParseFloat(text, 64)
		if err != nil {
			e.fail(t, text)
		}
		e.grow(8)
		e.at -= 8
		protowire.AppendFixed64(e.out[e.at:e.at], math.Float64bits(f))
		e.tag(n, protowire.Fixed64Type)
		return
	}
	mark := e.mark()
	switch {
	case text == "":
	case text == "true" || text == "false":
		e.varint(1, protowire.EncodeBool(text == "true"))
	case text[0] == '[':
		for kid := e.nodes[at].last; kid != noNode; kid = e.nodes[kid].prev {
			e.chosen(t, kid)
		}
	case t.proto == protoOrBool:
		e.nested(t, 2, at, text)
		e.varint(1, 1)
	default:
		e.nested(t, 1, at, text)
	}
	e.prefix(n, mark)
}

// chosen writes an item of a list that stands in the place of a struct.
func (e *protoEncoder) chosen(t *Type, at int32) {
	if t.proto == protoOrStrings {
		e.value(stringType, 2, at)
		return
	}
	e.nested(t, 2, at, e.text(at))
}

func (e *protoEncoder) nested(t *Type, n int, at int32, text string) {
	mark := e.mark()
	e.inner(t, at, text)
	e.prefix(n, mark)
}

func (e *protoEncoder) text(at int32) string { return e.src[e.nodes[at].start:e.nodes[at].end] }

// unquoted is the content of a string.
func (e *protoEncoder) unquoted(at int32) string {
	if at == noNode {
		return ""
	}
	text := e.text(at)
	if text[0] != '"' {
		e.fail(stringType, text)
		return ""
	}
	if strings.IndexByte(text, '\\') < 0 {
		return text[1 : len(text)-1]
	}
	e.pos = int(e.nodes[at].start)
	return e.scanner.string()
}

func (e *protoEncoder) integer(text string) int64 {
	if text == "" {
		return 0
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		e.fail(&Type{GoName: "int64"}, text)
	}
	return n
}

func (e *protoEncoder) fail(t *Type, text string) {
	if e.err == nil {
		e.err = fmt.Errorf("%.40s is no %s", text, t.GoName)
	}
}

// mark is how much was written, for prefix to know how long what is written from here on is.
func (e *protoEncoder) mark() int { return len(e.out) - e.at }

// prefix makes what was written since a mark the bytes of the field n.
func (e *protoEncoder) prefix(n, mark int) {
	e.uvarint(uint64(e.mark() - mark))
	e.tag(n, protowire.BytesType)
}

// grow makes room for n more bytes in front of what was written.
func (e *protoEncoder) grow(n int) {
	if n <= e.at {
		return
	}
	const least = 4 << 10
	used := e.mark()
	larger := make([]byte, max(least, 2*len(e.out), 2*n+used))
	e.at = len(larger) - used
	copy(larger[e.at:], e.out[len(e.out)-used:])
	e.out = larger
}

func (e *protoEncoder) tag(n int, kind protowire.Type) {
	e.uvarint(protowire.EncodeTag(protowire.Number(n), kind))
}

func (e *protoEncoder) uvarint(v uint64) {
	size := protowire.SizeVarint(v)
	e.grow(size)
	e.at -= size
	protowire.AppendVarint(e.out[e.at:e.at], v)
}

func (e *protoEncoder) varint(n int, v uint64) {
	e.uvarint(v)
	e.tag(n, protowire.VarintType)
}

func (e *protoEncoder) string(n int, text string) {
	e.grow(len(text))
	e.at -= len(text)
	copy(e.out[e.at:], text)
	e.uvarint(uint64(len(text)))
	e.tag(n, protowire.BytesType)
}

func (e *protoEncoder) base64(n int, text string) {
	size := base64.StdEncoding.DecodedLen(len(text))
	e.grow(size)
	raw := e.out[e.at-size : e.at]
	used, err := base64.StdEncoding.Decode(raw, []byte(text))
	if err != nil {
		e.fail(&Type{GoName: "[]uint8"}, text)
	}
	e.at -= used
	copy(e.out[e.at:], raw[:used])
	e.uvarint(uint64(used))
	e.tag(n, protowire.BytesType)
}
