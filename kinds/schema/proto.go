package schema

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
)

// wire says which field a protobuf field number is, or that it holds the fields of an embedded
// struct.
type wire struct {
	field  int // index, or noField
	inline []wire
}

const noField = -1

// maxFieldNumber bounds the tables by number; upstream's numbers stay far below.
const maxFieldNumber = 1000

var envelopeMagic = []byte("k8s\x00")

// Envelope opens the envelope of a protobuf body: the bytes "k8s\0" and a message with the
// object's type and its own message, raw, which shares memory with data.
func Envelope(data []byte) (apiVersion, kind string, raw []byte, err error) {
	rest, ok := bytes.CutPrefix(data, envelopeMagic)
	if !ok {
		return "", "", nil, &Error{Head: true, text: fmt.Sprintf(
			"provided data does not appear to be a protobuf message, expected prefix %v", envelopeMagic)}
	}
	var typeMeta []byte
	err = eachField(rest, func(n protowire.Number, v wireValue) {
		switch n {
		case 1:
			typeMeta = v.bytes
		case 2:
			raw = v.bytes
		}
	})
	if err == nil {
		err = eachField(typeMeta, func(n protowire.Number, v wireValue) {
			switch n {
			case 1:
				apiVersion = string(v.bytes)
			case 2:
				kind = string(v.bytes)
			}
		})
	}
	if err != nil {
		return "", "", nil, &Error{Head: true, text: err.Error()}
	}
	return apiVersion, kind, raw, nil
}

// DecodeProto reads the message inside an envelope. apiVersion and kind are not part of it: the
// caller sets them from the envelope. Unknown fields are skipped. The error, if any, is an *Error,
// and there is no object then.
func (s *Schema) DecodeProto(raw []byte) (Decoded, error) {
	d := protoDecoders.Get().(*protoDecoder)
	defer d.free()
	d.src = string(raw)
	obj, err := d.object(s.root, raw[:len(raw):len(raw)], nil)
	if err != nil {
		return Decoded{}, &Error{text: err.Error()}
	}
	return Decoded{Object: obj}, nil
}

// wireValue is a value as it stands on the wire: a number, or bytes, or one of another kind, which
// nothing here uses.
type wireValue struct {
	kind   protowire.Type
	number uint64
	bytes  []byte
}

func (v wireValue) isBytes() bool { return v.kind == protowire.BytesType }

// nextField reads the field at the beginning of data and returns what follows it.
func nextField(data []byte) (n protowire.Number, v wireValue, rest []byte, err error) {
	n, kind, used := protowire.ConsumeTag(data)
	if used < 0 {
		return 0, v, nil, wireError(used)
	}
	data = data[used:]
	v.kind = kind
	switch kind {
	case protowire.VarintType:
		v.number, used = protowire.ConsumeVarint(data)
	case protowire.BytesType:
		v.bytes, used = protowire.ConsumeBytes(data)
	default:
		used = protowire.ConsumeFieldValue(n, kind, data)
	}
	if used < 0 {
		return 0, v, nil, wireError(used)
	}
	return n, v, data[used:], nil
}

// eachField calls f for each field of a message.
func eachField(data []byte, f func(protowire.Number, wireValue)) error {
	for len(data) > 0 {
		n, v, rest, err := nextField(data)
		if err != nil {
			return err
		}
		f(n, v)
		data = rest
	}
	return nil
}

func wireError(code int) error {
	if err := protowire.ParseError(code); err != nil && !errors.Is(err, io.ErrUnexpectedEOF) {
		return err
	}
	return io.ErrUnexpectedEOF
}

// protoDecoder reads a message along a type.
type protoDecoder struct {
	stack
	src   string // the whole message
	depth int
}

// text returns a part of the message as a string, without a copy of its own: all parts reach, in
// capacity, to the end of the message, which tells where they are.
func (d *protoDecoder) text(part []byte) string {
	at := len(d.src) - cap(part)
	return d.src[at : at+len(part)]
}

