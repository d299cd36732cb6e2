package embedded

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"iter"
	"os"
	"path/filepath"
	"slices"

	"github.com/setpoint-dev/setpoint/internal/dirlock"
	"github.com/setpoint-dev/setpoint/store"
)

// Salvaged is what Salvage could read.
type Salvaged struct {
	Revision store.Revision
	// Lost is what it could not read, in the order of the files.
	Lost    []Loss
	entries map[store.Key]*store.Entry
}

// Loss is something that was stored and cannot be read.
type Loss struct {
	// Key is the object; it is zero if not even that can be read. Then an object is missing, or is as
	// it was before a change that is lost.
	Key  store.Key
	What string // what is damaged, where, and how
}

func (l Loss) String() string {
	if l.Key == (store.Key{}) {
		return "of an unknown object: " + l.What
	}
	return l.Key.String() + ": " + l.What
}

// Salvage reads what can be read in a directory that Open refuses, for a snapshot that a new one is
// made of; it changes nothing. Objects that are there and cannot be read are among the entries, with
// a value that store.Unreadable knows. Possible errors: *LockedError, and those of the disk.
func Salvage(dir string) (*Salvaged, error) {
	lock, err := dirlock.LockWithin(dir, lockPatience)
	if err != nil {
		return nil, fmt.Errorf("store: %w", err)
	}
	defer lock.Close()
	found, _, err := listCheckpoints(dir)
	if err != nil {
		return nil, err
	}
	var best *Salvaged
	for _, from := range slices.Backward(found) {
		s := &Salvaged{entries: map[store.Key]*store.Entry{}}
		if err := errors.Join(s.checkpoint(dir, from), s.log(filepath.Join(dir, "wal"), from.index+1)); err != nil {
			return nil, err
		}
		s.Lost = slices.DeleteFunc(s.Lost, s.replaced)
		if best == nil || len(s.Lost) < len(best.Lost) {
			best = s
		}
	}
	return best, nil
}

// replaced says that something was lost that was overwritten or deleted later.
func (s *Salvaged) replaced(l Loss) bool {
	if l.Key == (store.Key{}) {
		return false
	}
	e := s.entries[l.Key]
	if e == nil {
		return true
	}
	_, damaged := store.Unreadable(e.Value)
	return !damaged
}

// Entries returns everything, by resource and path: what Save needs.
func (s *Salvaged) Entries() iter.Seq[*store.Entry] {
	all := make([]*store.Entry, 0, len(s.entries))
	for _, e := range s.entries {
		all = append(all, e)
	}
	slices.SortFunc(all, func(a, b *store.Entry) int {
		return cmp.Or(cmp.Compare(a.Key.Resource, b.Key.Resource), cmp.Compare(a.Key.Path, b.Key.Path))
	})
	return slices.Values(all)
}

func (s *Salvaged) lose(key store.Key, in part, what any) {
	text := fmt.Sprintf("%v; %s at byte %d", what, in.file, in.offset)
	s.Lost = append(s.Lost, Loss{Key: key, What: text})
}

// put takes a record of a checkpoint or of the log, whose value may be damaged.
func (s *Salvaged) put(r *record, created store.Revision, in part, damage error) {
	e := &store.Entry{Key: r.key, Value: slices.Clone(r.value), Revision: r.revision, Created: created}
	if damage != nil {
		s.lose(r.key, in, damage)
		e.Value = store.MarkUnreadable(damage.Error())
	}
	s.entries[e.Key] = e
}

// checkpoint reads the state that the log goes on from.
func (s *Salvaged) checkpoint(dir string, from checkpoint) error {
	if from.index == 0 {
		return nil
	}
	path := filepath.Join(dir, from.name())
	data, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("store: reading a checkpoint: %w", err)
	}
	told := false // whether the number of entries is known
	for in := range parts(path, data) {
		if in.number == 0 && in.damage == nil {
			p := parser{rest: in.body}
			s.Revision = store.Revision(p.uvarint())
			continue
		}
		s.records(in, func(r *record, damage error) {
			if r.key.Resource != "" {
				s.put(r, store.Revision(r.number), in, damage)
				s.Revision = max(s.Revision, r.revision)
				return
			}
			told = true
			if missing := int(r.number) - len(s.entries); missing > 0 {
				s.lose(store.Key{}, in, fmt.Errorf("%d of %d objects are missing", missing, r.number))
			}
		})
	}
	if !told {
		s.lose(store.Key{}, part{file: path, offset: len(data)}, "the end is missing, and all that was there")
	}
	return nil
}

