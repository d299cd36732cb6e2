package managed

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"

	"github.com/setpoint-dev/setpoint/kinds/schema"
)

// What the server sets for everybody belongs to nobody.
var (
	unownedFields   = []string{"apiVersion", "kind"}
	unownedMetadata = []string{"name", "namespace", "creationTimestamp", "selfLink", "uid", "clusterName",
		"generation", "managedFields", "resourceVersion"}
)

// compare returns the fields that obj has and live has not, or has with another value, and the
// fields that only live has. It fails for lists whose items do not have their keys.
func compare(t *Type, live, obj map[string]any, ignored Ignored) (changed, removed node, err error) {
	c := comparer{
		root:         t.root,
		skip:         slices.Concat(unownedFields, ignored.Fields),
		skipMetadata: slices.Concat(unownedMetadata, ignored.Metadata),
	}
	changed, removed = c.objects(t.root, live, obj, c.skip)
	return changed, removed, c.err
}

type comparer struct {
	root *schema.Type
	// skip names the object's fields that are not looked at, skipMetadata those of its metadata.
	skip, skipMetadata []string
	err                error
}

// value is a value that may not be there; null is there.
type value struct {
	v  any
	ok bool
}

func at(m map[string]any, key string) value {
	v, ok := m[key]
	return value{v, ok}
}

var (
	anything = &schema.Type{Kind: schema.Any}
	// undeclared is what a declared object keeps without knowing it: maps of more of it.
	undeclared = func() *schema.Type {
		t := &schema.Type{Kind: schema.Map, Loose: true}
		t.Elem = t
		return t
	}()
)

func fieldType(t *schema.Type, key string) *schema.Type {
	if t.Kind == schema.Map {
		return t.Elem
	}
	if f := t.Field(key); f != nil {
		return f.Type
	}
	if t.Loose && t.PreserveUnknown {
		return undeclared
	}
	return anything
}

// objects compares maps and structs member by member.
func (c *comparer) objects(t *schema.Type, live, obj map[string]any, skip []string) (changed, removed node) {
	for key, r := range obj {
		if !slices.Contains(skip, key) {
			ch, rm := c.member(t, key, at(live, key), value{r, true})
			changed, removed = put(changed, "f:", key, ch), put(removed, "f:", key, rm)
		}
	}
	for key, l := range live {
		if _, ok := obj[key]; !ok && !slices.Contains(skip, key) {
			ch, rm := c.member(t, key, value{l, true}, value{})
			changed, removed = put(changed, "f:", key, ch), put(removed, "f:", key, rm)
		}
	}
	return changed, removed
}

func (c *comparer) member(t *schema.Type, key string, l, r value) (changed, removed node) {
	ft := fieldType(t, key)
	if t != c.root || key != "metadata" {
		return c.values(ft, l, r)
	}
	// Metadata itself belongs to nobody.
	live, _ := l.v.(map[string]any)
	obj, _ := r.v.(map[string]any)
	return c.objects(ft, live, obj, c.skipMetadata)
}

func put(n node, prefix, key string, child node) node {
	if child == nil {
		return n
	}
	if n == nil {
		n = node{}
	}
	n[prefix+key] = child
	return n
}

// values compares what stands at one place. Maps and lists that are owned as a whole, and those
// that are empty on both sides, are like scalars.
func (c *comparer) values(t *schema.Type, l, r value) (changed, removed node) {
	if t.Loose && !fits(t.Kind, l.v, r.v) {
		t = anything
	}
	switch t.Kind {
	case schema.Struct, schema.Map:
		live, _ := l.v.(map[string]any)
		obj, _ := r.v.(map[string]any)
		if t.Atomic || len(live) == 0 && len(obj) == 0 {
			break
		}
		changed, removed = c.objects(t, live, obj, nil)
		return withSelf(changed, removed, l, r)
	case schema.List:
		live, _ := l.v.([]any)
		obj, _ := r.v.([]any)
		if t.ListType != "set" && t.ListType != "map" || len(live) == 0 && len(obj) == 0 {
			break
		}
		changed, removed = c.lists(t, live, obj)
		return withSelf(changed, removed, l, r)
	}
	switch {
	case !l.ok:
		return leaf, nil
	case !r.ok:
		return nil, leaf
	case !equal(l.v, r.v):
		return leaf, nil
	}
	return nil, nil
}

// fits says whether values that are there are of the kind that a loose type has.
func fits(kind schema.Kind, values ...any) bool {
	for _, v := range values {
		_, isMap := v.(map[string]any)
		_, isList := v.([]any)
		if v != nil && isMap != (kind == schema.Struct || kind == schema.Map) || v != nil && isList != (kind == schema.List) {
			return false
		}
	}
	return true
}

// withSelf adds the place itself where it came or went.
func withSelf(changed, removed node, l, r value) (node, node) {
	if !l.ok {
		changed = build(changed, true)
	}
	if !r.ok {
		removed = build(removed, true)
	}
	return changed, removed
}

