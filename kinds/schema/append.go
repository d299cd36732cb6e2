package schema

import (
	"bytes"
	"math"
	"slices"
	"strconv"
	"unicode/utf8"
)

// Append appends a canonical tree as canonical JSON: fields in the order of the type, the keys of
// maps sorted, no white space, and characters escaped as encoding/json does. It is the text that
// upstream's encoder makes, but for one thing: in an object with metadata the value of
// metadata.resourceVersion is left out. `"resourceVersion":""` always stands there, and revisionAt
// is the offset in out between its quotes, where the store stamps the revision in. Without metadata
// revisionAt is -1.
//
// What is not canonical is not checked: fields that the type does not have are left out.
func (s *Schema) Append(dst []byte, obj map[string]any) (out []byte, revisionAt int) {
	e := encoder{out: dst, revisionAt: -1}
	e.object(s.root(), obj, true)
	return e.out, e.revisionAt
}

// AppendKept is Append in the form in which upstream has an object once it was stored: where types say
// EmptyIsNull, null stands for an empty list or map that would be written.
func (s *Schema) AppendKept(dst []byte, obj map[string]any) (out []byte, revisionAt int) {
	e := encoder{out: dst, revisionAt: -1, kept: true}
	e.object(s.root(), obj, true)
	return e.out, e.revisionAt
}

type encoder struct {
	out        []byte
	revisionAt int
	kept       bool // as AppendKept does
}

func (e *encoder) object(t *Type, m map[string]any, root bool) {
	if t.PreserveUnknown || t.Loose {
		e.preserving(t, m, root)
		return
	}
	e.out = append(e.out, '{')
	first := true
	for i := range t.Fields {
		f := &t.Fields[i]
		v, there := m[f.Name]
		stamp := root && f.Type.Name == objectMetaName
		if !there && !stamp {
			continue
		}
		e.fieldName(f.Name, first)
		first = false
		if stamp {
			e.metadata(f.Type, v)
			continue
		}
		if e.kept && t.EmptyIsNull && f.writesNull(v) {
			v = nil
		}
		e.value(f.Type, v)
	}
	e.out = append(e.out, '}')
}

func (e *encoder) fieldName(name string, first bool) {
	if !first {
		e.out = append(e.out, ',')
	}
	e.out = append(e.out, '"')
	e.out = append(e.out, name...)
	e.out = append(e.out, '"', ':')
}

// metadata writes the object's own metadata, with the place for its revision.
func (e *encoder) metadata(t *Type, v any) {
	m, _ := v.(map[string]any)
	e.out = append(e.out, '{')
	first := true
	for i := range t.Fields {
		f := &t.Fields[i]
		if f.Name == "resourceVersion" {
			e.fieldName(f.Name, first)
			first = false
			e.revisionAt = len(e.out) + 1
			e.out = append(e.out, '"', '"')
			continue
		}
		if v, there := m[f.Name]; there {
			e.fieldName(f.Name, first)
			first = false
			e.value(f.Type, v)
		}
	}
	e.out = append(e.out, '}')
}

// preserving writes a struct that keeps unknown fields, or is loose: all keys sorted.
func (e *encoder) preserving(t *Type, m map[string]any, root bool) {
	e.out = append(e.out, '{')
	var few [16]string
	keys := sortedKeys(m, few[:0])
	if _, there := m["metadata"]; root && !there {
		keys = append(keys, "metadata")
		slices.Sort(keys)
	}
	for i, key := range keys {
		if i > 0 {
			e.out = append(e.out, ',')
		}
		e.string(key)
		e.out = append(e.out, ':')
		f := t.Field(key)
		switch {
		case f == nil:
			e.tree(m[key])
		case root && f.Type.Name == objectMetaName:
			e.metadata(f.Type, m[key])
		default:
			e.value(f.Type, m[key])
		}
	}
	e.out = append(e.out, '}')
}

