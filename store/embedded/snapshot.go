package embedded

import (
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/setpoint-dev/setpoint/internal/dirlock"
	"github.com/setpoint-dev/setpoint/store"
	"github.com/setpoint-dev/setpoint/store/internal/core"
)

// RestoredAfter is how far the revisions of a restored store are ahead of its snapshot's. Whatever
// happened after the snapshot, and is lost, had smaller ones: a thousand commits a second for eleven
// days. So nobody can go on with what he saw of it, and watches from then are told ErrCompacted.
const RestoredAfter store.Revision = 1_000_000_000

// Save writes a snapshot, as a store's Entries returns it: a checkpoint by itself, whose end says that
// it is whole and in which every byte is covered by a checksum. Any engine's state can be saved, and
// is restored as an embedded store.
func Save(w io.Writer, revision store.Revision, entries iter.Seq[*store.Entry]) error {
	_, err := (&checkpoint{revision: revision}).writeTo(w, entries)
	return err
}

// Verify reads a snapshot and returns its revision and how many objects it has.
// Possible errors: *CorruptError, which has the name.
func Verify(name string, r io.Reader) (revision store.Revision, objects int, err error) {
	var c checkpoint
	err = c.readFrom(name, r, func(*store.Entry) { objects++ })
	return c.revision, objects, err
}

// Restore makes a store of a snapshot in a directory, which must not have one, and returns the
// revision that the store starts with. Objects are as they were, with their uids and revisions.
// Possible errors: *CorruptError, *LockedError.
func Restore(dir, name string, r io.Reader) (store.Revision, error) {
	var c checkpoint
	var entries []*store.Entry
	if err := c.readFrom(name, r, func(e *store.Entry) { entries = append(entries, e) }); err != nil {
		return 0, err
	}
	if err := makeDir(dir); err != nil {
		return 0, err
	}
	lock, err := dirlock.LockWithin(dir, lockPatience)
	if err != nil {
		return 0, fmt.Errorf("store: %w", err)
	}
	defer lock.Close()
	for _, pattern := range []string{checkpointPrefix + "*", "wal"} {
		if found, err := filepath.Glob(filepath.Join(dir, pattern)); err != nil || len(found) > 0 {
			return 0, errors.Join(err, fmt.Errorf("store: %s has a store already: %v", dir, found))
		}
	}
	c.index, c.revision = 1, c.revision+RestoredAfter
	never := func(string) error { return nil }
	if err := c.write(dir, slices.Values(entries), never); err != nil {
		return 0, errors.Join(err, os.Remove(filepath.Join(dir, c.name())))
	}
	return c.revision, beginLog(filepath.Join(dir, "wal"), never)
}

// beginLog makes the log that a checkpoint after entry 1 goes on with: one empty batch. Until it is
// there, the directory is refused.
func beginLog(dir string, fail func(string) error) error {
	j, err := openJournal(dir, 0, nil)
	if err != nil {
		return err
	}
	j.fail = fail
	err = j.append(appendBatch(nil, 1, time.Now(), func(func(core.Change) bool) {}))
	return errors.Join(err, j.close())
}
