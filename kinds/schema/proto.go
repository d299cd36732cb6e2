package schema

import (
	"errors"
	"fmt"
	"sync"
	"time"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"
)

// DecodeProto reads the message inside an envelope. apiVersion and kind are not part of it: the
// caller sets them from the envelope. Unknown fields are skipped. The error, if any, is an *Error,
// and there is no object then.
func (s *Schema) DecodeProto(raw []byte) (Decoded, error) {
	d := protoDecoders.Get().(*protoDecoder)
	defer d.free()
	d.src = string(raw)
	obj, err := d.object(s.root(), raw[:len(raw):len(raw)], nil)
	if err != nil {
		return Decoded{}, &Error{text: err.Error()}
	}
	return Decoded{Object: obj}, nil
}

// protoDecoder reads a message along a type.
type protoDecoder struct {
	stack
	src   string // the whole message
	depth int
}

// text returns a part of the message as a string, without a copy of its own: all parts reach, in
// capacity, to the end of the message, which tells where they are. What is not UTF-8 becomes
// U+FFFD, as it does in JSON.
func (d *protoDecoder) text(part []byte) string {
	at := len(d.src) - cap(part)
	text := d.src[at : at+len(part)]
	if !utf8.ValidString(text) {
		return string([]rune(text))
	}
	return text
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
	m := message{t: t, base: len(d.entries), old: old}
	if err := d.fields(&m, t.message, data); err != nil {
		return nil, err
	}
	d.depth--
	return d.takeStruct(t, m.base, &m.seen, old), nil
}

// message is a struct under way: its entries start at base, and old is what it adds to.
type message struct {
	t    *Type
	base int
	seen fieldSet
	old  map[string]any
}

// fields reads a message, or the part of it that an embedded struct is, into the entries.
func (d *protoDecoder) fields(m *message, numbers []wire, data []byte) error {
	for len(data) > 0 {
		n, v, rest, err := nextField(data)
		if err != nil {
			return err
		}
		w := wire{field: noField}
		if int(n) < len(numbers) {
			w = numbers[n]
		}
		switch {
		case w.inline != nil:
			err = d.fields(m, w.inline, v.bytes)
		case w.field != noField:
			rest, err = d.field(m, w.field, n, v, rest)
		}
		if err != nil {
			return err
		}
		data = rest
	}
	return nil
}

// field reads the field i from v and, if it is repeated, from what follows in rest under the same
// number n. It returns what remains of rest.
func (d *protoDecoder) field(
	m *message, i int, n protowire.Number, v wireValue, rest []byte,
) ([]byte, error) {
	f := &m.t.Fields[i]
	prev := m.old[f.Name]
	if m.seen.has(i) {
		prev = d.latest(m.base, i)
	}
	m.seen.add(i)
	var value any
	var err error
	if t := f.Type; t.Kind == Map || t.Kind == List && !t.wrapped {
		value, rest, err = d.collect(t, n, v, rest, prev)
	} else {
		value, err = d.value(t, v, prev)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", f.Name, err)
	}
	d.entries = append(d.entries, entry{key: f.Name, field: i, value: value})
	return rest, nil
}

// collect makes a list or a map of prev, v, and the values that follow under the same number.
func (d *protoDecoder) collect(
	t *Type, n protowire.Number, v wireValue, rest []byte, prev any,
) (any, []byte, error) {
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
	if t.Kind == Map {
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
	if t.proto != 0 {
		return d.formed(t, v)
	}
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
