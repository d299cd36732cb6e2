package core

import (
	"bytes"
	"strconv"

	"github.com/setpoint-dev/setpoint/store"
)

// stamp inserts the revision into the value.
func stamp(value []byte, at int, revision store.Revision) []byte {
	if at < 0 || value == nil {
		return value
	}
	var digits [20]byte
	d := strconv.AppendInt(digits[:0], int64(revision), 10)
	stamped := make([]byte, 0, len(value)+len(d))
	stamped = append(stamped, value[:at]...)
	stamped = append(stamped, d...)
	return append(stamped, value[at:]...)
}

// unchanged says whether a Put would leave the entry as it is but for the revision in it.
func unchanged(entry *store.Entry, op *store.Op) bool {
	if op.RevisionAt < 0 {
		return bytes.Equal(entry.Value, op.Value)
	}
	var digits [20]byte
	d := strconv.AppendInt(digits[:0], int64(entry.Revision), 10)
	v, at := entry.Value, op.RevisionAt
	return len(v) == len(op.Value)+len(d) &&
		bytes.Equal(v[:at], op.Value[:at]) &&
		bytes.Equal(v[at:at+len(d)], d) &&
		bytes.Equal(v[at+len(d):], op.Value[at:])
}