// lists compares lists whose items have keys. Items that share a key are compared as one value.
func (c *comparer) lists(t *schema.Type, live, obj []any) (changed, removed node) {
	before, after := c.index(t, live), c.index(t, obj)
	for i, key := range after.keys {
		ch, rm := c.items(t.Elem, before.find(key), after.items[i])
		changed, removed = put(changed, key, "", ch), put(removed, key, "", rm)
	}
	for i, key := range before.keys {
		if after.find(key) == nil {
			_, rm := c.items(t.Elem, before.items[i], nil)
			removed = put(removed, key, "", rm)
		}
	}
	return changed, removed
}

// items compares the items of one key.
func (c *comparer) items(t *schema.Type, l, r []any) (changed, removed node) {
	switch {
	case len(l) <= 1 && len(r) <= 1:
		return c.values(t, only(l), only(r))
	case len(l) > 1 && len(r) > 1:
		if !slices.EqualFunc(l, r, equal) {
			changed = leaf
		}
		return changed, nil
	case len(r) > 1: // there was one, or none
		if len(l) == 1 {
			_, removed = c.values(t, only(l), value{})
		}
		return leaf, removed
	default: // there were several
		if len(r) == 1 {
			changed, _ = c.values(t, value{}, only(r))
		}
		return changed, leaf
	}
}

func only(items []any) value {
	if len(items) == 0 {
		return value{}
	}
	return value{items[0], true}
}

// indexed is a list's items by their path elements, in the order of their first appearance.
type indexed struct {
	keys  []string
	items [][]any
	at    map[string]int // only of a long list
}

// longList is from where a map finds an item sooner than looking at all keys.
const longList = 16

func (in *indexed) find(key string) []any {
	i, ok := in.at[key]
	if in.at == nil {
		i = slices.Index(in.keys, key)
		ok = i >= 0
	}
	if !ok {
		return nil
	}
	return in.items[i]
}

func (c *comparer) index(t *schema.Type, list []any) indexed {
	if len(list) == 0 {
		return indexed{}
	}
	in := indexed{keys: make([]string, 0, len(list)), items: make([][]any, 0, len(list))}
	if len(list) > longList {
		in.at = make(map[string]int, len(list))
	}
	for i, item := range list {
		key, err := element(t, item)
		if err != nil {
			c.err = fmt.Errorf("item %d: %w", i, err)
			continue
		}
		if in.find(key) != nil {
			at := slices.Index(in.keys, key)
			in.items[at] = append(in.items[at], item)
			continue
		}
		if in.at != nil {
			in.at[key] = len(in.keys)
		}
		in.keys = append(in.keys, key)
		in.items = append(in.items, list[i:i+1:i+1])
	}
	return in
}

// element returns the path element of a list's item: v:VALUE in a set, k:{KEY: VALUE, …} in a map.
func element(t *schema.Type, item any) (string, error) {
	if t.ListType == "set" {
		return string(appendJSON([]byte("v:"), item)), nil
	}
	m, ok := item.(map[string]any)
	if !ok {
		return "", fmt.Errorf("must be an object, not %T", item)
	}
	keys := t.ListKeys
	if !slices.IsSorted(keys) {
		keys = slices.Sorted(slices.Values(keys))
	}
	b := append(make([]byte, 0, 64), "k:{"...)
	for i, key := range keys {
		v, ok := m[key]
		if !ok {
			if f := t.Elem.Field(key); f != nil {
				v = absentKey(f)
			}
			if v == nil {
				return "", fmt.Errorf("omits key field %q and has no default for it", key)
			}
		}
		if i > 0 {
			b = append(b, ',')
		}
		b = append(appendJSON(b, key), ':')
		b = appendJSON(b, v)
	}
	return string(append(b, '}')), nil
}

// appendJSON appends a scalar as encoding/json writes it.
func appendJSON(b []byte, v any) []byte {
	switch v := v.(type) {
	case string:
		if plain(v) {
			b = append(b, '"')
			b = append(b, v...)
			return append(b, '"')
		}
	case int64:
		return strconv.AppendInt(b, v, 10)
	}
	text, err := json.Marshal(v)
	if err != nil {
		panic("managed: a tree holds what is no JSON: " + err.Error())
	}
	return append(b, text...)
}

func plain(s string) bool {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c >= 0x7f || c == '"' || c == '\\' || c == '<' || c == '>' || c == '&' {
			return false
		}
	}
	return true
}

// equal compares values of canonical trees.
func equal(a, b any) bool {
	switch a := a.(type) {
	case map[string]any:
		b, ok := b.(map[string]any)
		if !ok || len(a) != len(b) {
			return false
		}
		for key, v := range a {
			if w, ok := b[key]; !ok || !equal(v, w) {
				return false
			}
		}
		return true
	case []any:
		b, ok := b.([]any)
		return ok && slices.EqualFunc(a, b, equal)
	case int64:
		if f, ok := b.(float64); ok {
			return float64(a) == f
		}
	case float64:
		if n, ok := b.(int64); ok {
			return a == float64(n)
		}
	}
	switch b.(type) {
	case map[string]any, []any:
		return false
	}
	return a == b
}
