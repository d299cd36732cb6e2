package embedded

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync"

	"go.etcd.io/etcd/client/pkg/v3/fileutil"
	"go.etcd.io/etcd/server/v3/storage/wal"
	"go.etcd.io/etcd/server/v3/storage/wal/walpb"
	"go.etcd.io/raft/v3/raftpb"
)

// journal is the log of batches: an etcd WAL of a single member whose term never changes, with one
// of our frames in each entry. The library appends, allocates segments ahead and syncs; what it is
// too forgiving about is checked here: a log that stops in the middle of a segment is a torn tail
// only if nothing whole follows, and what was served after a restart is on disk before.
type journal struct {
	dir   string
	log   *wal.WAL
	index uint64 // of the last entry
	fail  func(point string) error
}

// segmentBytes is small enough that two of them, which a log has at least, are nothing on a disk
// to a person who looks, and large enough that changing segments (a millisecond) is rare.
const segmentBytes = 16 << 20

// The library takes the size of a segment from a variable.
var setSegmentBytes = sync.OnceFunc(func() { wal.SegmentSizeBytes = segmentBytes })

// openJournal opens the log in the directory, or makes it, and replays what comes after an index.
// Possible errors: *CorruptError.
func openJournal(dir string, after uint64, replay replayFunc) (*journal, error) {
	setSegmentBytes()
	j := &journal{dir: dir, index: after}
	if !wal.Exist(dir) {
		if after > 0 {
			return nil, &CorruptError{File: dir, Err: fmt.Errorf("the log after entry %d is missing", after)}
		}
		log, err := wal.Create(nil, dir, nil)
		if err != nil {
			return nil, fmt.Errorf("store: making the log in %s: %w", dir, err)
		}
		j.log = log
		return j, nil
	}
	s := scan{dir: dir, after: after, upTo: math.MaxUint64, replays: newReplayer(replay)}
	err := s.run()
	if first := s.replays.end(); first != nil {
		err = first
	}
	if err != nil {
		return nil, err
	}
	if err := s.checkTail(); err != nil {
		return nil, err
	}
	j.index = s.last
	if err := cutBack(s.segments, s.end); err != nil {
		return nil, err
	}
	return j, j.reopen()
}

// reopen makes a log that was scanned ready for appending.
func (j *journal) reopen() error {
	start := walpb.Snapshot{Index: new(j.index), Term: new(uint64(term))}
	if j.index == 0 {
		start.Term = new(uint64(0)) // as the library has it before the first entry
	}
	log, err := wal.Open(nil, j.dir, &start)
	if err != nil {
		return fmt.Errorf("store: opening the log: %w", err)
	}
	// The library looks for a mark of where we start, which it alone needs; all is read by now.
	if _, _, _, err := log.ReadAll(); err != nil && !errors.Is(err, wal.ErrSnapshotNotFound) {
		return errors.Join(fmt.Errorf("store: opening the log: %w", err), log.Close())
	}
	j.log = log
	return nil
}

const term = 1

// append adds an entry and returns when it is on disk. After an error the journal takes no more
// entries until recover has succeeded.
func (j *journal) append(frame []byte) error {
	if err := j.fail("append"); err != nil {
		return err
	}
	entry := raftpb.Entry{Term: new(uint64(term)), Index: new(j.index + 1), Data: frame}
	if err := j.log.Save(nil, []*raftpb.Entry{&entry}); err != nil {
		return err
	}
	if err := j.fail("appended"); err != nil {
		return err
	}
	j.index++
	return nil
}

// recover brings the log back to the last entry that append acknowledged. What a failed write may
// have left behind is cut off and the cut synced, because after a failed sync nobody knows what of
// it is on disk, and nothing may be appended behind a hole. It needs no room.
func (j *journal) recover() error {
	if j.log != nil {
		// The log is in an unknown state; that it does not close well says nothing new.
		_ = j.log.Close()
		j.log = nil
	}
	s := scan{dir: j.dir, after: j.index, upTo: j.index}
	if err := s.run(); err != nil {
		return err
	}
	if s.seen != j.index {
		return &CorruptError{File: j.dir, Err: fmt.Errorf("entry %d is missing", j.index)}
	}
	if err := cutBack(s.segments, s.end); err != nil {
		return err
	}
	err := j.reopen()
	if errors.Is(err, fileutil.ErrLocked) {
		// The library does not close its files if it cannot write to them. The collector does, and
		// the next attempt finds the lock free.
		runtime.GC()
		return errStillOpen
	}
	return err
}

var errStillOpen = errors.New("store: the log is still open")

// release deletes the segments that hold only entries up to the index.
func (j *journal) release(index uint64) error {
	if err := j.log.ReleaseLockTo(index); err != nil {
		return fmt.Errorf("store: releasing the log: %w", err)
	}
	segments, err := listSegments(j.dir)
	if err != nil {
		return err
	}
	for i := 0; i+1 < len(segments) && segments[i+1].first < index; i++ {
		if err := os.Remove(segments[i].path); err != nil {
			return fmt.Errorf("store: releasing the log: %w", err)
		}
	}
	return nil
}

func (j *journal) close() error {
	if j.log == nil {
		return nil
	}
	return j.log.Close()
}

// segment is a file of the log, named for its place and for the first entry it may hold.
type segment struct {
	path       string
	seq, first uint64
}

