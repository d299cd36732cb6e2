// Package cbor turns JSON into CBOR and back, as Kubernetes uses it: strings are byte strings, and
// what is written begins with the tag that says it is CBOR. Both ways take a time in proportion to
// the text, and nesting is bounded.
package cbor

import (
	"bytes"
	"encoding/json"
	"errors"
	"math"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/runtime/serializer/cbor/direct"
)

// Heads of data items, and what stands between them.
const (
	unsigned   = 0 << 5
	negative   = 1 << 5
	byteString = 2 << 5

	openArray  = 4<<5 | indefinite
	openMap    = 5<<5 | indefinite
	indefinite = 31
	closing    = 0xff

	falseItem = 0xf4
	trueItem  = 0xf5
	nullItem  = 0xf6
	double    = 0xfb
)

// Begin appends the tag that a document begins with.
func Begin(dst []byte) []byte { return append(dst, 0xd9, 0xd9, 0xf7) }

// AppendJSON appends JSON as one data item. A number that no double can hold becomes the largest that
// one can. Of text that is not JSON it appends something that is not its equal, and nothing worse happens.
func AppendJSON(dst, text []byte) []byte {
	w := writer{out: dst, text: text}
	for w.at < len(text) {
		w.step()
	}
	return w.out
}

// writer reads tokens and writes them as they come: the length of a map or an array is not known
// before its end, and is not written.
type writer struct {
	out  []byte
	text []byte
	at   int

	scratch []byte // for strings with escapes
}

func (w *writer) step() {
	switch c := w.text[w.at]; c {
	case '{':
		w.out = append(w.out, openMap)
	case '[':
		w.out = append(w.out, openArray)
	case '}', ']':
		w.out = append(w.out, closing)
	case 't':
		w.word("true", trueItem)
		return
	case 'f':
		w.word("false", falseItem)
		return
	case 'n':
		w.word("null", nullItem)
		return
	case '"':
		w.string()
		return
	case '-', '0', '1', '2', '3', '4', '5', '6', '7', '8', '9':
		w.number()
		return
	}
	w.at++ // a bracket, a comma, a colon, or space
}

func (w *writer) word(word string, item byte) {
	w.out = append(w.out, item)
	w.at = min(w.at+len(word), len(w.text))
}

func (w *writer) string() {
	end, escaped := w.at+1, false
	for end < len(w.text) && w.text[end] != '"' {
		if w.text[end] == '\\' {
			escaped = true
			end++
		}
		end++
	}
	end = min(end, len(w.text))
	content := w.text[w.at+1 : end]
	if escaped {
		w.scratch = appendUnescaped(w.scratch[:0], content)
		content = w.scratch
	}
	w.out = append(head(w.out, byteString, uint64(len(content))), content...)
	w.at = end + 1
}

// appendUnescaped appends the content of a string that has escapes.
func appendUnescaped(dst, text []byte) []byte {
	for len(text) > 0 {
		i := bytes.IndexByte(text, '\\')
		if i < 0 || i+1 == len(text) {
			return append(dst, text...)
		}
		dst = append(dst, text[:i]...)
		c := text[i+1]
		if text = text[i+2:]; c != 'u' {
			if at := strings.IndexByte("bfnrt", c); at >= 0 {
				c = "\b\f\n\r\t"[at]
			}
			dst = append(dst, c)
			continue
		}
		r, rest := hex4(text)
		if utf16.IsSurrogate(r) && bytes.HasPrefix(rest, []byte(`\u`)) {
			low, after := hex4(rest[2:])
			if pair := utf16.DecodeRune(r, low); pair != utf8.RuneError {
				r, rest = pair, after
			}
		}
		dst, text = utf8.AppendRune(dst, r), rest
	}
	return dst
}

// hex4 reads four hexadecimal digits.
func hex4(text []byte) (rune, []byte) {
	if len(text) < 4 {
		return utf8.RuneError, nil
	}
	n, err := strconv.ParseUint(string(text[:4]), 16, 16)
	if err != nil {
		return utf8.RuneError, text[4:]
	}
	return rune(n), text[4:]
}

func (w *writer) number() {
	start := w.at
	for w.at < len(w.text) && strings.IndexByte("+-.eE0123456789", w.text[w.at]) >= 0 {
		w.at++
	}
	text := string(w.text[start:w.at])
	if n, err := strconv.ParseInt(text, 10, 64); err == nil {
		if n < 0 {
			w.out = head(w.out, negative, uint64(-(n + 1)))
		} else {
			w.out = head(w.out, unsigned, uint64(n))
		}
		return
	}
	f, _ := strconv.ParseFloat(text, 64)
	f = min(max(f, -math.MaxFloat64), math.MaxFloat64) // no reader takes infinity
	w.out = appendBig(append(w.out, double), math.Float64bits(f), 8)
}

// head appends the head of an item: its major type, and a length or value.
func head(dst []byte, major byte, n uint64) []byte {
	switch {
	case n < 24:
		return append(dst, major|byte(n))
	case n <= math.MaxUint8:
		return append(dst, major|24, byte(n))
	case n <= math.MaxUint16:
		return appendBig(append(dst, major|25), n, 2)
	case n <= math.MaxUint32:
		return appendBig(append(dst, major|26), n, 4)
	}
	return appendBig(append(dst, major|27), n, 8)
}

// appendBig appends the lowest size bytes of n, the highest first.
func appendBig(dst []byte, n uint64, size int) []byte {
	for i := size - 1; i >= 0; i-- {
		dst = append(dst, byte(n>>(8*i)))
	}
	return dst
}

var errNotObject = errors.New("the data is not an object, which CBOR has as a map")

// ToJSON returns an object as JSON. Strings may be text or bytes; bytes that are tagged to be shown
// in base64 are. A key that stands twice, and what JSON cannot have, is an error.
func ToJSON(data []byte) ([]byte, error) {
	var tree any
	if err := direct.Unmarshal(data, &tree); err != nil {
		return nil, err
	}
	if _, ok := tree.(map[string]any); !ok {
		return nil, errNotObject
	}
	return json.Marshal(tree)
}
