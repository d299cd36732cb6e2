package managed

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/setpoint-dev/setpoint/kinds/tree"
)

// id tells entries apart. Appliers have one entry whatever version they apply, so theirs has no
// apiVersion in the comparison; see sameID.
type id struct{ manager, operation, apiVersion, subresource string }

// entry is one element of managedFields.
type entry struct {
	id
	time   string // "" if it was never said
	fields node
}

func sameID(a, b id) bool {
	if a.operation == opApply {
		a.apiVersion, b.apiVersion = "", ""
	}
	return a == b
}

// parse reads managedFields. Of entries with the same id the last one counts.
func parse(list []any) ([]entry, error) {
	if len(list) == 0 {
		return nil, nil
	}
	entries := make([]entry, 0, len(list)+1)
	for i, v := range list {
		m, _ := v.(map[string]any)
		e := entry{
			id: id{
				manager: tree.Str(m, "manager"), operation: tree.Str(m, "operation"),
				apiVersion: tree.Str(m, "apiVersion"), subresource: tree.Str(m, "subresource"),
			},
			time: tree.Str(m, "time"),
		}
		if err := e.check(tree.Str(m, "fieldsType")); err != nil {
			return nil, fmt.Errorf("entry %d: %w", i, err)
		}
		fields, err := parseFields(m["fieldsV1"])
		if err != nil {
			return nil, fmt.Errorf("entry %d: %w", i, err)
		}
		if e.fields = fields; len(fields) == 0 {
			e.fields = nil
		}
		if at := slices.IndexFunc(entries, func(o entry) bool { return sameID(o.id, e.id) }); at >= 0 {
			entries[at] = e
			continue
		}
		entries = append(entries, e)
	}
	return entries, nil
}

func (e entry) check(fieldsType string) error {
	switch {
	case e.operation != opApply && e.operation != opUpdate:
		return fmt.Errorf("operation must be %s or %s, not %q", opApply, opUpdate, e.operation)
	case e.apiVersion == "":
		return fmt.Errorf("apiVersion must not be empty")
	case fieldsType != "FieldsV1":
		return fmt.Errorf("fieldsType must be FieldsV1, not %q", fieldsType)
	}
	return nil
}

// parseFields checks that a tree is a set of fields. Path elements of a kind that is not known are
// left out, since a later version may know them.
func parseFields(v any) (node, error) {
	n, ok := v.(node)
	if !ok {
		if v == nil {
			return nil, nil
		}
		return nil, fmt.Errorf("fieldsV1 must hold objects only")
	}
	for key, child := range n {
		if err := checkElement(key); err != nil {
			return nil, err
		}
		if _, err := parseFields(child); err != nil {
			return nil, err
		}
	}
	return n, nil
}

func checkElement(key string) error {
	if key == self || strings.HasPrefix(key, "f:") {
		return nil
	}
	kind, text, ok := strings.Cut(key, ":")
	valid := ok && len(kind) == 1
	switch kind {
	case "k", "v":
		valid = valid && json.Valid([]byte(text))
	case "i":
		_, err := strconv.Atoi(text)
		valid = valid && err == nil
	}
	if !valid {
		return fmt.Errorf("%q is not an element of a path", key)
	}
	return nil
}

// set writes the entries into an object, in the order in which upstream lists them.
func set(obj map[string]any, entries []entry) {
	entries = slices.DeleteFunc(entries, func(e entry) bool { return e.fields == nil })
	if len(entries) == 0 {
		tree.Delete(obj, "metadata", "managedFields")
		return
	}
	slices.SortStableFunc(entries, func(a, b entry) int {
		return cmp.Or(
			cmp.Compare(a.operation, b.operation),
			cmp.Compare(seconds(a.time), seconds(b.time)),
			cmp.Compare(a.manager, b.manager),
			cmp.Compare(a.apiVersion, b.apiVersion),
			cmp.Compare(a.subresource, b.subresource),
		)
	})
	list := make([]any, len(entries))
	for i, e := range entries {
		list[i] = e.tree()
	}
	tree.Ensure(obj, "metadata")["managedFields"] = list
}

func (e entry) tree() map[string]any {
	m := map[string]any{
		"manager": e.manager, "operation": e.operation, "apiVersion": e.apiVersion,
		"fieldsType": "FieldsV1", "fieldsV1": e.fields,
	}
	if e.time != "" {
		m["time"] = e.time
	}
	if e.subresource != "" {
		m["subresource"] = e.subresource
	}
	return m
}

// seconds orders times; one that is not given comes first.
func seconds(text string) int64 {
	if text == "" {
		return 0
	}
	t, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return 0
	}
	return t.Unix()
}

// limit merges the oldest updates of each version when there are too many.
func limit(entries []entry) []entry {
	updaters := 0
	for _, e := range entries {
		if e.operation == opUpdate {
			updaters++
		}
	}
	if updaters <= updatersMax {
		return entries
	}
	slices.SortStableFunc(entries, func(a, b entry) int {
		return cmp.Or(cmp.Compare(seconds(a.time), seconds(b.time)), cmp.Compare(a.manager, b.manager))
	})
	first := map[string]int{} // version to the index of the entry that others are merged into
	for i := 0; i < len(entries) && updaters > updatersMax; i++ {
		e := &entries[i]
		if e.operation != opUpdate {
			continue
		}
		at, ok := first[e.apiVersion]
		if !ok {
			first[e.apiVersion] = i
			continue
		}
		into := &entries[at]
		into.id = id{manager: "ancient-changes", operation: opUpdate, apiVersion: e.apiVersion}
		into.fields, into.time = union(into.fields, e.fields), e.time
		e.fields = nil
		updaters--
	}
	return entries
}
