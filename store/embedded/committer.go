package embedded

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/setpoint-dev/setpoint/store"
	"github.com/setpoint-dev/setpoint/store/internal/core"
)

// committer is the writer of a store. After load, all of it belongs to the goroutine of run.
type committer struct {
	store   *Store
	options Options
	dir     string

	core    *core.Core
	journal *journal
	buf     []byte // a batch's frame

	// While the log does not take entries: why, and when it was tried last.
	broken   error
	brokenAt time.Time
	reserve  reserve

	checkpoint     checkpoint // the newest one on disk
	checkpointSize int64
	logged         int64 // bytes in the log after it
	checkpointing  chan checkpointed

	replayed time.Time // of the newest batch read at the start
	pending  int       // changes replayed and not yet published
}

// checkpointed is how the writing of a checkpoint ended.
type checkpointed struct {
	checkpoint checkpoint
	size       int64
	err        error
}

// replay takes an entry of the log at the start.
func (c *committer) replay(index uint64, frame []byte) error {
	number, body, err := parseFrame(frame)
	if err != nil {
		return err
	}
	if number != index {
		return fmt.Errorf("entry %d has batch %d", index, number)
	}
	c.replayed, err = parseBatch(body, func(ch core.Change) error {
		c.pending++
		return c.core.Replay(ch)
	})
	c.logged += int64(len(frame))
	// Publishing costs a copy of what is written next, so it is not done for each batch.
	const publishAfter = 4096
	if c.pending >= publishAfter {
		c.core.Publish(c.replayed)
		c.pending = 0
	}
	return err
}

func (c *committer) run() {
	defer close(c.store.done)
	var requests []*request
	var aging <-chan time.Time // nil while a timer would have nothing to do
	for closing := false; !closing; {
		if aging == nil {
			if wait := c.core.Age(time.Now()); wait > 0 {
				aging = time.After(wait)
			}
		}
		select {
		case <-c.store.wake:
		case <-aging:
			aging = nil
			continue
		case done := <-c.checkpointing:
			c.endCheckpoint(done)
		}
		requests, closing = c.store.take(requests)
		for rest := requests; len(rest) > 0; {
			n := batch(rest)
			c.commit(rest[:n])
			rest = rest[n:]
		}
		c.beginCheckpoint()
	}
	c.store.err = c.close()
}

// batch says how many of the requests go into one batch.
func batch(requests []*request) int {
	bytes := 0
	for i, r := range requests {
		if bytes += size(r.ops); bytes > batchBytesMax && i > 0 {
			return i
		}
	}
	return len(requests)
}

// commit decides the requests, makes them durable together, and only then lets anybody know.
func (c *committer) commit(requests []*request) {
	c.findRoom(time.Now())
	if err := c.repair(); err != nil {
		for _, r := range requests {
			r.done <- outcome{err: err}
		}
		return
	}
	outcomes := make([]outcome, len(requests))
	changed := false
	for i, r := range requests {
		outcomes[i] = c.decide(r)
		changed = changed || outcomes[i].result.Changed
	}
	if changed {
		now := time.Now()
		if err := c.append(now); err != nil {
			c.core.Rollback()
			full := c.makeRoom(err)
			if err = c.fail(err); full {
				c.brokenAt = time.Time{}
				c.commit(requests) // what makes room fits now
				return
			}
			for i := range outcomes {
				// What was decided was decided on a state that never came to be.
				outcomes[i] = outcome{err: err}
			}
		} else {
			err := c.options.fail("publish")
			c.core.Publish(now)
			if err = errors.Join(err, c.options.fail("published")); err != nil {
				c.options.Logger.Error("store: publishing", slog.Any("error", err))
			}
		}
	}
	for i, r := range requests {
		r.done <- outcomes[i]
	}
}

func (c *committer) decide(r *request) outcome {
	if err := r.ctx.Err(); err != nil {
		return outcome{err: err} // whoever asked has gone
	}
	if r.compact > 0 {
		return outcome{err: c.core.Compact(r.compact)}
	}
	if c.reserve.lost && !makesRoom(r.ops) {
		return outcome{err: store.ErrNoSpace}
	}
	result, err := c.core.Decide(r.ops)
	return outcome{result, err}
}

// append writes what is pending in the core to the log.
func (c *committer) append(now time.Time) error {
	c.buf = appendBatch(c.buf[:0], c.journal.index+1, now, c.core.Pending())
	if err := c.journal.append(c.buf); err != nil {
		return err
	}
	c.logged += int64(len(c.buf))
	if cap(c.buf) > 2*batchBytesMax {
		c.buf = nil
	}
	return nil
}

// fail notes that the log has failed and returns what commits are told.
func (c *committer) fail(err error) error {
	if isFull(err) {
		c.broken = store.ErrNoSpace
	} else {
		c.broken = fmt.Errorf("store: writing the log: %w", err)
	}
	c.brokenAt = time.Now()
	c.options.Logger.Error("store: the log cannot be written", slog.Any("error", err))
	return c.broken
}

// repair brings a log that has failed back into use, or says why it cannot.
func (c *committer) repair() error {
	if c.broken == nil {
		return nil
	}
	if time.Since(c.brokenAt) < retryAfter {
		return c.broken
	}
	switch err := c.journal.recover(); {
	case errors.Is(err, errStillOpen):
		c.brokenAt = time.Now()
		return c.broken
	case err != nil:
		return c.fail(err)
	}
	c.broken = nil
	c.options.Logger.Info("store: the log can be written again")
	return nil
}

// beginCheckpoint starts writing a checkpoint if it is time for one and none is being written.
func (c *committer) beginCheckpoint() {
	due := max(c.options.CheckpointBytes, c.checkpointSize)
	if c.checkpointing != nil || c.broken != nil || c.logged < due && !c.saves(time.Now()) {
		return
	}
	revision, entries := c.store.Entries()
	at := checkpoint{index: c.journal.index, revision: revision}
	c.logged = 0
	done := make(chan checkpointed, 1)
	c.checkpointing = done
	go func() {
		size, err := int64(0), c.options.fail("checkpoint")
		if err == nil {
			size, err = at.write(c.dir, entries, c.options.fail)
		}
		done <- checkpointed{at, size, err}
	}()
}

// endCheckpoint deletes what the new checkpoint replaces.
func (c *committer) endCheckpoint(done checkpointed) {
	c.checkpointing = nil
	err := done.err
	if err == nil {
		err = c.options.fail("checkpointed")
	}
	if err == nil {
		old := c.checkpoint
		c.checkpoint, c.checkpointSize = done.checkpoint, done.size
		if err = c.options.fail("release"); err == nil && old.index > 0 {
			err = os.Remove(filepath.Join(c.dir, old.name()))
		}
		if c.broken == nil && err == nil {
			err = errors.Join(err, c.journal.release(done.checkpoint.index))
		}
	}
	if err != nil {
		// The log that there is still says everything; the next checkpoint is due as usual.
		c.options.Logger.Error("store: writing a checkpoint", slog.Any("error", err))
		return
	}
	c.options.Logger.Info("store: wrote a checkpoint",
		slog.Int64("revision", int64(done.checkpoint.revision)), slog.Int64("bytes", done.size))
}

func (c *committer) close() error {
	if c.checkpointing != nil {
		c.endCheckpoint(<-c.checkpointing)
	}
	c.store.Reader.Close()
	err := c.journal.close()
	if c.broken != nil {
		err = nil // everything that was acknowledged is on disk already
	}
	return errors.Join(err, c.store.lock.Close())
}
