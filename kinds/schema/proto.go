package schema

import (
	"bytes"
	"errors"
	"fmt"
	"io"
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
	err = eachField(rest, func(n protowire.Number, v wireValue) error {
		switch {
		case n == 1 && v.isBytes():
			return eachField(v.bytes, func(n protowire.Number, v wireValue) error {
				switch n {
				case 1:
					apiVersion = string(v.bytes)
				case 2:
					kind = string(v.bytes)
				}
				return nil
			})
		case n == 2 && v.isBytes():
			raw = v.bytes
		}
		return nil
	})
	if err != nil {
		return "", "", nil, &Error{Head: true, text: err.Error()}
	}
	return apiVersion, kind, raw, nil
}

// DecodeProto reads the message inside an envelope. apiVersion and kind are not part of it: the
// caller sets them from the envelope. Unknown fields are skipped. The error, if any, is an *Error,
// and there is no object then.
func (s *Schema) DecodeProto(raw []byte) (Decoded, error) {
	var d protoDecoder
	obj, err := d.object(s.root, raw, nil)
	if err != nil {
		return Decoded{}, &Error{text: err.Error()}
	}
	return Decoded{Object: obj}, nil
}

// wireValue is a value as it stands on the wire: a number, or bytes.
type wireValue struct {
	kind   protowire.Type
	number uint64
	bytes  []byte
}

func (v wireValue) isBytes() bool { return v.kind == protowire.BytesType }

// eachField calls f for each field of a message; groups, which nothing uses, are skipped.
func eachField(data []byte, f func(protowire.Number, wireValue) error) error {
	for len(data) > 0 {
		n, kind, size := protowire.ConsumeTag(data)
		if size < 0 {
			return wireError(size)
		}
		v, used := readValue(n, kind, data[size:])
		if used < 0 {
			return wireError(used)
		}
		data = data[size+used:]
		if err := f(n, v); err != nil {
			return err
		}
	}
	return nil
}

func readValue(n protowire.Number, kind protowire.Type, data []byte) (v wireValue, used int) {
	v.kind = kind
	switch kind {
	case protowire.VarintType:
		v.number, used = protowire.ConsumeVarint(data)
	case protowire.BytesType:
		v.bytes, used = protowire.ConsumeBytes(data)
	default:
		used = protowire.ConsumeFieldValue(n, kind, data)
	}
	return v, used
}

func wireError(code int) error {
	if err := protowire.ParseError(code); err != nil && !errors.Is(err, io.ErrUnexpectedEOF) {
		return err
	}
	return io.ErrUnexpectedEOF
}

// protoDecoder reads a message along a type.
type protoDecoder struct{ depth int }

var errTooDeep = errors.New("exceeded max depth")

// object reads a message into m, or into a new object if that is nil.
func (d *protoDecoder) object(t *Type, data []byte, m map[string]any) (map[string]any, error) {
	if d.depth++; d.depth > depthMax {
		return nil, errTooDeep
	}
	defer func() { d.depth-- }()
	if m == nil {
		m = make(map[string]any, len(t.written)+4)
	}
	if err := d.fields(t, t.message, data, m); err != nil {
		return nil, err
	}
	for key, v := range m {
		if f := t.Field(key); f != nil && f.omits(v) {
			delete(m, key)
		}
	}
	t.fill(m)
	return m, nil
}

func (d *protoDecoder) fields(t *Type, message []wire, data []byte, m map[string]any) error {
	return eachField(data, func(n protowire.Number, v wireValue) error {
		if int(n) >= len(message) {
			return nil
		}
		w := message[n]
		switch {
		case w.inline != nil:
			return d.fields(t, w.inline, v.bytes, m)
		case w.field == noField:
			return nil
		}
		f := &t.Fields[w.field]
		value, err := d.value(f.Type, v, m[f.Name])
		if err != nil {
			return fmt.Errorf("%s: %w", f.Name, err)
		}
		m[f.Name] = value
		return nil
	})
}

// value reads a field's value, prev being what the message has said of the field before.
func (d *protoDecoder) value(t *Type, v wireValue, prev any) (any, error) {
	switch t.Kind {
	case List:
		list, _ := prev.([]any)
		return d.list(t, v, list)
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
	case Map:
		m, _ := prev.(map[string]any)
		return d.mapEntry(t, v.bytes, m)
	case String:
		return string(v.bytes), nil
	case Bytes:
		return encodeBase64(v.bytes), nil
	}
	return special(t.Kind, v.bytes)
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

// list adds an item, a packed run of numbers, or the items of a message of its own.
func (d *protoDecoder) list(t *Type, v wireValue, list []any) (any, error) {
	switch {
	case t.wrapped && v.isBytes():
		list = []any{}
		err := eachField(v.bytes, func(n protowire.Number, v wireValue) error {
			if n != 1 {
				return nil
			}
			item, err := d.value(t.Elem, v, nil)
			list = append(list, item)
			return err
		})
		return list, err
	case v.isBytes() && (t.Elem.Kind == Bool || t.Elem.Kind == Int32 || t.Elem.Kind == Int64):
		for rest := v.bytes; len(rest) > 0; {
			n, used := protowire.ConsumeVarint(rest)
			if used < 0 {
				return nil, wireError(used)
			}
			list = append(list, integer(t.Elem.Kind, n))
			rest = rest[used:]
		}
		return list, nil
	}
	item, err := d.value(t.Elem, v, nil)
	return append(list, item), err
}

// mapEntry adds one entry: a message of a key and a value.
func (d *protoDecoder) mapEntry(t *Type, data []byte, m map[string]any) (any, error) {
	if m == nil {
		m = map[string]any{}
	}
	key, value := "", any(nil)
	err := eachField(data, func(n protowire.Number, v wireValue) (err error) {
		switch n {
		case 1:
			key = string(v.bytes)
		case 2:
			value, err = d.value(t.Elem, v, nil)
		}
		return err
	})
	if value == nil && !t.NullableElem {
		value = t.Elem.zero()
	}
	m[key] = value
	return m, err
}

// special reads the messages of the types that are one value in JSON.
func special(kind Kind, data []byte) (any, error) {
	var numbers [3]uint64
	var text [4][]byte
	err := eachField(data, func(n protowire.Number, v wireValue) error {
		switch {
		case v.kind == protowire.VarintType && int(n) < len(numbers):
			numbers[n] = v.number
		case v.isBytes() && int(n) < len(text):
			text[n] = v.bytes
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	switch kind {
	case Quantity:
		if text[1] == nil {
			return "0", nil
		}
		return canonicalQuantity(string(text[1]))
	case IntOrString:
		if numbers[1] == 1 { // the type: a string
			return string(text[3]), nil
		}
		return int64(int32(numbers[2])), nil
	case Time, MicroTime:
		return protoTime(kind, data, int64(numbers[1]), int32(numbers[2])), nil
	}
	return rawTree(text[1])
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
func rawTree(text []byte) (any, error) {
	if len(text) == 0 {
		return nil, nil
	}
	d := decoder{scanner: scanner{src: string(text)}}
	v := d.tree(false)
	if d.space() != 0 || d.pos < len(d.src) || d.bad {
		return nil, syntaxError(text)
	}
	return v, d.err()
}
