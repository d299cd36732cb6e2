package embedded

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"go.etcd.io/etcd/client/pkg/v3/fileutil"
	"golang.org/x/sys/unix"

	"github.com/setpoint-dev/setpoint/store"
)

// reserve is room on the disk that is kept for the day when there is none: it is given up then, so
// that what makes room can still be written, and leases be renewed. One segment of it is for the
// log, and one for the segment that the library allocates ahead or for a checkpoint.
type reserve struct {
	path string
	// lost says that it was given up. While it is, only commits that make room go through.
	lost bool
	// renewed is how much of it was taken since by what neither makes room nor takes more in the end.
	renewed int64
	triedAt time.Time // when there was last looked for room, for it and for a checkpoint
	savedAt time.Time
}

const (
	reserveName  = "reserve"
	reserveBytes = 2 * segmentBytes
	// renewalsMax is what leases may be renewed with until a checkpoint gives room back: 14,000 times,
	// which leaves most of the reserve to deletions.
	renewalsMax = segmentBytes / 2
	// saveAfter is how often a checkpoint is tried while there is no room: it would replace the log
	// by a state that may have become small, but it writes that state each time.
	saveAfter = 5 * time.Second
)

func isFull(err error) bool { return errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) }

// hold allocates the reserve if it is not there. That there is no room for it is no error.
func (r *reserve) hold() error {
	f, err := os.OpenFile(r.path, os.O_WRONLY|os.O_CREATE, 0o600)
	if err == nil {
		err = errors.Join(fileutil.Preallocate(f, reserveBytes, true), f.Close())
	}
	r.lost, r.renewed = isFull(err), 0
	switch {
	case r.lost:
		return r.give()
	case err != nil:
		return fmt.Errorf("store: keeping room in reserve: %w", err)
	}
	return nil
}

// give frees the reserve.
func (r *reserve) give() error {
	r.lost = true
	if err := os.Remove(r.path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("store: giving up the reserve: %w", err)
	}
	return nil
}

// makeRoom gives up the reserve after a batch did not fit, so that the next may be tried at once.
// It says whether there was one.
func (c *committer) makeRoom(err error) bool {
	if !isFull(err) || c.reserve.lost {
		return false
	}
	if err := c.reserve.give(); err != nil {
		c.options.Logger.Error(err.Error())
		return false
	}
	c.reserve.triedAt, c.brokenAt = time.Now(), time.Time{}
	c.options.Logger.Error("store: the disk is full; only what makes room is written from now on")
	c.giveUpHistory()
	return true
}

// findRoom gets the reserve back when there is room for it again.
func (c *committer) findRoom(now time.Time) {
	if !c.reserve.lost || now.Sub(c.reserve.triedAt) < retryAfter {
		return
	}
	c.reserve.triedAt = now
	if err := c.reserve.hold(); err != nil {
		c.options.Logger.Error(err.Error())
	}
	if !c.reserve.lost {
		c.options.Logger.Info("store: there is room on the disk again")
	}
}

// saves says whether a checkpoint is due because it could give room back.
func (c *committer) saves(now time.Time) bool {
	if !c.reserve.lost || c.logged == 0 || now.Sub(c.reserve.savedAt) < saveAfter {
		return false
	}
	c.reserve.savedAt = now
	return true
}

// admits says whether a commit is written although there may be no room: if it makes some, or
// replaces what is there by no more, as leaders and nodes do that renew a lease, while there is
// reserve for that.
func (c *committer) admits(ops []store.Op) bool {
	if !c.reserve.lost || makesRoom(ops) {
		return true
	}
	for i := range ops {
		if op := &ops[i]; op.Type == store.Put && !op.Frees {
			// A revision's digits are in what was found only.
			found := c.core.Lookup(op.Key)
			if found == nil || len(op.Value) > len(found.Value) {
				return false
			}
		}
	}
	const overhead = 64 // of a frame and a record
	c.reserve.renewed += int64(size(ops)) + overhead
	return c.reserve.renewed <= renewalsMax
}

// makesRoom says whether a commit may use the reserve.
func makesRoom(ops []store.Op) bool {
	for i := range ops {
		if ops[i].Type == store.Put && !ops[i].Frees {
			return false
		}
	}
	return true
}

func newReserve(dir string) reserve { return reserve{path: filepath.Join(dir, reserveName)} }