func sortedKeys(m map[string]any, keys []string) []string {
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

func (e *encoder) value(t *Type, v any) {
	switch t.Kind {
	case Struct:
		if m, ok := v.(map[string]any); ok {
			e.object(t, m, false)
			return
		}
	case Map:
		if m, ok := v.(map[string]any); ok {
			e.dictionary(t.Elem, m)
			return
		}
	case List:
		if list, ok := v.([]any); ok {
			e.list(t.Elem, list)
			return
		}
	}
	e.tree(v)
}

func (e *encoder) dictionary(elem *Type, m map[string]any) {
	e.out = append(e.out, '{')
	var few [16]string
	for i, key := range sortedKeys(m, few[:0]) {
		if i > 0 {
			e.out = append(e.out, ',')
		}
		e.string(key)
		e.out = append(e.out, ':')
		e.value(elem, m[key])
	}
	e.out = append(e.out, '}')
}

func (e *encoder) list(elem *Type, list []any) {
	e.out = append(e.out, '[')
	for i, v := range list {
		if i > 0 {
			e.out = append(e.out, ',')
		}
		e.value(elem, v)
	}
	e.out = append(e.out, ']')
}

var anyType = &Type{Kind: Any, GoName: "interface {}"}

func (e *encoder) tree(v any) {
	switch v := v.(type) {
	case nil:
		e.out = append(e.out, "null"...)
	case string:
		e.string(v)
	case bool:
		e.out = strconv.AppendBool(e.out, v)
	case int64:
		e.out = strconv.AppendInt(e.out, v, 10)
	case float64:
		e.float(v)
	case []any:
		e.list(anyType, v)
	case map[string]any:
		e.dictionary(anyType, v)
	}
}

// float writes a number as encoding/json does, after ECMAScript: with an exponent only when it is
// very small or large.
func (e *encoder) float(v float64) {
	format := byte('f')
	if abs := math.Abs(v); abs != 0 && (abs < 1e-6 || abs >= 1e21) {
		format = 'e'
	}
	start := len(e.out)
	e.out = strconv.AppendFloat(e.out, v, format, -1, 64)
	if text := e.out[start:]; format == 'e' && bytes.HasSuffix(text[:len(text)-1], []byte("e-0")) {
		last := text[len(text)-1]
		e.out = append(e.out[:len(e.out)-2], last) // e-09 is e-9
	}
}

// verbatim says which bytes stand for themselves in a string. Those that mean something to HTML do
// not.
var verbatim = func() (safe [256]bool) {
	for c := ' '; c < utf8.RuneSelf; c++ {
		safe[c] = c != '"' && c != '\\' && c != '<' && c != '>' && c != '&'
	}
	return safe
}()

func (e *encoder) string(s string) {
	out := append(e.out, '"')
	start := 0
	for i := 0; i < len(s); {
		if verbatim[s[i]] {
			i++
			continue
		}
		r, size := utf8.DecodeRuneInString(s[i:])
		if r >= utf8.RuneSelf && r != '\u2028' && r != '\u2029' && (r != utf8.RuneError || size > 1) {
			i += size
			continue
		}
		out = append(out, s[start:i]...)
		out = appendEscape(out, r)
		i += size
		start = i
	}
	out = append(out, s[start:]...)
	e.out = append(out, '"')
}

const hexDigits = "0123456789abcdef"

func appendEscape(out []byte, r rune) []byte {
	switch r {
	case '"', '\\':
		return append(out, '\\', byte(r))
	case '\b':
		return append(out, '\\', 'b')
	case '\f':
		return append(out, '\\', 'f')
	case '\n':
		return append(out, '\\', 'n')
	case '\r':
		return append(out, '\\', 'r')
	case '\t':
		return append(out, '\\', 't')
	}
	out = append(out, '\\', 'u', hexDigits[r>>12&0xf], hexDigits[r>>8&0xf])
	return append(out, hexDigits[r>>4&0xf], hexDigits[r&0xf])
}
