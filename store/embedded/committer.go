package embedded

import (
	"errors"
	"fmt"
	"log/slog"
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

	checkpoints   []checkpoint // on disk, oldest first; the empty state at the start may have no file
	logged        int64        // bytes in the log after the newest
	checkpointing chan checkpointed

	replayed time.Time // of the newest batch read at the start
	pending  int       // changes replayed and not yet published
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
		c.forget()
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
		return outcome{err: c.compact(r.compact)}
	}
	if !c.admits(r.ops) {
		return outcome{err: store.ErrNoSpace}
	}
	result, err := c.core.Decide(r.ops)
	return outcome{result, err}
}

func (c *committer) compact(before store.Revision) error {
	if err := c.options.fail("compact"); err != nil {
		return err
	}
	if err := c.core.Compact(before); err != nil {
		return err
	}
	return c.options.fail("compacted")
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
