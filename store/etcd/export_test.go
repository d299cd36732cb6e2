package etcd

import "github.com/setpoint-dev/setpoint/store"

// StepsMax is how many revisions of a store one of etcd's has.
const StepsMax = stepsMax

// FlyingMax is how many transactions are under way at once.
const FlyingMax = flyingMax

// QuietFor is how long a store sends nothing when another has asked for it.
const QuietFor = quietFor

// HeadOf writes the head of a transaction of one commit.
func HeadOf(ops []store.Op) []byte {
	b := appendCount(appendHead(nil, token{1}, 1), len(ops))
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
	h.count(len(types))
	for _, typ := range types {
		op := store.Op{Type: typ, Origin: h.origin(), RevisionAt: -1}
		if typ == store.Delete {
			op.Value, op.RevisionAt = h.last()
		}
		ops = append(ops, op)
	}
	return ops, h.err
}

// ParseStored reads what etcd has of an object.
func ParseStored(b []byte) (value []byte, revisionAt int, err error) {
	v, err := parseStored(b)
	return v.value, v.revisionAt, err
}

// ForgetInEtcd has etcd forget what was compacted, as it does in a minute.
func (s *Store) ForgetInEtcd() { s.forgetInEtcd(s.Compacted()) }

// Measure makes the store aware of the room there is now, as it is itself in a moment.
func (s *Store) Measure() { s.measureOnce() }

// Awaited says how many wait for what memory has not got yet.
func (s *Store) Awaited() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.waiters)
}

// Asked says how many commits were asked for.
func (s *Store) Asked() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return int(s.asked)
}