func listSegments(dir string) ([]segment, error) {
	paths, err := filepath.Glob(filepath.Join(dir, "*.wal"))
	if err != nil {
		return nil, err
	}
	segments := make([]segment, len(paths))
	for i, path := range paths {
		s := &segments[i]
		s.path = path
		if _, err := fmt.Sscanf(filepath.Base(path), "%016x-%016x.wal", &s.seq, &s.first); err != nil {
			return nil, &CorruptError{File: path, Err: errors.New("no segment of a log has that name")}
		}
	}
	slices.SortFunc(segments, func(a, b segment) int { return cmp.Compare(a.seq, b.seq) })
	return segments, nil
}

// position is the end of an entry.
type position struct {
	segment int
	offset  int64
}

// scan reads a log from the first entry after an index.
type scan struct {
	dir     string
	after   uint64
	upTo    uint64    // stop after this entry, whatever follows
	replays *replayer // gets what comes after the index

	segments []segment
	seen     uint64 // the newest entry found
	last     uint64 // the newest entry replayed
	end      position
	crc      uint32
}

var errStop = errors.New("stop")

func (s *scan) run() error {
	all, err := listSegments(s.dir)
	if err != nil {
		return err
	}
	start := 0
	for i := range all {
		if all[i].first <= s.after {
			start = i
		}
	}
	s.segments, s.last = all[start:], s.after
	if len(s.segments) == 0 || s.segments[0].first > s.after+1 {
		err := fmt.Errorf("the segment with entry %d is missing", s.after+1)
		return &CorruptError{File: s.dir, Err: err}
	}
	for i := range s.segments {
		if i > 0 && s.segments[i].seq != s.segments[i-1].seq+1 {
			err := errors.New("the segment before it is missing")
			return &CorruptError{File: s.segments[i].path, Err: err}
		}
		if err := s.segment(i); errors.Is(err, errStop) {
			return nil
		} else if err != nil {
			return err
		}
	}
	return nil
}

func (s *scan) segment(i int) error {
	path := s.segments[i].path
	f, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("store: reading the log: %w", err)
	}
	defer f.Close()
	decoder := wal.NewDecoder(fileutil.NewFileReader(f))
	corrupt := func(err error) error {
		return &CorruptError{File: path, Offset: decoder.LastOffset(), Err: err}
	}
	for {
		var record walpb.Record
		err := decoder.Decode(&record)
		switch {
		case errors.Is(err, io.EOF):
			s.crc = decoder.LastCRC()
			return nil
		case err != nil && s.seen == s.upTo:
			return errStop
		case errors.Is(err, io.ErrUnexpectedEOF) && i == len(s.segments)-1:
			return nil // a torn tail, unless checkTail finds more
		case err != nil:
			return corrupt(err)
		}
		switch record.GetType() {
		case wal.CrcType:
			// The checksums go on from segment to segment, so none can end early unnoticed.
			if i > 0 && record.GetCrc() != s.crc {
				return corrupt(errors.New("the segment before it ends too early"))
			}
			decoder.UpdateCRC(record.GetCrc())
		case wal.EntryType:
			entry := wal.MustUnmarshalEntry(record.Data)
			if entry.GetIndex() > s.upTo {
				return errStop
			}
			if err := s.entry(entry, path, decoder.LastOffset()); err != nil {
				return err
			}
		}
		s.end = position{i, decoder.LastOffset()}
	}
}

func (s *scan) entry(entry *raftpb.Entry, file string, offset int64) error {
	l := logged{entry.GetIndex(), entry.Data, file, offset}
	s.seen = l.index
	if l.index <= s.after {
		return nil
	}
	if l.index != s.last+1 {
		return l.corrupt(fmt.Errorf("entry %d comes after entry %d", l.index, s.last))
	}
	s.last = l.index
	if !s.replays.add(l) {
		return errStop // for an error that is known there
	}
	return nil
}

// checkTail tells a torn tail from damage. Each batch is synced before the next is written, so a
// whole batch beyond the end of what can be read proves that there was no end there.
func (s *scan) checkTail() error {
	tail := s.segments[len(s.segments)-1]
	data, err := os.ReadFile(tail.path)
	if err != nil {
		return fmt.Errorf("store: reading the log: %w", err)
	}
	offset := int64(0)
	if s.end.segment == len(s.segments)-1 {
		offset = s.end.offset
	}
	if at, found := findFrame(data[offset:], s.last+2); found {
		err := fmt.Errorf("batch %d cannot be read, but a later one at byte %d can",
			s.last+1, offset+int64(at))
		return &CorruptError{File: tail.path, Offset: offset, Err: err}
	}
	return nil
}

// cutBack makes the position the end of the log, on disk.
func cutBack(segments []segment, end position) error {
	for _, later := range segments[end.segment+1:] {
		if err := os.Remove(later.path); err != nil {
			return fmt.Errorf("store: cutting the log: %w", err)
		}
	}
	path := segments[end.segment].path
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return fmt.Errorf("store: cutting the log: %w", err)
	}
	defer f.Close()
	if err := f.Truncate(end.offset); err != nil {
		return fmt.Errorf("store: cutting the log: %w", err)
	}
	if err := f.Sync(); err != nil {
		return fmt.Errorf("store: cutting the log: %w", err)
	}
	return syncDir(filepath.Dir(path))
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return fmt.Errorf("store: syncing a directory: %w", err)
	}
	defer d.Close()
	if err := d.Sync(); err != nil {
		return fmt.Errorf("store: syncing a directory: %w", err)
	}
	return nil
}
