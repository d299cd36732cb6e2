package checker

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/setpoint-dev/setpoint/store"
)

// The keys of the traffic: two namespaces of one resource, and another resource. They are few, so
// that clients meet.
var keys = func() (all [keyCount]store.Key) {
	for i := range all {
		switch {
		case i < keysOfA:
			all[i] = store.Key{Resource: "pods", Path: fmt.Sprintf("a/%d", i)}
		case i < keyCount-1:
			all[i] = store.Key{Resource: "pods", Path: fmt.Sprintf("b/%d", i)}
		default:
			all[i] = store.Key{Resource: "nodes", Path: "n"}
		}
	}
	return all
}()

const (
	keyCount = 9
	keysOfA  = 4
)

var resources = [...]string{"pods", "nodes"}

func keyIndex(k store.Key) int { return slices.Index(keys[:], k) }

// cell is an object, or the zero cell where there is none.
type cell struct {
	value             string
	revision, created store.Revision
}

// world is a state of the store. It is comparable, which is what the search for an order needs.
type world struct {
	revision store.Revision
	cells    [keyCount]cell
}

func (w world) String() string {
	var text strings.Builder
	fmt.Fprintf(&text, "at %d:", w.revision)
	for i, c := range w.cells {
		if c != (cell{}) {
			fmt.Fprintf(&text, " %s=%s@%d", keys[i].Path, c.value, c.revision)
		}
	}
	return text.String()
}

// encode returns what is stored for a value, and where the revision goes.
func encode(value string) ([]byte, int) {
	const head = `{"resourceVersion":"`
	return []byte(head + `","value":"` + value + `"}`), len(head)
}

// decode returns the value and the revision that is stamped into it.
func decode(stored []byte) (value string, stamped store.Revision, err error) {
	parts := strings.Split(string(stored), `"`)
	if len(parts) != 9 {
		return "", 0, fmt.Errorf("%q is nothing that was stored", stored)
	}
	n, err := strconv.ParseInt(parts[3], 10, 64)
	return parts[7], store.Revision(n), err
}

// read returns the cell that an entry is.
func read(e *store.Entry) (cell, error) {
	value, stamped, err := decode(e.Value)
	if err == nil && stamped != e.Revision {
		err = fmt.Errorf("%s is at %d and stamped %d", e.Key, e.Revision, stamped)
	}
	if err != nil {
		return cell{}, violation("stamped", "%v", err)
	}
	return cell{value, e.Revision, e.Created}, nil
}

// observe reads all of a snapshot, by its lists and key by key.
func observe(s store.Snapshot) (world, error) {
	w := world{revision: s.Revision()}
	for _, resource := range resources {
		entries, more := s.List(resource, store.ListOptions{})
		if more {
			return w, violation("lists", "a list without a limit says that there is more")
		}
		for i, e := range entries {
			at := keyIndex(e.Key)
			if at < 0 || e.Key.Resource != resource || i > 0 && entries[i-1].Key.Path >= e.Key.Path {
				return w, violation("lists", "%s stands in the list of %s behind %d others", e.Key, resource, i)
			}
			c, err := read(e)
			if err != nil {
				return w, err
			}
			w.cells[at] = c
		}
	}
	for i, key := range keys {
		e := s.Get(key)
		if (e != nil) != (w.cells[i] != cell{}) || e != nil && e.Revision != w.cells[i].revision {
			return w, violation("lists", "%s is %v by itself and %v in the list", key, e, w.cells[i])
		}
	}
	return w, nil
}

// apply says what a commit with the revision makes of the world, as the contract has it.
func (w world) apply(ops []store.Op, revision store.Revision) (next world, changed, conflict bool) {
	for i := range ops {
		op := &ops[i]
		if op.Expect != store.Any && op.Expect != w.cells[keyIndex(op.Key)].revision {
			return w, false, true
		}
	}
	next = w
	for i := range ops {
		op := &ops[i]
		at := keyIndex(op.Key)
		was := w.cells[at]
		switch {
		case op.Type == store.Put && was.value != valueOf(op):
			next.cells[at] = cell{valueOf(op), revision, revision}
			if was != (cell{}) {
				next.cells[at].created = was.created
			}
		case op.Type == store.Delete && was != (cell{}):
			next.cells[at] = cell{}
		default:
			continue
		}
		changed = true
	}
	if changed {
		next.revision = revision
	}
	return next, changed, false
}

// valueOf is the value that an op writes; no two ops have the same unless one repeats the other.
func valueOf(op *store.Op) string {
	_, rest, _ := strings.Cut(string(op.Value), `"value":"`)
	return strings.TrimSuffix(rest, `"}`)
}
