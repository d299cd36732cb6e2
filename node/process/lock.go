package process

import (
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// A shim's life is a POSIX record lock on its lock file. The kernel drops the
// lock when the process ends and names its holder when asked, which together
// make a check that the reuse of process numbers cannot fool. A record lock
// belongs to a process, not to a descriptor: any close of the file by the
// holder drops it, so each side opens the file once.

var wholeFile = unix.Flock_t{Type: unix.F_WRLCK, Whence: io.SeekStart}

// acquire locks the file, or reports false when another process has it.
func acquire(path string) (*os.File, bool, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, false, fmt.Errorf("lock: %w", err)
	}
	lock := wholeFile
	err = unix.FcntlFlock(f.Fd(), unix.F_SETLK, &lock)
	if err == nil {
		return f, true, nil
	}
	f.Close()
	if errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EACCES) {
		return nil, false, nil
	}
	return nil, false, fmt.Errorf("lock %s: %w", path, err)
}

// holder returns a descriptor of the process that holds the lock, or nil when
// nobody does.
func holder(path string) (*pidfd, error) {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if os.IsNotExist(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("lock: %w", err)
	}
	defer f.Close()
	for {
		pid, err := lockedBy(f)
		if err != nil || pid == 0 {
			return nil, err
		}
		p, err := openPidfd(pid)
		if errors.Is(err, unix.ESRCH) {
			continue // it ended since; ask again
		}
		if err != nil {
			return nil, err
		}
		// If it still holds the lock, the descriptor is of the right process.
		if again, err := lockedBy(f); err != nil || again != pid {
			p.Close()
			if err != nil {
				return nil, err
			}
			continue
		}
		return p, nil
	}
}

func lockedBy(f *os.File) (pid int, err error) {
	lock := wholeFile
	if err := unix.FcntlFlock(f.Fd(), unix.F_GETLK, &lock); err != nil {
		return 0, fmt.Errorf("lock %s: %w", f.Name(), err)
	}
	if lock.Type == unix.F_UNLCK {
		return 0, nil
	}
	return int(lock.Pid), nil
}

// pidfd is a reference to one process that stays right when its number is
// given to another.
type pidfd struct {
	file *os.File
	conn interface {
		Read(func(uintptr) bool) error
	}
	pid int
}

func openPidfd(pid int) (*pidfd, error) {
	fd, err := unix.PidfdOpen(pid, unix.PIDFD_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("pidfd of %d: %w", pid, err)
	}
	f := os.NewFile(uintptr(fd), "pidfd")
	conn, err := f.SyscallConn()
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("pidfd of %d: %w", pid, err)
	}
	return &pidfd{file: f, conn: conn, pid: pid}, nil
}

// Wait returns when the process has ended. It holds no thread meanwhile.
func (p *pidfd) Wait() error {
	return p.conn.Read(func(fd uintptr) bool {
		poll := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
		n, err := unix.Poll(poll, 0)
		return err == nil && n > 0
	})
}

// Signal sends a signal; to a process that has ended it does nothing.
func (p *pidfd) Signal(sig unix.Signal) error {
	var sent error
	conn, err := p.file.SyscallConn()
	if err != nil {
		return err
	}
	if err := conn.Control(func(fd uintptr) {
		sent = unix.PidfdSendSignal(int(fd), sig, nil, 0)
	}); err != nil {
		return err
	}
	if errors.Is(sent, unix.ESRCH) {
		return nil
	}
	return sent
}

func (p *pidfd) Close() error { return p.file.Close() }