var protoDecoders = sync.Pool{New: func() any { return new(protoDecoder) }}

func (d *protoDecoder) free() {
	if d.stack.reset() {
		*d = protoDecoder{stack: d.stack}
		protoDecoders.Put(d)
	}
}

var errTooDeep = errors.New("exceeded max depth")

// object reads a message into old, or into a new object if that is nil.
func (d *protoDecoder) object(t *Type, data []byte, old map[string]any) (map[string]any, error) {
	if d.depth++; d.depth > depthMax {
		return nil, errTooDeep
	}
	base := len(d.entries)
	var seen fieldSet
	if err := d.fields(t, t.message, data, base, &seen, old); err != nil {
		return nil, err
	}
	d.depth--
	return d.takeStruct(t, base, &seen, old), nil
}

// fields reads a message, or the part of it that an embedded struct is, into the entries from base on.
func (d *protoDecoder) fields(t *Type, message []wire, data []byte, base int, seen *fieldSet, old map[string]any) error {
	for len(data) > 0 {
		n, v, rest, err := nextField(data)
		if err != nil {
			return err
		}
		w := wire{field: noField}
		if int(n) < len(message) {
			w = message[n]
		}
		switch {
		case w.inline != nil:
			err = d.fields(t, w.inline, v.bytes, base, seen, old)
		case w.field != noField:
			f := &t.Fields[w.field]
			prev := old[f.Name]
			if seen.has(w.field) {
				prev = d.latest(base, w.field)
			}
			seen.add(w.field)
			var value any
			value, rest, err = d.field(f.Type, n, v, rest, prev)
			d.entries = append(d.entries, entry{key: f.Name, field: w.field, value: value})
			if err != nil {
				err = fmt.Errorf("%s: %w", f.Name, err)
			}
		}
		if err != nil {
			return err
		}
		data = rest
	}
	return nil
}

// field makes a field's value of v, of what follows in rest under the same number n if the field is
// repeated, and of prev, what the message has said of the field before. It returns what remains of
// rest.
func (d *protoDecoder) field(t *Type, n protowire.Number, v wireValue, rest []byte, prev any) (any, []byte, error) {
	isMap := t.Kind == Map
	if !isMap && (t.Kind != List || t.wrapped) {
		value, err := d.value(t, v, prev)
		return value, rest, err
	}
	items, entries := len(d.items), len(d.entries)
	if list, ok := prev.([]any); ok {
		d.items = append(d.items, list...)
	}
	for more := true; more; {
		err := d.repeated(t, v)
		if err == nil {
			v, rest, more, err = following(n, rest)
		}
		if err != nil {
			return nil, nil, err
		}
	}
	if isMap {
		m, _ := prev.(map[string]any)
		return d.takeMap(entries, m), rest, nil
	}
	return d.takeItems(items), rest, nil
}

// following reads the next field if it has the number n.
func following(n protowire.Number, data []byte) (v wireValue, rest []byte, more bool, err error) {
	if len(data) == 0 {
		return v, data, false, nil
	}
	next, v, rest, err := nextField(data)
	if err != nil || next != n {
		return v, data, false, err
	}
	return v, rest, true, nil
}

func (d *protoDecoder) repeated(t *Type, v wireValue) error {
	if t.Kind == Map {
		return d.mapEntry(t, v.bytes)
	}
	return d.item(t.Elem, v)
}

// item adds an item of a list, or a packed run of them.
func (d *protoDecoder) item(elem *Type, v wireValue) error {
	if v.isBytes() && (elem.Kind == Bool || elem.Kind == Int32 || elem.Kind == Int64) {
		for packed := v.bytes; len(packed) > 0; {
			n, used := protowire.ConsumeVarint(packed)
			if used < 0 {
				return wireError(used)
			}
			d.items = append(d.items, integer(elem.Kind, n))
			packed = packed[used:]
		}
		return nil
	}
	value, err := d.value(elem, v, nil)
	d.items = append(d.items, value)
	return err
}

