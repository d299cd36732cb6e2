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
type keys struct{ prefix, head, epoch, compacted, quiet, objects string }

func newKeys(prefix string) keys {
	prefix += "/"
	return keys{
		prefix: prefix, head: prefix + "head", epoch: prefix + "epoch", compacted: prefix + "compacted",
		quiet: prefix + "quiet", objects: prefix + "o/",
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

// stepsMax is how many commits can share a transaction, and so a revision of etcd's.
const stepsMax = opsMax

// revision is that of a commit: it comes after some others of its transaction, whose revision is etcd's.
func (s *Store) revision(at int64, step int) store.Revision {
	return store.Revision((at-s.base)*stepsMax + int64(step))
}

func (s *Store) split(revision store.Revision) (at int64, step int) {
	return s.base + int64(revision)/stepsMax, int(revision % stepsMax)
}

// A process tells the commits of one Store from those of others.
type process [8]byte

func newProcess() (p process) {
	_, _ = rand.Read(p[:]) // never fails
	return p
}

// A token names one transaction.
type token [16]byte

func (t token) process() process { return process(t[:8]) }

func (s *Store) newToken() (t token) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.serial++
	copy(t[:], s.process[:])
	binary.BigEndian.PutUint64(t[8:], s.serial)
	return t
}

var errDamaged = errors.New("store: etcd has a value that is damaged")

// A last is an object's last state: where the revision goes, plus one, and its value.
func appendLast(b, value []byte, revisionAt int) []byte {
	return append(binary.AppendUvarint(b, uint64(max(revisionAt, -1)+1)), value...)
}

func parseLast(b []byte) (value []byte, revisionAt int, err error) {
	at, n := binary.Uvarint(b)
	if n <= 0 || at > uint64(len(b)-n)+1 {
		return nil, 0, errDamaged
	}
	return b[n:], int(at) - 1, nil
}

// stored is what etcd has of an object: its value and where the revision goes, and the steps of the
// commits that wrote it last and made it, whose etcd keeps.
type stored struct {
	value         []byte
	revisionAt    int
	written, made int
}

func appendStored(b []byte, v stored) []byte {
	return appendLast(append(b, byte(v.written), byte(v.made)), v.value, v.revisionAt)
}

func parseStored(b []byte) (v stored, err error) {
	if len(b) < 2 || b[0] >= stepsMax || b[1] >= stepsMax {
		return v, errDamaged
	}
	v.written, v.made = int(b[0]), int(b[1])
	v.value, v.revisionAt, err = parseLast(b[2:])
	return v, err
}

// The head is the transaction's token and how many commits it has, and for each how many changes, and
// for each of those, in order, its origin and, of a deletion, the last state with its length before it.
// The origin is its length, plus one, and it; zero is that of the change before, since the changes of a
// commit have one origin as a rule.
func appendHead(b []byte, t token, commits int) []byte {
	return appendCount(append(b, t[:]...), commits)
}

func appendCount(b []byte, n int) []byte { return binary.AppendUvarint(b, uint64(n)) }

// appendNote appends what the head says of a change; before is the change before it, or nil.
func appendNote(b []byte, op, before *store.Op) []byte {
	if before != nil && op.Origin == before.Origin {
		b = append(b, 0)
	} else {
		b = binary.AppendUvarint(b, uint64(len(op.Origin))+1)
		b = append(b, op.Origin...)
	}
	if op.Type == store.Delete {
		last := appendLast(nil, op.Value, op.RevisionAt)
		b = binary.AppendUvarint(b, uint64(len(last)))
		b = append(b, last...)
	}
	return b
}

// head reads the head of a transaction, part by part. After an error it says nothing.
type head struct {
	commits int
	rest    []byte
	before  string // origin
	err     error
}

func parseHead(b []byte) (t token, h head) {
	if len(b) < len(t) {
		return t, head{err: errDamaged}
	}
	copy(t[:], b)
	h.rest = b[len(t):]
	if h.commits = h.count(stepsMax); h.err != nil {
		h.commits = 0
	}
	return t, h
}

// count reads how many there are of something.
func (h *head) count(most int) int {
	n := h.number()
	if n > uint64(most) {
		h.err, h.rest = errDamaged, nil
		return 0
	}
	return int(n)
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
	value, revisionAt, err := parseLast(h.bytes(h.number()))
	if h.err == nil {
		h.err = err
	}
	if len(value) == 0 {
		return nil, -1
	}
	return value, revisionAt
}
