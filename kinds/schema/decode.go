package schema

import (
	"slices"
	"strings"
	"sync"

	kjson "sigs.k8s.io/json"
)

// DecodeJSON reads a body in one pass. A missing or null value is its type's zero value; a null
// body is an empty object. The error, if any, is an *Error, and there is no object then.
//
// The object is the caller's, but for the trees of fieldsV1: those are shared, and never to be changed.
//
// Where a field stands twice, the second value is read into the first, as decoding into a Go type
// does: structs and maps are merged, the rest is replaced.
func (s *Schema) DecodeJSON(data []byte) (Decoded, error) {
	d := newDecoder(string(data))
	defer d.free()
	root := d.root(s.root())
	if !d.atEnd() {
		return Decoded{}, syntaxError(data)
	}
	if err := d.err(); err != nil {
		return Decoded{}, err
	}
	return Decoded{Object: root, Findings: s.ordered(d.findings)}, nil
}

// DecodeTree reads a JSON object that no type shapes, in one pass. ok is false for what a strict
// reader would not take: text that is not JSON, what is not an object, a key that stands twice.
func DecodeTree(data []byte) (obj map[string]any, ok bool) {
	d := newDecoder(string(data))
	defer d.free()
	if d.space() != '{' {
		return nil, false
	}
	obj, _ = d.anyObject(true).(map[string]any)
	return obj, d.atEnd() && d.err() == nil && len(d.findings) == 0
}

// ordered puts the findings about a loose object into the order in which upstream has them, which
// prunes such objects after reading them: duplicate fields as they were met, then unknown ones by
// name.
func (s *Schema) ordered(findings []string) []string {
	if len(findings) < 2 || !s.root().Loose {
		return findings
	}
	unknown := func(f string) bool { return strings.HasPrefix(f, unknownField) }
	slices.SortStableFunc(findings, func(a, b string) int {
		switch {
		case unknown(a) && unknown(b):
			return strings.Compare(a, b)
		case unknown(a):
			return 1
		case unknown(b):
			return -1
		}
		return 0
	})
	return findings
}

var decoders = sync.Pool{New: func() any { return new(decoder) }}

func newDecoder(src string) *decoder {
	d := decoders.Get().(*decoder)
	d.src = src
	return d
}

// free gives the decoder's scratch space to the next one, holding on to nothing of the object.
func (d *decoder) free() {
	if cap(d.steps) > stackMax || cap(d.scratch) > scratchMax || !d.stack.reset() {
		return
	}
	clear(d.steps[:cap(d.steps)])
	*d = decoder{
		scanner: scanner{scratch: d.scratch},
		report:  report{steps: d.steps[:0]},
		stack:   d.stack,
	}
	decoders.Put(d)
}

// atEnd says that the text was JSON and nothing follows.
func (d *decoder) atEnd() bool { return d.space() == 0 && d.pos == len(d.src) && !d.bad }

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
	stack
}

func (d *decoder) root(t *Type) map[string]any {
	switch c := d.space(); c {
	case '{':
		return d.object(t, nil)
	case 'n':
		d.literal("null")
		return t.zero().(map[string]any)
	default:
		d.mismatch(head, found(c), headType)
		d.skip()
		return nil
	}
}

// headType is the type into which upstream reads a body first.
const headType = `struct { APIVersion string "json:\"apiVersion,omitempty\""; ` +
	`Kind string "json:\"kind,omitempty\"" }`

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
			return d.integer(t, soft)
		}
	case Any:
		switch {
		case t.shared:
			return d.sharedTree()
		case t.Meant != 0 && c == '{':
			return d.object(emptied, nil)
		case t.Meant != 0 && c == '[':
			return d.list(emptiedList, nil)
		}
		return d.tree(t.Loose)
	default:
		return d.special(t, c)
	}
	if t.Loose {
		return d.tree(true)
	}
	d.mismatch(soft, found(c), t.GoName)
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

// list reads an array; its first items are read into those of old.
func (d *decoder) list(t *Type, old []any) any {
	base := len(d.items)
	d.enter()
	d.push(step{item: true})
	for first := true; d.more(']', first); first = false {
		i := len(d.items) - base
		d.at(i)
		var prev any
		if i < len(old) {
			prev = old[i]
		}
		d.items = append(d.items, d.value(t.Elem, t.NullableElem, prev))
	}
	d.pop()
	return d.takeItems(base)
}

// dictionary reads an object into a map, which is old if that is not nil.
func (d *decoder) dictionary(t *Type, old map[string]any) any {
	base := len(d.entries)
	var seen map[string]bool
	d.enter()
	d.push(step{index: nowhere})
	for first := true; d.more('}', first); first = false {
		key := d.key()
		seen = d.sawKey(base, seen, key)
		d.atKey(key)
		v := d.value(t.Elem, t.NullableElem, nil)
		d.entries = append(d.entries, entry{key: key, value: v})
	}
	d.pop()
	return d.takeMap(base, old)
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

// object reads an object into a struct, which is old if that is not nil.
func (d *decoder) object(t *Type, old map[string]any) map[string]any {
	base := len(d.entries)
	var seen fieldSet
	var unknown map[string]bool // see sawKey
	d.enter()
	d.push(step{owner: t, index: nowhere})
	for first := true; d.more('}', first); first = false {
		key := d.key()
		i := t.find(key)
		switch {
		case i >= 0:
			d.field(t, i, base, &seen, old)
		case t.PreserveUnknown:
			unknown = d.sawKey(base, unknown, key)
			d.preserve(key)
		default:
			d.unknown(key)
			d.skip()
		}
	}
	d.pop()
	return d.takeStruct(t, base, &seen, old)
}

// field reads the value of a field into the entries.
func (d *decoder) field(t *Type, i, base int, seen *fieldSet, old map[string]any) {
	f := &t.Fields[i]
	prev := old[f.Name]
	if seen.has(i) {
		d.duplicate(f.Name)
		prev = d.latest(base, i)
	}
	seen.add(i)
	d.at(i)
	v := d.value(f.Type, f.Pointer, prev)
	d.entries = append(d.entries, entry{key: f.Name, field: i, value: v})
}

// preserve reads an unknown field that is kept as it is.
func (d *decoder) preserve(key string) {
	d.at(nowhere)
	d.push(step{key: key})
	v := d.tree(true)
	d.pop()
	d.entries = append(d.entries, entry{key: key, field: noField, value: v})
}
