package schema

import (
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// depthMax is how deep arrays and objects may be nested: upstream's bound.
const depthMax = 10000

// scanner reads JSON, each byte once, and accepts exactly what encoding/json accepts. At the first
// syntax error it becomes bad and stands at the end of its text, so that every loop over it ends;
// values read from then on mean nothing.
type scanner struct {
	src     string
	pos     int
	depth   int
	bad     bool
	scratch []byte // for strings with escapes, and base64
}

func (s *scanner) spoil() {
	s.bad = true
	s.pos = len(s.src)
}

// space skips white space and returns the byte after it, or 0 at the end.
func (s *scanner) space() byte {
	for s.pos < len(s.src) {
		switch c := s.src[s.pos]; c {
		case ' ', '\t', '\n', '\r':
			s.pos++
		default:
			return c
		}
	}
	return 0
}

// enter steps over the opening bracket of an array or an object.
func (s *scanner) enter() {
	s.pos++
	if s.depth++; s.depth > depthMax {
		s.spoil()
	}
}

// more says whether another item of the array or object follows, and moves to it; else it steps
// over the closing bracket.
func (s *scanner) more(closing byte, first bool) bool {
	c := s.space()
	if c == closing {
		s.pos++
		s.depth--
		return false
	}
	if !first {
		if c != ',' {
			s.spoil()
			return false
		}
		s.pos++
	}
	return !s.bad
}

// key reads a key and the colon after it.
func (s *scanner) key() string {
	if s.space() != '"' {
		s.spoil()
		return ""
	}
	key := s.string()
	s.colon()
	if s.bad {
		return ""
	}
	return key
}

func (s *scanner) colon() {
	if s.space() != ':' {
		s.spoil()
		return
	}
	s.pos++
}

// literal reads null, true or false, of which the first letter is known.
func (s *scanner) literal(word string) {
	if !strings.HasPrefix(s.src[s.pos:], word) {
		s.spoil()
		return
	}
	s.pos += len(word)
}

// bool reads true or false.
func (s *scanner) bool() bool {
	if s.src[s.pos] == 't' {
		s.literal("true")
		return true
	}
	s.literal("false")
	return false
}

// number reads a number and returns its text.
func (s *scanner) number() string {
	start := s.pos
	if s.peek() == '-' {
		s.pos++
	}
	if s.peek() == '0' {
		s.pos++
	} else {
		s.digits()
	}
	if s.peek() == '.' {
		s.pos++
		s.digits()
	}
	if c := s.peek(); c == 'e' || c == 'E' {
		s.pos++
		if c := s.peek(); c == '+' || c == '-' {
			s.pos++
		}
		s.digits()
	}
	if s.bad {
		return "0"
	}
	return s.src[start:s.pos]
}

func (s *scanner) peek() byte {
	if s.pos < len(s.src) {
		return s.src[s.pos]
	}
	return 0
}

// digits reads one digit or more.
func (s *scanner) digits() {
	start := s.pos
	for s.pos < len(s.src) && '0' <= s.src[s.pos] && s.src[s.pos] <= '9' {
		s.pos++
	}
	if s.pos == start {
		s.spoil()
	}
}

// Bytes of a string that need a closer look.
const (
	plain = iota
	quote
	escape
	control
	high // not ASCII
)

var class = func() (c [256]uint8) {
	for i := range c {
		switch {
		case i == '"':
			c[i] = quote
		case i == '\\':
			c[i] = escape
		case i < ' ':
			c[i] = control
		case i >= utf8.RuneSelf:
			c[i] = high
		}
	}
	return c
}()

// string reads a string. What it returns shares memory with the text wherever it can.
func (s *scanner) string() string {
	text, unescaped := s.rawString()
	if unescaped != nil {
		return string(unescaped)
	}
	return text
}

// rawString reads a string. If it has escapes it stands, without them, in the scratch space, until the
// next one.
func (s *scanner) rawString() (text string, unescaped []byte) {
	s.pos++
	start, sawHigh := s.pos, false
	for i := start; i < len(s.src); i++ {
		switch class[s.src[i]] {
		case plain:
		case high:
			sawHigh = true
		case quote:
			s.pos = i + 1
			text := s.src[start:i]
			if sawHigh && !utf8.ValidString(text) {
				text = string([]rune(text)) // U+FFFD for each wrong byte
			}
			return text, nil
		case escape:
			return "", s.unescape(start, i)
		default:
			s.spoil()
			return "", nil
		}
	}
	s.spoil()
	return "", nil
}

// unescape reads the rest of a string with escapes, of which src[start:i] has been looked at.
func (s *scanner) unescape(start, i int) []byte {
	b := s.scratch[:0]
	defer func() { s.scratch = b }()
	for i < len(s.src) {
		switch class[s.src[i]] {
		case plain:
			i++
			continue
		case quote:
			s.pos = i + 1
			b = append(b, s.src[start:i]...)
			return b
		case escape:
			b, i = s.escaped(append(b, s.src[start:i]...), i)
		case high:
			r, size := utf8.DecodeRuneInString(s.src[i:])
			b = utf8.AppendRune(append(b, s.src[start:i]...), r)
			i += size
		default:
			i = len(s.src)
		}
		start = i
	}
	s.spoil()
	return nil
}

// escaped appends what the escape at i stands for, and returns where it ends: at the end of the
// text if it is none.
func (s *scanner) escaped(b []byte, i int) ([]byte, int) {
	if i+1 >= len(s.src) {
		return b, len(s.src)
	}
	switch c := s.src[i+1]; c {
	case '"', '\\', '/':
		return append(b, c), i + 2
	case 'b':
		return append(b, '\b'), i + 2
	case 'f':
		return append(b, '\f'), i + 2
	case 'n':
		return append(b, '\n'), i + 2
	case 'r':
		return append(b, '\r'), i + 2
	case 't':
		return append(b, '\t'), i + 2
	case 'u':
		r := s.hex4(i)
		if r < 0 {
			return b, len(s.src)
		}
		i += 6
		if utf16.IsSurrogate(r) {
			if pair := utf16.DecodeRune(r, s.hex4(i)); pair != utf8.RuneError {
				return utf8.AppendRune(b, pair), i + 6
			}
		}
		return utf8.AppendRune(b, r), i // U+FFFD for half a pair
	}
	return b, len(s.src)
}

// hex4 reads the \uXXXX at i, or returns -1.
func (s *scanner) hex4(i int) rune {
	if i+6 > len(s.src) || s.src[i] != '\\' || s.src[i+1] != 'u' {
		return -1
	}
	var r rune
	for _, c := range []byte(s.src[i+2 : i+6]) {
		switch {
		case '0' <= c && c <= '9':
			c -= '0'
		case 'a' <= c && c <= 'f':
			c -= 'a' - 10
		case 'A' <= c && c <= 'F':
			c -= 'A' - 10
		default:
			return -1
		}
		r = r<<4 | rune(c)
	}
	return r
}

// skip reads any value and returns its text.
func (s *scanner) skip() string {
	c := s.space()
	start := s.pos
	switch c {
	case '"':
		s.rawString()
	case '{':
		s.enter()
		for first := true; s.more('}', first); first = false {
			if s.space() != '"' {
				s.spoil()
				break
			}
			s.rawString()
			s.colon()
			s.skip()
		}
	case '[':
		s.enter()
		for first := true; s.more(']', first); first = false {
			s.skip()
		}
	case 'n':
		s.literal("null")
	case 't', 'f':
		s.bool()
	default:
		s.number()
	}
	if s.bad {
		return "0"
	}
	return s.src[start:s.pos]
}

// found names the value at hand as type errors do.
func found(c byte) string {
	switch c {
	case '"':
		return "string"
	case 't', 'f':
		return "bool"
	case '{':
		return "object"
	case '[':
		return "array"
	}
	return "number"
}
