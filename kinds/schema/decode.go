package schema

import (
	"strconv"
	"strings"

	kjson "sigs.k8s.io/json"
)

// DecodeJSON reads a body in one pass. A missing or null value is its type's zero value; a null
// body is an empty object. The error, if any, is an *Error, and there is no object then.
//
// Where a field stands twice, the second value is read into the first, as decoding into a Go type
// does: structs and maps are merged, the rest is replaced.
func (s *Schema) DecodeJSON(data []byte) (Decoded, error) {
	d := decoder{scanner: scanner{src: string(data)}}
	root := d.root(s.root)
	if d.space() != 0 || d.pos < len(d.src) {
		d.bad = true
	}
	if d.bad {
		return Decoded{}, syntaxError(data)
	}
	if err := d.err(); err != nil {
		return Decoded{}, err
	}
	return Decoded{Object: root, Findings: d.findings}, nil
}

// syntaxError asks upstream's reader for the words.
func syntaxError(data []byte) error {
	var v skipped
	if err := kjson.UnmarshalCaseSensitivePreserveInts(data, &v); err != nil {
		return &Error{Head: true, text: err.Error()}
	}
	return &Error{Head: true, text: "invalid JSON"}
}

// skipped is a JSON value that nobody wants.
type skipped struct{}

func (*skipped) UnmarshalJSON([]byte) error { return nil }

// decoder reads a body along a type.
type decoder struct {
	scanner
	report
	entries []entry // of all objects under way, the innermost last
	items   []any   // of all lists under way
	scratch []byte
}

// entry is a field of an object under way, or with field < 0 a key.
type entry struct {
	key   string
	field int
	value any
}

func (d *decoder) root(t *Type) map[string]any {
	switch c := d.space(); c {
	case '{':
		return d.object(t, nil)
	case 'n':
		d.literal("null")
		return t.zero().(map[string]any)
	default:
		d.mismatch(true, found(c), headType)
		d.skip()
		d.hard.Head = true
		return nil
	}
}

// headType is the type into which upstream reads a body first.
const headType = `struct { APIVersion string "json:\"apiVersion,omitempty\""; Kind string "json:\"kind,omitempty\"" }`

// value reads a value into what prev holds, if that is not nil.
func (d *decoder) value(t *Type, nullable bool, prev any) any {
	c := d.space()
	if c == 'n' {
		d.literal("null")
		return null(t, nullable, prev)
	}
	switch t.Kind {
	case Struct:
		if c == '{' {
			old, _ := prev.(map[string]any)
			return d.object(t, old)
		}
	case Map:
		if c == '{' {
			old, _ := prev.(map[string]any)
			return d.dictionary(t, old)
		}
	case List:
		if c == '[' {
			old, _ := prev.([]any)
			return d.list(t, old)
		}
	case String:
		if c == '"' {
			return d.string()
		}
	case Bool:
		if c == 't' || c == 'f' {
			return d.bool()
		}
	case Int32, Int64:
		if isNumber(c) {
			return d.integer(t, false)
		}
	case Any:
		return d.tree(false)
	default:
		return d.special(t, c)
	}
	d.mismatch(false, found(c), t.GoName)
	d.skip()
	return nil
}

func isNumber(c byte) bool { return c == '-' || '0' <= c && c <= '9' }

// null is what a null leaves in a place that held prev: a Go value that cannot be nil stays.
func null(t *Type, nullable bool, prev any) any {
	if nullable {
		return nil
	}
	switch t.Kind {
	case Bool, Int32, Int64, String, Struct, Any, IntOrString:
		if prev != nil {
			return prev
		}
	}
	return t.zero()
}

func (d *decoder) integer(t *Type, hard bool) any {
	bits := 64
	if t.Kind != Int64 {
		bits = 32
	}
	text := d.number()
	n, err := strconv.ParseInt(text, 10, bits)
	if err != nil {
		goType := t.GoName
		if t.Kind == IntOrString {
			goType = "int32"
		}
		d.mismatch(hard, "number "+text, goType)
	}
	return n
}