// log reads what happened after the checkpoint, from a batch on.
func (s *Salvaged) log(dir string, next uint64) error {
	segments, err := listSegments(dir)
	if err != nil {
		return err
	}
	var between []part // since the last batch
	for i, segment := range segments {
		if i+1 < len(segments) && segments[i+1].first < next {
			continue // all of it is in the checkpoint
		}
		data, err := os.ReadFile(segment.path)
		if err != nil {
			return fmt.Errorf("store: reading the log: %w", err)
		}
		for in := range parts(segment.path, data) {
			if in.damage != nil {
				between = append(between, in)
				continue
			}
			if in.number > next {
				s.gap(between, in, int(in.number-next))
			}
			if between = nil; in.number >= next {
				next = in.number + 1
				s.batch(in)
			}
		}
	}
	return nil // what is between the last batch and the end was never acknowledged
}

// gap is where batches are missing that were written, because there is a later one. It takes what is
// there of them.
func (s *Salvaged) gap(between []part, later part, batches int) {
	next, whole := 0, true // the place that comes next, and whether all did so far
	for _, in := range between {
		s.records(in, func(r *record, damage error) {
			whole = whole && r.place.number() == next
			if next = r.place.number() + 1; r.place.last() {
				next = 0
				batches--
			}
			s.change(r, in, damage)
		})
	}
	if !whole || next != 0 || batches != 0 {
		s.lose(store.Key{}, later, fmt.Errorf("changes before batch %d cannot be read", later.number))
	}
}

// batch takes the changes of a batch that is whole.
func (s *Salvaged) batch(in part) {
	p := parser{rest: in.body}
	p.varint() // when it was
	in.body = p.rest
	s.records(in, func(r *record, _ error) { s.change(r, in, nil) })
}

func (s *Salvaged) change(r *record, in part, damage error) {
	s.Revision = max(s.Revision, r.revision)
	if store.EventType(r.number) == store.Delete {
		delete(s.entries, r.key)
		return
	}
	created := r.revision
	if was := s.entries[r.key]; was != nil {
		created = was.Created
	}
	s.put(r, created, in, damage)
}

// records goes through the records of a part. If it is damaged they are looked for at every byte.
func (s *Salvaged) records(in part, yield func(r *record, damage error)) {
	names := interned{}
	for start := in.body; len(start) > 0; {
		p := parser{rest: start}
		if in.damage == nil {
			if r := p.record(names); p.err == nil {
				yield(&r, nil)
			}
		} else if r, damage, ok := p.checked(names); ok {
			yield(&r, damage)
		} else {
			p.rest = start[1:]
		}
		start = p.rest
	}
}

// part is a frame of a file, or what is between two of them and is not empty.
type part struct {
	file   string
	offset int
	number uint64
	body   []byte
	damage error // of what is no frame
}

var errNoFrame = errors.New("no frame can be read")

// parts goes through a file. In a log there is always something between frames, by its library.
func parts(file string, data []byte) iter.Seq[part] {
	return func(yield func(part) bool) {
		for at := 0; at < len(data); {
			found, ok := findFrame(data[at:], 0)
			if !ok {
				found = len(data) - at
			}
			// The rest of a file that was made ahead is empty; the end of a record may be, too.
			const zerosMax = 64
			between := data[at : at+found]
			used := len(bytes.TrimRight(between, "\x00"))
			between = between[:min(used+zerosMax, found)]
			if used > 0 && !yield(part{file: file, offset: at, body: between, damage: errNoFrame}) {
				return
			}
			if at += found; !ok {
				return
			}
			number, body, _ := parseFrame(data[at:]) // which findFrame has done, too
			if !yield(part{file: file, offset: at, number: number, body: body}) {
				return
			}
			at += frameHead + len(body)
		}
	}
}
