// Package changes says what is different between two states of an object: in a few words, or as a
// unified diff of its YAML. It is pure. A state that is nil is that of an object that is not there.
//
// What changes with every write is left out: metadata.managedFields, resourceVersion and generation,
// and the annotation in which kubectl keeps what it applied last. The values of a Secret are never
// shown, only that they differ.
package changes

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/pmezard/go-difflib/difflib"
	"sigs.k8s.io/yaml"
)

// wordsMax is how many changes are named: as many as fit a line.
const wordsMax = 4

// valueMax is how many characters of a value are shown.
const valueMax = 40

// Words returns what a write has made of before, such as "spec.replicas 1→3, +metadata.labels.a=b".
// A plus is before what is new, a minus before what is gone. Both trees are changed.
func Words(before, after map[string]any) string {
	switch {
	case before == nil:
		return "created"
	case after == nil:
		return "deleted"
	}
	clean(before, after)
	var found []string
	compare("", before, after, &found)
	slices.SortStableFunc(found, func(a, b string) int { return rank(a) - rank(b) })
	switch n := len(found); {
	case n == 0:
		return "nothing that is shown"
	case n > wordsMax+1:
		found = append(found[:wordsMax], fmt.Sprintf("and %d more", n-wordsMax))
	}
	return strings.Join(found, ", ")
}

// Unified returns the diff of an object's YAML, or "" if there is none. Both trees are changed. The
// names are those of the two states; that of an object that is not there is /dev/null.
func Unified(fromName, toName string, before, after map[string]any) (string, error) {
	clean(before, after)
	from, err := lines(before)
	if err != nil {
		return "", err
	}
	to, err := lines(after)
	if err != nil {
		return "", err
	}
	if before == nil {
		fromName = "/dev/null"
	}
	if after == nil {
		toName = "/dev/null"
	}
	const context = 3
	return difflib.GetUnifiedDiffString(difflib.UnifiedDiff{
		A: from, B: to, FromFile: fromName, ToFile: toName, Context: context,
	})
}

func lines(object map[string]any) ([]string, error) {
	if object == nil {
		return nil, nil
	}
	text, err := yaml.Marshal(object)
	return slices.Collect(strings.Lines(string(text))), err
}

// clean takes out of both states what is not to be shown.
func clean(before, after map[string]any) {
	for _, object := range []map[string]any{before, after} {
		metadata, _ := object["metadata"].(map[string]any)
		for _, name := range []string{"managedFields", "resourceVersion", "generation"} {
			delete(metadata, name)
		}
		annotations, _ := metadata["annotations"].(map[string]any)
		delete(annotations, "kubectl.kubernetes.io/last-applied-configuration")
		if len(annotations) == 0 {
			delete(metadata, "annotations")
		}
	}
	if isSecret(before) || isSecret(after) {
		hide(before, after)
	}
}

func isSecret(object map[string]any) bool {
	return object["kind"] == "Secret" && object["apiVersion"] == "v1"
}

// hide replaces the values of a Secret by whether they differ.
func hide(before, after map[string]any) {
	old, _ := before["data"].(map[string]any)
	now, _ := after["data"].(map[string]any)
	names := maps.Collect(maps.All(old)) // old may be nil
	maps.Copy(names, now)
	for name := range names {
		was, had := old[name]
		is, has := now[name]
		wasShown, isShown := "(hidden)", "(hidden)"
		if had && has && was != is {
			wasShown, isShown = "(old)", "(new)"
		}
		if had {
			old[name] = wasShown
		}
		if has {
			now[name] = isShown
		}
	}
}

// compare appends what differs below a path.
func compare(path string, before, after any, found *[]string) {
	if oldMap, nowMap, ok := both[map[string]any](before, after); ok {
		compareMaps(path, oldMap, nowMap, found, field)
		return
	}
	if oldList, nowList, ok := both[[]any](before, after); ok {
		if byName(oldList) != nil && byName(nowList) != nil {
			compareMaps(path, byName(oldList), byName(nowList), found, element)
			return
		}
		if len(oldList) == len(nowList) {
			for i := range oldList {
				compare(element(path, fmt.Sprint(i)), oldList[i], nowList[i], found)
			}
			return
		}
	}
	if old, now := show(before), show(after); old != now {
		*found = append(*found, path+" "+short(old)+"→"+short(now))
	}
}

// compareMaps compares by name; at makes the path of a name.
func compareMaps(path string, before, after map[string]any, found *[]string, at func(path, name string) string) {
	names := maps.Clone(before)
	maps.Copy(names, after)
	for _, name := range slices.Sorted(maps.Keys(names)) {
		old, had := before[name]
		now, has := after[name]
		switch path := at(path, name); {
		case !had:
			*found = append(*found, "+"+path+assigned(now))
		case !has:
			*found = append(*found, "-"+path)
		default:
			compare(path, old, now, found)
		}
	}
}

func both[T any](a, b any) (x, y T, ok bool) {
	x, isX := a.(T)
	y, isY := b.(T)
	return x, y, isX && isY
}

// byName returns the elements of a list under their names, or types as conditions have them; nil if
// that does not tell them apart.
func byName(list []any) map[string]any {
	named := map[string]any{}
	for _, item := range list {
		m, _ := item.(map[string]any)
		name, ok := m["name"].(string)
		if !ok {
			name, ok = m["type"].(string)
		}
		if _, twice := named[name]; twice || !ok {
			return nil
		}
		named[name] = item
	}
	return named
}

// field is the path of a field; names that look like paths are put in brackets.
func field(path, name string) string {
	switch {
	case path == "":
		return name
	case strings.ContainsAny(name, "./"):
		return element(path, name)
	}
	return path + "." + name
}

func element(path, name string) string { return path + "[" + name + "]" }

// assigned is "=value" of what has one value, and "" of what has parts.
func assigned(value any) string {
	switch value.(type) {
	case map[string]any, []any:
		return ""
	}
	return "=" + short(show(value))
}

// show is a value as text: its JSON, and a string as it is if that is one word.
func show(value any) string {
	if text, ok := value.(string); ok && text != "" && !strings.ContainsAny(text, " \t\r\n\",→") {
		return text
	}
	text, _ := json.Marshal(value) // it came from JSON
	return string(text)
}

func short(text string) string {
	if runes := []rune(text); len(runes) > valueMax {
		return string(runes[:valueMax-1]) + "…"
	}
	return text
}

// rank puts last what says only when something was, or why at length.
func rank(change string) int {
	path, _, _ := strings.Cut(change, " ")
	path, _, _ = strings.Cut(path, "=")
	switch {
	case !strings.Contains(path, "]."): // no detail of an element, such as a condition
		return 0
	case strings.HasSuffix(path, "Time"):
		return 2
	case strings.HasSuffix(path, ".message"):
		return 1
	}
	return 0
}