// special reads the values that have a reader of their own upstream, whose errors are hard.
func (d *decoder) special(t *Type, c byte) any {
	switch t.Kind {
	case Bytes:
		return d.bytes(t, c)
	case Quantity:
		text := d.skip()
		if c == '"' && !d.bad {
			text = text[1 : len(text)-1] // not unescaped; no quantity has an escape
		}
		q, err := canonicalQuantity(strings.TrimSpace(text))
		if err != nil {
			d.fail(true, err.Error())
		}
		return q
	case IntOrString:
		switch {
		case c == '"':
			return d.string()
		case isNumber(c):
			return d.integer(t, true)
		}
		d.mismatch(true, found(c), "int32")
	case Time, MicroTime:
		if c == '"' {
			return d.time(t, d.string())
		}
		d.mismatch(true, found(c), "string")
	}
	d.skip()
	return nil
}

func (d *decoder) time(t *Type, text string) any {
	v, err := canonicalTime(t.Kind, text)
	if err != nil {
		d.fail(true, err.Error())
	}
	return v
}

// bytes reads base64, or an array of numbers: what Go's []byte takes.
func (d *decoder) bytes(t *Type, c byte) any {
	switch c {
	case '"':
		text := d.string()
		var v string
		var err error
		v, d.scratch, err = canonicalBase64(text, d.scratch)
		if err != nil {
			d.fail(false, err.Error())
		}
		return v
	case '[':
		return d.byteArray()
	}
	d.mismatch(false, found(c), t.GoName)
	d.skip()
	return nil
}

func (d *decoder) byteArray() any {
	b := []byte{}
	d.enter()
	for first := true; d.more(']', first); first = false {
		c := d.space()
		text := d.skip()
		n, err := strconv.ParseUint(text, 10, 8)
		switch {
		case isNumber(c) && err != nil:
			d.mismatch(false, "number "+text, "uint8")
		case !isNumber(c) && c != 'n':
			d.mismatch(false, found(c), "uint8")
		}
		b = append(b, byte(n))
	}
	return encodeBase64(b)
}

// list reads an array; its first items are read into those of old.
func (d *decoder) list(t *Type, old []any) any {
	base := len(d.items)
	d.enter()
	d.push(step{item: true})
	for first := true; d.more(']', first); first = false {
		i := len(d.items) - base
		d.steps[len(d.steps)-1].index = i
		var prev any
		if i < len(old) {
			prev = old[i]
		}
		d.items = append(d.items, d.value(t.Elem, t.NullableElem, prev))
	}
	d.pop()
	return d.takeItems(base)
}

// takeItems removes the items from base on and returns them as a list.
func (d *decoder) takeItems(base int) []any {
	list := make([]any, len(d.items)-base)
	copy(list, d.items[base:])
	clear(d.items[base:])
	d.items = d.items[:base]
	return list
}

// dictionary reads an object into a map, which is old if that is not nil.
func (d *decoder) dictionary(t *Type, old map[string]any) any {
	base := len(d.entries)
	var seen map[string]bool
	d.enter()
	for first := true; d.more('}', first); first = false {
		key := d.key()
		if seen = d.sawKey(base, seen, key); d.bad {
			break
		}
		d.push(step{key: key})
		v := d.value(t.Elem, t.NullableElem, nil)
		d.pop()
		d.entries = append(d.entries, entry{key: key, value: v})
	}
	return d.takeEntries(base, old)
}

// smallMap is up to how many keys a scan finds a duplicate faster than a set does.
const smallMap = 16

// sawKey reports a key that the map from base on already has. It returns the set of keys once the
// map has outgrown a scan.
func (d *decoder) sawKey(base int, seen map[string]bool, key string) map[string]bool {
	entries := d.entries[base:]
	if len(entries) < smallMap {
		for i := range entries {
			if entries[i].key == key {
				d.duplicate(key)
				break
			}
		}
		return nil
	}
	if seen == nil {
		seen = make(map[string]bool, 4*smallMap)
		for i := range entries {
			seen[entries[i].key] = true
		}
	}
	if seen[key] {
		d.duplicate(key)
	}
	seen[key] = true
	return seen
}

func (d *decoder) takeEntries(base int, m map[string]any) map[string]any {
	entries := d.entries[base:]
	if m == nil {
		m = make(map[string]any, len(entries))
	}
	for i := range entries {
		m[entries[i].key] = entries[i].value
	}
	clear(entries)
	d.entries = d.entries[:base]
	return m
}

