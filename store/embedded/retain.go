package embedded

import (
	"log/slog"
	"time"

	"github.com/setpoint-dev/setpoint/store"
)

// This file is what is kept on disk: a checkpoint where the history begins or before, the newest
// one, those between them, and the log from the first on. Each is written when the log has grown by
// as much as the last one has, or more, so together they are never more than that log and a state.

// checkpointed is how the writing of a checkpoint ended.
type checkpointed struct {
	checkpoint checkpoint
	err        error
}

func (c *committer) newest() *checkpoint { return &c.checkpoints[len(c.checkpoints)-1] }

// due is how much log there may be before a checkpoint is written.
func (c *committer) due() int64 { return max(c.options.CheckpointBytes, c.newest().size) }

// beginCheckpoint starts writing a checkpoint if it is time for one and none is being written.
func (c *committer) beginCheckpoint() {
	if c.checkpointing != nil || c.broken != nil || c.logged < c.due() && !c.saves(time.Now()) {
		return
	}
	newest := *c.newest()
	revision, entries := c.store.Entries()
	at := checkpoint{index: c.journal.index, revision: revision}
	c.logged = 0
	done := make(chan checkpointed, 1)
	c.checkpointing = done
	go func() {
		err := c.options.fail("checkpoint")
		if err == nil && newest.index == 0 {
			// The empty state at the beginning has no file until there is another to tell it from.
			err = newest.write(c.dir, func(func(*store.Entry) bool) {}, c.options.fail)
		}
		if err == nil {
			err = at.write(c.dir, entries, c.options.fail)
		}
		done <- checkpointed{at, err}
	}()
}

// endCheckpoint takes note of a checkpoint that was written.
func (c *committer) endCheckpoint(done checkpointed) {
	c.checkpointing = nil
	err := done.err
	if err == nil {
		err = c.options.fail("checkpointed")
	}
	if err != nil {
		// The log that there is still says everything; the next checkpoint is due as usual, or at once if
		// there is room for it now.
		c.options.Logger.Error("store: writing a checkpoint", slog.Any("error", err))
		if isFull(err) && c.giveUpHistory() {
			c.logged = max(c.logged, c.due())
		}
		return
	}
	c.checkpoints = append(c.checkpoints, done.checkpoint)
	c.reserve.renewed = 0 // the log that took it goes
	c.options.Logger.Info("store: wrote a checkpoint", slog.Int64("revision", int64(done.checkpoint.revision)),
		slog.Int64("bytes", done.checkpoint.size))
	if c.reserve.lost {
		c.giveUpHistory()
	}
	c.forget()
}

// forget deletes what the history no longer reaches back to, and says whether there was any: checkpoints
// that have another after them where it begins or before, and their log.
func (c *committer) forget() bool {
	first := 0
	for first+1 < len(c.checkpoints) && c.checkpoints[first+1].revision <= c.store.Compacted() {
		first++
	}
	if first == 0 || c.broken != nil {
		return false
	}
	old := c.checkpoints[:first]
	c.checkpoints = append([]checkpoint(nil), c.checkpoints[first:]...)
	err := c.options.fail("release")
	if err == nil {
		err = c.drop(old)
	}
	if err == nil {
		err = c.options.fail("dropped")
	}
	if err == nil {
		err = c.journal.release(c.checkpoints[0].index)
	}
	if err == nil {
		err = c.options.fail("released")
	}
	if err != nil {
		// What was not deleted now is with the next checkpoint, or at the next start.
		c.options.Logger.Error("store: deleting what is no longer needed", slog.Any("error", err))
	}
	return err == nil
}

// giveUpHistory forgets what only the history needs the disk for, and says whether there was any.
func (c *committer) giveUpHistory() bool {
	if err := c.core.Compact(c.newest().revision); err != nil {
		c.options.Logger.Error("store: giving up the history", slog.Any("error", err))
	}
	return c.forget()
}