// mapEntry adds an entry: a message of a key and a value.
func (d *protoDecoder) mapEntry(t *Type, data []byte) error {
	key, value := "", any(nil)
	for len(data) > 0 {
		n, v, rest, err := nextField(data)
		if err != nil {
			return err
		}
		switch n {
		case 1:
			key = d.text(v.bytes)
		case 2:
			if value, err = d.value(t.Elem, v, nil); err != nil {
				return err
			}
		}
		data = rest
	}
	if value == nil && !t.NullableElem {
		value = t.Elem.zero()
	}
	d.entries = append(d.entries, entry{key: key, field: noField, value: value})
	return nil
}

// value reads one value, prev being what the message has said of it before.
func (d *protoDecoder) value(t *Type, v wireValue, prev any) (any, error) {
	switch t.Kind {
	case Bool, Int32, Int64:
		if v.kind != protowire.VarintType {
			return nil, wrongWire(t, v)
		}
		return integer(t.Kind, v.number), nil
	}
	if !v.isBytes() {
		return nil, wrongWire(t, v)
	}
	switch t.Kind {
	case Struct:
		m, _ := prev.(map[string]any)
		return d.object(t, v.bytes, m)
	case List: // a message of its own
		return d.wrappedList(t, v.bytes)
	case String:
		return d.text(v.bytes), nil
	case Bytes:
		return encodeBase64(v.bytes), nil
	}
	return d.special(t.Kind, v.bytes)
}

// wrappedList reads a list that is a message with its items as field 1.
func (d *protoDecoder) wrappedList(t *Type, data []byte) (any, error) {
	base := len(d.items)
	for len(data) > 0 {
		n, v, rest, err := nextField(data)
		if err != nil {
			return nil, err
		}
		if n == 1 {
			if err := d.item(t.Elem, v); err != nil {
				return nil, err
			}
		}
		data = rest
	}
	return d.takeItems(base), nil
}

func wrongWire(t *Type, v wireValue) error {
	return fmt.Errorf("proto: wrong wireType = %d for a value of type %s", v.kind, t.GoName)
}

func integer(kind Kind, n uint64) any {
	switch kind {
	case Bool:
		return n != 0
	case Int32:
		return int64(int32(n))
	}
	return int64(n)
}

// special reads the messages of the types that are one value in JSON.
func (d *protoDecoder) special(kind Kind, data []byte) (any, error) {
	var numbers [3]uint64
	var text [4][]byte
	err := eachField(data, func(n protowire.Number, v wireValue) {
		switch {
		case v.kind == protowire.VarintType && int(n) < len(numbers):
			numbers[n] = v.number
		case v.isBytes() && int(n) < len(text):
			text[n] = v.bytes
		}
	})
	if err != nil {
		return nil, err
	}
	switch kind {
	case Quantity:
		if text[1] == nil {
			return "0", nil
		}
		return canonicalQuantity(d.text(text[1]))
	case IntOrString:
		if numbers[1] == 1 { // the type: a string
			return d.text(text[3]), nil
		}
		return int64(int32(numbers[2])), nil
	case Time, MicroTime:
		return protoTime(kind, data, int64(numbers[1]), int32(numbers[2])), nil
	}
	return rawTree(d.text(text[1]))
}

// protoTime makes a time of its seconds and nanoseconds; an empty message is the zero time.
func protoTime(kind Kind, data []byte, seconds int64, nanos int32) any {
	if len(data) == 0 {
		return nil
	}
	if kind == Time {
		nanos = 0
	}
	return formatTime(kind, time.Unix(seconds, int64(nanos)))
}

// rawTree reads JSON inside a message.
func rawTree(text string) (any, error) {
	if text == "" {
		return nil, nil
	}
	d := newDecoder(text)
	defer d.free()
	v := d.tree(false)
	if !d.atEnd() {
		return nil, syntaxError([]byte(text))
	}
	return v, d.err()
}
