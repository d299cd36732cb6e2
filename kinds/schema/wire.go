package schema

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

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
	case protowire.Fixed64Type:
		v.number, used = protowire.ConsumeFixed64(data)
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

// OpenEnvelope appends an envelope up to the object's message, which is of size bytes and follows.
func OpenEnvelope(dst []byte, apiVersion, kind string, size int) []byte {
	dst = append(dst, envelopeMagic...)
	meta := fieldSize(len(apiVersion)) + fieldSize(len(kind))
	dst = openField(dst, 1, meta)
	dst = append(openField(dst, 1, len(apiVersion)), apiVersion...)
	dst = append(openField(dst, 2, len(kind)), kind...)
	return openField(dst, 2, size)
}

// CloseEnvelope appends what follows the message: that it is neither compressed nor anything else.
func CloseEnvelope(dst []byte) []byte { return openField(openField(dst, 3, 0), 4, 0) }

// AppendEnvelope appends a message in its envelope.
func AppendEnvelope(dst []byte, apiVersion, kind string, message []byte) []byte {
	dst = OpenEnvelope(dst, apiVersion, kind, len(message))
	return CloseEnvelope(append(dst, message...))
}

// openField appends a field of bytes up to its content, which is of size bytes and follows. The
// numbers are below 16.
func openField(dst []byte, n protowire.Number, size int) []byte {
	return protowire.AppendVarint(protowire.AppendTag(dst, n, protowire.BytesType), uint64(size))
}

// fieldSize is what a field of size bytes takes, its tag and length included.
func fieldSize(size int) int { return 1 + protowire.SizeBytes(size) }

// AppendWatchEvent appends the frame of a watch's event: its length in four bytes, and a message with
// the event's type and the object, which is in an envelope.
func AppendWatchEvent(dst []byte, kind string, object []byte) []byte {
	inner := fieldSize(len(object))
	size := fieldSize(len(kind)) + fieldSize(inner)
	dst = binary.BigEndian.AppendUint32(dst, uint32(size))
	dst = append(openField(dst, 1, len(kind)), kind...)
	dst = openField(openField(dst, 2, inner), 1, len(object))
	return append(dst, object...)
}
