package embedded

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/setpoint-dev/setpoint/store/internal/core"
)

// load reads a directory into a committer. It begins with the oldest checkpoint, because the log
// after it is the history. One that cannot be used, or whose log cannot, costs history and no
// object as long as there is a later one.
func load(dir string, options Options) (*committer, error) {
	found, leftovers, err := listCheckpoints(dir)
	if err != nil {
		return nil, err
	}
	for _, path := range leftovers {
		if err := os.Remove(path); err != nil {
			return nil, fmt.Errorf("store: deleting what a crash left: %w", err)
		}
	}
	for first := range found {
		c, err := loadFrom(dir, options, found[first:])
		var damage *CorruptError
		switch {
		case err == nil:
			return c, c.drop(found[:first])
		case first == len(found)-1 || !errors.As(err, &damage):
			return nil, err
		}
		options.Logger.Error("store: the history before a later checkpoint is lost, no object is",
			slog.Any("error", err))
	}
	panic("unreachable: the last checkpoint returns")
}

// loadFrom reads the first of the checkpoints and the log after it.
func loadFrom(dir string, options Options, checkpoints []checkpoint) (*committer, error) {
	c := &committer{options: options, dir: dir, checkpoints: checkpoints, reserve: newReserve(dir)}
	if err := c.loadState(&checkpoints[0]); err != nil {
		return nil, err
	}
	var err error
	c.journal, err = openJournal(filepath.Join(dir, "wal"), checkpoints[0].index, c.replay)
	if err != nil {
		return nil, err
	}
	c.journal.fail = options.fail
	c.core.Publish(c.replayed)
	c.core.Age(time.Now())
	if err := errors.Join(c.checkLater(), c.reserve.hold()); err != nil {
		return nil, errors.Join(err, c.journal.close())
	}
	return c, nil
}

// loadState makes the core of a checkpoint.
func (c *committer) loadState(from *checkpoint) error {
	options := core.Options{HistoryAge: c.options.HistoryAge, HistoryBytes: c.options.HistoryBytes}
	if from.index > 0 {
		if err := from.head(c.dir); err != nil {
			return err
		}
	}
	c.core = core.New(options, from.revision)
	if from.index > 0 {
		if err := from.read(c.dir, c.core.Load); err != nil {
			return err
		}
	}
	c.core.Publish(time.Time{})
	return nil
}

// replay takes what an entry of the log says at the start.
func (c *committer) replay(b *said) error {
	for _, ch := range b.changes {
		if err := c.core.Replay(ch); err != nil {
			return err
		}
	}
	c.replayed = b.at
	c.pending += len(b.changes)
	if b.index > c.newest().index {
		c.logged += int64(len(b.frame))
	}
	// Publishing costs a copy of what is written next, so it is not done for each batch.
	const publishAfter = 4096
	if c.pending >= publishAfter || c.core.Due(c.replayed) {
		c.core.Publish(c.replayed)
		c.pending = 0
	}
	return nil
}

// checkLater reads the heads of the later checkpoints, and drops those that are damaged: what they
// said has been read from the log.
func (c *committer) checkLater() error {
	kept := c.checkpoints[:1:1]
	for _, later := range c.checkpoints[1:] {
		err := later.head(c.dir)
		var damage *CorruptError
		switch {
		case errors.As(err, &damage):
			c.options.Logger.Error("store: a checkpoint that is not needed is damaged", slog.Any("error", err))
			if err := c.drop([]checkpoint{later}); err != nil {
				return err
			}
		case err != nil:
			return err
		default:
			kept = append(kept, later)
		}
	}
	c.checkpoints = kept
	return nil
}

// drop deletes the files of checkpoints, if they have any.
func (c *committer) drop(checkpoints []checkpoint) error {
	for _, old := range checkpoints {
		err := os.Remove(filepath.Join(c.dir, old.name()))
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("store: deleting a checkpoint: %w", err)
		}
	}
	return nil
}
