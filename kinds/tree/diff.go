package tree

import (
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
)

// Equal says whether two values mean the same. A key that is not there, nil, and an empty list are
// the same; an empty map is not, since `emptyDir: {}` says something.
func Equal(a, b any) bool {
	if empty(a) || empty(b) {
		return empty(a) && empty(b)
	}
	switch a := a.(type) {
	case map[string]any:
		b, ok := b.(map[string]any)
		return ok && equalMaps(a, b)
	case []any:
		b, ok := b.([]any)
		return ok && slices.EqualFunc(a, b, Equal)
	}
	return a == b
}

func equalMaps(a, b map[string]any) bool {
	if reflect.ValueOf(a).Pointer() == reflect.ValueOf(b).Pointer() {
		return true
	}
	for k, v := range a {
		if !Equal(v, b[k]) {
			return false
		}
	}
	for k, v := range b {
		if _, ok := a[k]; !ok && !empty(v) {
			return false
		}
	}
	return true
}

func empty(v any) bool {
	if l, ok := v.([]any); ok {
		return len(l) == 0
	}
	return v == nil
}

// Diff returns the paths at which two values differ, the shortest that tell them apart, sorted; at
// most limit of them. A path reads "spec.containers[0].image", below the prefix given.
func Diff(a, b any, prefix string, limit int) []string {
	d := differ{limit: limit}
	d.walk(a, b, prefix)
	slices.Sort(d.paths)
	return d.paths
}

type differ struct {
	paths []string
	limit int
}

func (d *differ) walk(a, b any, path string) {
	if len(d.paths) >= d.limit || Equal(a, b) {
		return
	}
	switch a := a.(type) {
	case map[string]any:
		if b, ok := b.(map[string]any); ok {
			d.walkMaps(a, b, path)
			return
		}
	case []any:
		if b, ok := b.([]any); ok && len(a) == len(b) {
			for i := range a {
				d.walk(a[i], b[i], path+"["+strconv.Itoa(i)+"]")
			}
			return
		}
	}
	d.paths = append(d.paths, path)
}

func (d *differ) walkMaps(a, b map[string]any, path string) {
	keys := slices.AppendSeq(slices.Collect(maps.Keys(a)), maps.Keys(b))
	slices.Sort(keys)
	for _, k := range slices.Compact(keys) {
		d.walk(a[k], b[k], join(path, k))
	}
}

func join(path, key string) string {
	switch {
	case strings.ContainsAny(key, "./"):
		return path + "[" + key + "]"
	case path == "":
		return key
	}
	return path + "." + key
}
