package etcd

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"

	"github.com/setpoint-dev/setpoint/store"
)

// keys are the names that a store has in etcd.
type keys struct{ prefix, head, epoch, compacted, objects string }

func newKeys(prefix string) keys {
	prefix += "/"
	return keys{
		prefix: prefix, head: prefix + "head", epoch: prefix + "epoch", compacted: prefix + "compacted",
		objects: prefix + "o/",
	}
}

func (k keys) of(key store.Key) string { return k.objects + key.Resource + "/" + key.Path }

func (k keys) parse(name []byte) (store.Key, error) {
	rest, ok := strings.CutPrefix(string(name), k.objects)
	resource, path, cut := strings.Cut(rest, "/")
	if !ok || !cut {
		return store.Key{}, fmt.Errorf("store: etcd has a key %q below the store's prefix, which is not the store's", name)
	}
	return store.Key{Resource: resource, Path: path}, nil
}

// A process tells the commits of one Store from those of others.
type process [8]byte

func newProcess() (p process) {
	_, _ = rand.Read(p[:]) // never fails
	return p
}

// A token names one commit.
type token [16]byte

func (s *Store) token() (t token) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.serial++
	copy(t[:], s.process[:])
	binary.BigEndian.PutUint64(t[8:], s.serial)
	return t
}

// A value in etcd is the object's with the offset where the revision goes, plus one, before it.
func appendValue(b, value []byte, revisionAt int) []byte {
	return append(binary.AppendUvarint(b, uint64(max(revisionAt, -1)+1)), value...)
}

var errDamaged = errors.New("store: etcd has a value that is damaged")

func parseValue(b []byte) (value []byte, revisionAt int, err error) {
	at, n := binary.Uvarint(b)
	if n <= 0 || at > uint64(len(b)-n)+1 {
		return nil, 0, errDamaged
	}
	return b[n:], int(at) - 1, nil
}

// The head is the commit's token, and for each change, in order, its origin and, of a deletion,
// the last state: its length and it, in the form of a value. The origin is its length, plus one, and
// it; zero is that of the change before, since the changes of a commit have one origin as a rule.
func appendHead(b []byte, t token) []byte { return append(b, t[:]...) }

// appendNote appends what the head says of a change; before is the change before it, or nil.
func appendNote(b []byte, op, before *store.Op) []byte {
	if before != nil && op.Origin == before.Origin {
		b = append(b, 0)
	} else {
		b = binary.AppendUvarint(b, uint64(len(op.Origin))+1)
		b = append(b, op.Origin...)
	}
	if op.Type == store.Delete {
		last := appendValue(nil, op.Value, op.RevisionAt)
		b = binary.AppendUvarint(b, uint64(len(last)))
		b = append(b, last...)
	}
	return b
}

// head reads the head of a commit, part by part. After an error it says nothing.
type head struct {
	rest   []byte
	before string // origin
	err    error
}

func parseHead(b []byte) (t token, h head) {
	if len(b) < len(t) {
		return t, head{err: errDamaged}
	}
	copy(t[:], b)
	return t, head{rest: b[len(t):]}
}

func (h *head) number() uint64 {
	number, n := binary.Uvarint(h.rest)
	if n <= 0 {
		h.err, h.rest = errDamaged, nil
		return 0
	}
	h.rest = h.rest[n:]
	return number
}

func (h *head) bytes(length uint64) []byte {
	if length > uint64(len(h.rest)) {
		h.err, h.rest = errDamaged, nil
		return nil
	}
	part := h.rest[:length]
	h.rest = h.rest[length:]
	return part
}

func (h *head) origin() string {
	if n := h.number(); n > 0 {
		h.before = string(h.bytes(n - 1))
	}
	return h.before
}

func (h *head) last() (value []byte, revisionAt int) {
	value, revisionAt, err := parseValue(h.bytes(h.number()))
	if h.err == nil {
		h.err = err
	}
	if len(value) == 0 {
		return nil, -1
	}
	return value, revisionAt
}
