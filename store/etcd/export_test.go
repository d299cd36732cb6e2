package etcd

import "github.com/setpoint-dev/setpoint/store"

// HeadOf writes the head of a commit.
func HeadOf(ops []store.Op) []byte {
	b := appendHead(nil, token{1})
	for i := range ops {
		b = appendNote(b, &ops[i], before(ops, i))
	}
	return b
}

func before(ops []store.Op, i int) *store.Op {
	if i == 0 {
		return nil
	}
	return &ops[i-1]
}

// ReadHead reads one, as that of a commit whose changes are of the types.
func ReadHead(b []byte, types []store.EventType) (ops []store.Op, err error) {
	_, h := parseHead(b)
	for _, typ := range types {
		op := store.Op{Type: typ, Origin: h.origin(), RevisionAt: -1}
		if typ == store.Delete {
			op.Value, op.RevisionAt = h.last()
		}
		ops = append(ops, op)
	}
	return ops, h.err
}

// ParseValue reads a value.
var ParseValue = parseValue

// Measure makes the store aware of the room there is now, as it is itself in a moment.
func (s *Store) Measure() { s.measureOnce() }
