package embedded

// OpenFailing opens a store whose named points fail as told.
func OpenFailing(dir string, options Options, fail func(point string) error) (*Store, error) {
	options.fail = fail
	return Open(dir, options)
}

const (
	RetryAfter   = retryAfter
	SegmentBytes = segmentBytes
)

// Waiting says how many requests the committer has not taken yet.
func (s *Store) Waiting() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.waiting)
}
