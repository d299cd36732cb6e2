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
	c := comparer{}
	changed, removed = c.objects(t.root, live, obj, func(key string, l, r value) (node, node) {
		f := t.root.Field(key)
		switch {
		case slices.Contains(unownedFields, key) || slices.Contains(ignored.Fields, key):
			return nil, nil
		case key == "metadata" && f != nil:
			return c.metadata(f.Type, l, r, ignored.Metadata)
		}
		return c.values(fieldType(t.root, key), l, r)
	})
	return changed, removed, c.err
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

type comparer struct{ err error }

func (c *comparer) metadata(t *schema.Type, l, r value, ignored []string) (changed, removed node) {
	live, _ := l.v.(map[string]any)
	obj, _ := r.v.(map[string]any)
	return c.objects(t, live, obj, func(key string, l, r value) (node, node) {
		if slices.Contains(unownedMetadata, key) || slices.Contains(ignored, key) {
			return nil, nil
		}
		return c.values(fieldType(t, key), l, r)
	})
}

var anything = &schema.Type{Kind: schema.Any}

func fieldType(t *schema.Type, key string) *schema.Type {
	if t.Kind == schema.Map {
		return t.Elem
	}
	if f := t.Field(key); f != nil {
		return f.Type
	}
	return anything
}

// values compares what stands at one place. Maps and lists that are owned as a whole, and those
// that are empty on both sides, are like scalars.
func (c *comparer) values(t *schema.Type, l, r value) (changed, removed node) {
	switch t.Kind {
	case schema.Struct, schema.Map:
		live, _ := l.v.(map[string]any)
		obj, _ := r.v.(map[string]any)
		if t.Atomic || len(live) == 0 && len(obj) == 0 {
			break
		}
		changed, removed = c.objects(t, live, obj, func(key string, l, r value) (node, node) {
			return c.values(fieldType(t, key), l, r)
		})
		return c.withSelf(changed, removed, l, r)
	case schema.List:
		live, _ := l.v.([]any)
		obj, _ := r.v.([]any)
		if t.ListType != "set" && t.ListType != "map" || len(live) == 0 && len(obj) == 0 {
			break
		}
		changed, removed = c.lists(t, live, obj)
		return c.withSelf(changed, removed, l, r)
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

// withSelf adds the place itself where it came or went.
func (c *comparer) withSelf(changed, removed node, l, r value) (node, node) {
	if !l.ok {
		changed = build(changed, true)
	}
	if !r.ok {
		removed = build(removed, true)
	}
	return changed, removed
}

func (c *comparer) objects(t *schema.Type, live, obj map[string]any, member func(key string, l, r value) (node, node)) (changed, removed node) {
	for key, r := range obj {
		ch, rm := member(key, at(live, key), value{r, true})
		changed, removed = put(changed, "f:", key, ch), put(removed, "f:", key, rm)
	}
	for key, l := range live {
		if _, ok := obj[key]; ok {
			continue
		}
		ch, rm := member(key, value{l, true}, value{})
		changed, removed = put(changed, "f:", key, ch), put(removed, "f:", key, rm)
	}
	return changed, removed
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

// lists compares lists whose items have keys. Items that share a key are compared as one value.
func (c *comparer) lists(t *schema.Type, live, obj []any) (changed, removed node) {
	before, after := c.index(t, live), c.index(t, obj)
	for _, key := range after.keys {
		l, r := before.items[key], after.items[key]
		var ch, rm node
		switch {
		case len(l) <= 1 && len(r) <= 1:
			ch, rm = c.values(t.Elem, only(l), only(r))
		case len(l) > 1 && len(r) > 1:
			if !slices.EqualFunc(l, r, equal) {
				ch = leaf
			}
		case len(r) > 1:
			_, rm = c.values(t.Elem, only(l), value{})
			ch, rm = leaf, cond(len(l) == 1, rm)
		default:
			ch, _ = c.values(t.Elem, value{}, only(r))
			rm = leaf
		}
		changed, removed = put(changed, key, "", ch), put(removed, key, "", rm)
	}
	for _, key := range before.keys {
		if _, ok := after.items[key]; ok {
			continue
		}
		rm := leaf
		if l := before.items[key]; len(l) == 1 {
			_, rm = c.values(t.Elem, only(l), value{})
		}
		removed = put(removed, key, "", rm)
	}
	return changed, removed
}

func cond(ok bool, n node) node {
	if ok {
		return n
	}
	return nil
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
	items map[string][]any
}

func (c *comparer) index(t *schema.Type, list []any) indexed {
	if len(list) == 0 {
		return indexed{}
	}
	in := indexed{keys: make([]string, 0, len(list)), items: make(map[string][]any, len(list))}
	for i, item := range list {
		key, err := element(t, item)
		if err != nil {
			c.err = fmt.Errorf("item %d: %w", i, err)
			continue
		}
		if _, ok := in.items[key]; !ok {
			in.keys = append(in.keys, key)
			in.items[key] = list[i : i+1 : i+1]
			continue
		}
		in.items[key] = append(in.items[key], item)
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
				v = f.Default
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
