package schema

// stack holds the objects and lists under way, the innermost last, so that each becomes a map or a
// slice of just its size when it is complete.
type stack struct {
	entries []entry
	items   []any
}

// entry is a field of an object, or with field < 0 a key without one.
type entry struct {
	key   string
	field int
	value any
}

// stackMax and scratchMax, in bytes, bound the space that one huge object leaves to the next ones.
const (
	stackMax   = 4096
	scratchMax = 64 << 10
)

// reset empties the stack, so that it holds on to nothing, and says whether it is worth keeping.
func (s *stack) reset() bool {
	if cap(s.entries)+cap(s.items) > stackMax {
		return false
	}
	clear(s.entries[:cap(s.entries)])
	clear(s.items[:cap(s.items)])
	s.entries, s.items = s.entries[:0], s.items[:0]
	return true
}

// takeItems removes the items from base on and returns them as a list.
func (s *stack) takeItems(base int) []any {
	list := make([]any, len(s.items)-base)
	copy(list, s.items[base:])
	s.items = s.items[:base]
	return list
}

// takeMap removes the entries from base on and puts them into m, or into a new map if that is nil.
func (s *stack) takeMap(base int, m map[string]any) map[string]any {
	entries := s.entries[base:]
	if m == nil {
		m = make(map[string]any, len(entries))
	}
	for i := range entries {
		m[entries[i].key] = entries[i].value
	}
	s.entries = s.entries[:base]
	return m
}

// takeStruct removes the entries from base on, of which seen says which fields they are, and makes
// the canonical struct of them: in m, or a new one if that is nil.
func (s *stack) takeStruct(t *Type, base int, seen *fieldSet, m map[string]any) map[string]any {
	entries := s.entries[base:]
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
	s.entries = s.entries[:base]
	t.fill(m)
	return m
}

// latest returns the value of a field among the entries from base on, or nil.
func (s *stack) latest(base, field int) any {
	for i := len(s.entries) - 1; i >= base; i-- {
		if s.entries[i].field == field {
			return s.entries[i].value
		}
	}
	return nil
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
