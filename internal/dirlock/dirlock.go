// Package dirlock lets one process at a time use a directory.
package dirlock

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// HeldError says that somebody else has the directory.
type HeldError struct {
	Dir    string
	PID    string        // of their process, if it could be read
	Waited time.Duration // for them to let go of it
}

func (e *HeldError) Error() string {
	by := "another process"
	if e.PID != "" {
		by = "process " + e.PID
	}
	text := fmt.Sprintf("%s is in use by %s", e.Dir, by)
	if e.Waited > 0 {
		text += fmt.Sprintf(", which did not let go of it within %v", e.Waited)
	}
	return text
}

// poll is how often a directory that is held is tried again.
const poll = 10 * time.Millisecond

// LockWithin is Lock that waits for somebody else to let go: a process that was killed holds its
// directory until the system has taken it apart, which takes longer the more memory it had.
func LockWithin(dir string, patience time.Duration) (*os.File, error) {
	for begun := time.Now(); ; <-time.After(poll) {
		f, err := Lock(dir)
		var held *HeldError
		if !errors.As(err, &held) {
			return f, err
		}
		if waited := time.Since(begun); waited >= patience {
			held.Waited = waited.Round(poll)
			return nil, held
		}
	}
}

// Lock makes the caller the only one that uses the directory, which exists, until the file is closed
// or the process ends in whatever way. Processes it starts do not inherit the lock.
// Possible errors: *HeldError, and those of the disk.
func Lock(dir string) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("locking the directory: %w", err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		owner, _ := io.ReadAll(io.LimitReader(f, 32)) // only for the message
		f.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			return nil, &HeldError{Dir: dir, PID: strings.TrimSpace(string(owner))}
		}
		return nil, fmt.Errorf("locking %s: %w", dir, err)
	}
	if err := f.Truncate(0); err != nil {
		return nil, errors.Join(fmt.Errorf("locking %s: %w", dir, err), f.Close())
	}
	if _, err := fmt.Fprintf(f, "%d\n", os.Getpid()); err != nil && !errors.Is(err, unix.ENOSPC) {
		return nil, errors.Join(fmt.Errorf("locking %s: %w", dir, err), f.Close())
	}
	return f, nil
}
