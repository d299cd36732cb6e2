// Package tree reads and changes objects that are trees: map[string]any, []any, string, bool, int64,
// float64 and nil.
//
// A read of something that is not there, or of another type, gives the zero value and never panics;
// it allocates nothing unless it says so. So a rule about spec.strategy.type reads
//
//	if tree.Str(obj, "spec", "strategy", "type") == "Recreate" { … }
//
// The functions that change an object change it in place; the caller must own it.
package tree

import "iter"

// Get returns the value at a path of map keys, or nil.
func Get(obj map[string]any, path ...string) any {
	var v any = obj
	for _, key := range path {
		m, ok := v.(map[string]any)
		if !ok {
			return nil
		}
		v = m[key]
	}
	return v
}

// Has says whether there is a value at the path, and it is not nil.
func Has(obj map[string]any, path ...string) bool { return Get(obj, path...) != nil }

// Str returns the string at the path, or "".
func Str(obj map[string]any, path ...string) string {
	s, _ := Get(obj, path...).(string)
	return s
}

// Bool returns the boolean at the path, or false.
func Bool(obj map[string]any, path ...string) bool {
	b, _ := Get(obj, path...).(bool)
	return b
}

// Int returns the integer at the path, or 0.
func Int(obj map[string]any, path ...string) int64 {
	n, _ := Get(obj, path...).(int64)
	return n
}

// Map returns the map at the path, or nil.
func Map(obj map[string]any, path ...string) map[string]any {
	m, _ := Get(obj, path...).(map[string]any)
	return m
}

// List returns the list at the path, or nil.
func List(obj map[string]any, path ...string) []any {
	l, _ := Get(obj, path...).([]any)
	return l
}

// Maps goes through the maps in the list at the path, each with its index.
func Maps(obj map[string]any, path ...string) iter.Seq2[int, map[string]any] {
	list := List(obj, path...)
	return func(yield func(int, map[string]any) bool) {
		for i, v := range list {
			if m, ok := v.(map[string]any); ok && !yield(i, m) {
				return
			}
		}
	}
}

// Strings returns the strings in the list at the path, as a new slice; nil if there is no list.
func Strings(obj map[string]any, path ...string) []string {
	list := List(obj, path...)
	if list == nil {
		return nil
	}
	out := make([]string, len(list))
	for i, v := range list {
		out[i], _ = v.(string)
	}
	return out
}

// StringMap returns the map at the path with its strings, as a new map; nil if there is no map.
func StringMap(obj map[string]any, path ...string) map[string]string {
	m := Map(obj, path...)
	if m == nil {
		return nil
	}
	out := make(map[string]string, len(m))
	for k, v := range m {
		out[k], _ = v.(string)
	}
	return out
}

// Find returns the first map in a list whose key has the value, or nil: Find(containers, "name", "c").
func Find(list []any, key, value string) map[string]any {
	for _, v := range list {
		if m, ok := v.(map[string]any); ok && m[key] == value {
			return m
		}
	}
	return nil
}

// Set puts a value at the path and makes the maps on the way. A nil value, and one that is not a
// map on the way, are replaced.
func Set(obj map[string]any, value any, path ...string) {
	last := len(path) - 1
	Ensure(obj, path[:last]...)[path[last]] = value
}

// Default is Set where there is nothing, or nil.
func Default(obj map[string]any, value any, path ...string) {
	if !Has(obj, path...) {
		Set(obj, value, path...)
	}
}

// Ensure returns the map at the path and makes it, and those on the way, where there is none.
func Ensure(obj map[string]any, path ...string) map[string]any {
	for _, key := range path {
		next, ok := obj[key].(map[string]any)
		if !ok {
			next = map[string]any{}
			obj[key] = next
		}
		obj = next
	}
	return obj
}

// Delete removes what is at the path.
func Delete(obj map[string]any, path ...string) {
	last := len(path) - 1
	if m := Map(obj, path[:last]...); m != nil {
		delete(m, path[last])
	}
}

// Move makes the value at key of one object that of another, or removes it there if the first has
// none. The value is shared afterwards.
func Move(key string, from, to map[string]any) {
	if v, ok := from[key]; ok {
		to[key] = v
	} else {
		delete(to, key)
	}
}

// Copy returns a deep copy of a value.
func Copy(v any) any {
	switch v := v.(type) {
	case map[string]any:
		return CopyMap(v)
	case []any:
		if v == nil {
			return v
		}
		out := make([]any, len(v))
		for i := range v {
			out[i] = Copy(v[i])
		}
		return out
	}
	return v
}

// CopyMap returns a deep copy of an object; nil for nil.
func CopyMap(m map[string]any) map[string]any {
	if m == nil {
		return nil
	}
	out := make(map[string]any, len(m))
	for k, v := range m {
		out[k] = Copy(v)
	}
	return out
}