// object reads an object into a struct, which is old if that is not nil.
func (d *decoder) object(t *Type, old map[string]any) map[string]any {
	base := len(d.entries)
	var seen fieldSet
	d.enter()
	for first := true; d.more('}', first); first = false {
		key := d.key()
		i := t.find(key)
		switch {
		case i >= 0:
			d.field(t, i, base, &seen, old)
		case t.PreserveUnknown:
			d.preserve(base, key)
		default:
			if !d.bad {
				d.unknown(key)
			}
			d.skip()
		}
	}
	return d.takeStruct(t, base, &seen, old)
}

// field reads the value of a field into the entries.
func (d *decoder) field(t *Type, i, base int, seen *fieldSet, old map[string]any) {
	f := &t.Fields[i]
	if seen.has(i) {
		d.duplicate(f.Name)
		if old == nil {
			old = map[string]any{}
		}
		for j := range d.entries[base:] {
			if e := &d.entries[base+j]; e.field == i {
				old = map[string]any{f.Name: e.value} // the last one, if there are more
			}
		}
	}
	seen.add(i)
	d.push(step{owner: t, index: i})
	v := d.value(f.Type, f.Pointer, old[f.Name])
	d.pop()
	d.entries = append(d.entries, entry{key: f.Name, field: i, value: v})
}

// preserve reads an unknown field that is kept as it is.
func (d *decoder) preserve(base int, key string) {
	for i := range d.entries[base:] {
		if e := &d.entries[base+i]; e.field < 0 && e.key == key {
			d.duplicate(key)
			break
		}
	}
	d.push(step{key: key})
	v := d.tree(true)
	d.pop()
	d.entries = append(d.entries, entry{key: key, field: -1, value: v})
}

func (d *decoder) takeStruct(t *Type, base int, seen *fieldSet, m map[string]any) map[string]any {
	entries := d.entries[base:]
	if m == nil {
		missing := 0
		for _, i := range t.written {
			if !seen.has(int(i)) {
				missing++
			}
		}
		m = make(map[string]any, len(entries)+missing)
	}
	for i := range entries {
		e := &entries[i]
		if e.field >= 0 && t.Fields[e.field].omits(e.value) {
			delete(m, e.key) // from an earlier occurrence
			continue
		}
		m[e.key] = e.value
	}
	clear(entries)
	d.entries = d.entries[:base]
	t.fill(m)
	return m
}

// tree reads any value. With strict, a key that stands twice is a finding.
func (d *decoder) tree(strict bool) any {
	switch c := d.space(); c {
	case '"':
		return d.string()
	case '{':
		return d.anyObject(strict)
	case '[':
		base := len(d.items)
		d.enter()
		d.push(step{item: true})
		for first := true; d.more(']', first); first = false {
			d.steps[len(d.steps)-1].index = len(d.items) - base
			d.items = append(d.items, d.tree(strict))
		}
		d.pop()
		return d.takeItems(base)
	case 'n':
		d.literal("null")
		return nil
	case 't', 'f':
		return d.bool()
	}
	return d.anyNumber()
}

func (d *decoder) anyObject(strict bool) any {
	base := len(d.entries)
	var seen map[string]bool
	d.enter()
	for first := true; d.more('}', first); first = false {
		key := d.key()
		if strict {
			seen = d.sawKey(base, seen, key)
		}
		d.push(step{key: key})
		v := d.tree(strict)
		d.pop()
		d.entries = append(d.entries, entry{key: key, value: v})
	}
	return d.takeEntries(base, nil)
}

// anyNumber reads an integer as one if it fits.
func (d *decoder) anyNumber() any {
	text := d.number()
	if !strings.Contains(text, ".") {
		if n, err := strconv.ParseInt(text, 10, 64); err == nil {
			return n
		}
	}
	f, err := strconv.ParseFloat(text, 64)
	if err != nil {
		d.mismatch(false, "number "+text, "float64")
	}
	return f
}

// fieldSet is a set of field indexes.
type fieldSet struct {
	low  uint64
	rest []uint64 // of structs with more than 64 fields
}

func (s *fieldSet) has(i int) bool {
	if i < 64 {
		return s.low&(1<<i) != 0
	}
	i -= 64
	return i/64 < len(s.rest) && s.rest[i/64]&(1<<(i%64)) != 0
}

func (s *fieldSet) add(i int) {
	if i < 64 {
		s.low |= 1 << i
		return
	}
	i -= 64
	for len(s.rest) <= i/64 {
		s.rest = append(s.rest, 0)
	}
	s.rest[i/64] |= 1 << (i % 64)
}
