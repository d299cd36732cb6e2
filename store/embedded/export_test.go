package embedded

import (
	"time"

	"go.etcd.io/etcd/server/v3/storage/wal"

	"github.com/setpoint-dev/setpoint/store/internal/core"
)

// OpenFailing opens a store whose named points fail as told.
func OpenFailing(dir string, options Options, fail func(point string) error) (*Store, error) {
	options.fail = fail
	return Open(dir, options)
}

const SegmentBytes = segmentBytes

// SetSegmentBytes makes the segments of all logs of the process so large from now on.
func SetSegmentBytes(n int64) {
	setSegmentBytes()
	wal.SegmentSizeBytes = n
}

// Points are where a store can be made to fail.
var Points = points

// Waiting says how many requests the committer has not taken yet.
func (s *Store) Waiting() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.waiting)
}

// Batch returns the frame of a batch with one change, and Parse what is in a frame.
func Batch(number uint64, ch core.Change) []byte {
	return appendBatch(nil, number, time.Unix(0, 0), func(yield func(core.Change) bool) { yield(ch) })
}

func Parse(data []byte) (number uint64, changes []core.Change, err error) {
	number, body, err := parseFrame(data)
	if err != nil {
		return 0, nil, err
	}
	_, err = parseBatch(body, func(ch core.Change) error {
		changes = append(changes, ch)
		return nil
	})
	return number, changes, err
}

// ParseBody parses a body whose checksum nobody has checked.
func ParseBody(body []byte) error {
	_, err := parseBatch(body, func(core.Change) error { return nil })
	return err
}
