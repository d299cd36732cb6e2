// Package embedded is a store in one directory of a local disk: the current state and the recent
// history are in memory, and each commit is in a log on disk before it is visible or acknowledged.
//
// One goroutine commits. It takes all commits that are waiting, decides them one after another in
// memory, appends them to the log as one batch, syncs the log once, and then shows and
// acknowledges them together. So the more writers there are, the fewer syncs each costs. A batch
// that cannot be written is taken back: nobody has seen it.
//
// When the log has grown enough the state is written to a checkpoint, beside the commits. A restart
// reads a checkpoint from before the history begins and all that the log has after it, so history
// survives it. What is older is deleted: the log, and checkpoints that have a later one there.
//
// A directory holds:
//
//	lock            held while a process uses the directory
//	checkpoint-N    the state after entry N of the log; several while the history is longer than one
//	wal/            the log, in segments of 16 MB
//	reserve         32 MB that are given up when the disk is full, so that deletions can be written
package embedded

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/setpoint-dev/setpoint/internal/dirlock"
	"github.com/setpoint-dev/setpoint/store"
	"github.com/setpoint-dev/setpoint/store/internal/core"
	"github.com/setpoint-dev/setpoint/store/memory"
)

// Options tune a store. The zero Options are good ones.
type Options struct {
	// HistoryAge and HistoryBytes bound how much of the past can be read and watched, by its age
	// and by the memory it keeps alive: nine minutes and 128 MB unless set. It survives a restart,
	// which reads it from the log; when the disk is full it is given up first.
	HistoryAge   time.Duration
	HistoryBytes int64
	// CheckpointBytes is how large the log grows between two checkpoints: 64 MB unless set, which a
	// restart replays in a few tenths of a second. A state that is larger lets the log become as
	// large as itself, so that no byte is written more than three times.
	CheckpointBytes int64
	// Logger is told what the store does by itself; nothing is logged unless it is set.
	Logger *slog.Logger

	// fail is called at the points that points lists; an error it returns is what went wrong there.
	// For tests.
	fail func(point string) error
}

// points are where a test can make something go wrong, or kill the process: before and after a batch
// is appended and synced, which is one step; before and after what is durable becomes visible, which
// is before it is acknowledged; before and after a compaction; before a checkpoint is written, before
// it gets its name, and when it has it; before and between the deletions of checkpoints and log that
// are no longer needed, and after them.
var points = []string{"append", "appended", "publish", "published", "compact", "compacted",
	"checkpoint", "name", "checkpointed", "release", "dropped", "released"}

const (
	defaultCheckpointBytes = 64 << 20
	// batchBytesMax ends a batch: what is synced together is also acknowledged together, and
	// 4 MB take a disk a few milliseconds.
	batchBytesMax = 4 << 20
	// commitBytesMax bounds one commit. It is far beyond what a request may hold.
	commitBytesMax = 64 << 20
	// retryAfter is how long commits fail at once after the log has failed, before it is tried
	// again: it takes a few milliseconds to try.
	retryAfter = 250 * time.Millisecond
	// lockPatience is how long Open waits for a process that is ending to let go of the directory:
	// the system needs a second to take a process with gigabytes of memory apart.
	lockPatience = 3 * time.Second
)

// Store is a store.Store on disk.
type Store struct {
	*core.Reader

	options Options
	dir     string
	lock    *os.File

	mu      sync.Mutex
	waiting []*request
	closing bool

	wake chan struct{} // has an element when there is something new for the committer
	done chan struct{} // closed when the committer has ended
	err  error         // of closing; read after done
}

var _ store.Store = (*Store)(nil)

// LockedError says that another store has the directory open, and that it still had it after Open
// had waited a few seconds.
type LockedError = dirlock.HeldError

// DiskBytes is how much of the disk the log and the checkpoints take, which hold the state and the history;
// what is kept in reserve is not counted.
func (s *Store) DiskBytes() (bytes int64) {
	_ = filepath.WalkDir(s.dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || d.Name() == reserveName {
			return nil // what goes meanwhile takes nothing
		}
		if info, err := d.Info(); err == nil {
			bytes += info.Size()
		}
		return nil
	})
	return bytes
}

// Open opens the store in a directory, which is made if it does not exist.
// Possible errors: *LockedError, *CorruptError.
func Open(dir string, options Options) (*Store, error) {
	if options.CheckpointBytes == 0 {
		options.CheckpointBytes = defaultCheckpointBytes
	}
	if options.Logger == nil {
		options.Logger = slog.New(slog.DiscardHandler)
	}
	if options.fail == nil {
		options.fail = func(string) error { return nil }
	}
	if err := makeDir(dir); err != nil {
		return nil, err
	}
	lock, err := dirlock.LockWithin(dir, lockPatience)
	if err != nil {
		return nil, fmt.Errorf("store: %w", err)
	}
	c, err := load(dir, options)
	if err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	s := &Store{
		Reader:  c.core.Reader(),
		options: options,
		dir:     dir,
		lock:    lock,
		wake:    make(chan struct{}, 1),
		done:    make(chan struct{}),
	}
	c.store = s
	go c.run()
	return s, nil
}

// makeDir makes the directory if it does not exist, so that a power loss does not take it away.
func makeDir(dir string) error {
	if _, err := os.Stat(dir); err == nil {
		return nil
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("store: making the directory: %w", err)
	}
	return syncDir(filepath.Dir(dir))
}

// request is a commit that waits for its turn, or a compaction.
type request struct {
	ctx     context.Context
	ops     []store.Op
	compact store.Revision // instead of ops, if not zero
	done    chan outcome
}

type outcome struct {
	result store.Result
	err    error
}

// Commit implements store.Store. Apart from the errors named there it may return one of the
// operating system's; the commit has not happened then, and the log is repaired before the next.
func (s *Store) Commit(ctx context.Context, ops ...store.Op) (store.Result, error) {
	if n := size(ops); n > commitBytesMax {
		return store.Result{}, fmt.Errorf("store: a commit has %d bytes, at most %d are allowed",
			n, commitBytesMax)
	}
	return s.ask(&request{ctx: ctx, ops: ops})
}

func size(ops []store.Op) int {
	n := 0
	for i := range ops {
		n += len(ops[i].Value) + len(ops[i].Key.Path) + len(ops[i].Key.Resource) + len(ops[i].Origin)
	}
	return n
}

// Fork returns a store in memory that starts with the state of this one and goes its own way.
func (s *Store) Fork() *memory.Store {
	return memory.ForkOf(s.Reader, memory.Options{
		HistoryAge:   s.options.HistoryAge,
		HistoryBytes: s.options.HistoryBytes,
	})
}

// Compact implements store.Store.
func (s *Store) Compact(ctx context.Context, before store.Revision) error {
	if before <= 0 {
		return nil
	}
	_, err := s.ask(&request{ctx: ctx, compact: before})
	return err
}

func (s *Store) ask(r *request) (store.Result, error) {
	if err := r.ctx.Err(); err != nil {
		return store.Result{}, err
	}
	r.done = make(chan outcome, 1)
	s.mu.Lock()
	if s.closing {
		s.mu.Unlock()
		return store.Result{}, store.ErrClosed
	}
	s.waiting = append(s.waiting, r)
	s.mu.Unlock()
	s.poke()
	select {
	case o := <-r.done:
		return o.result, o.err
	case <-r.ctx.Done():
		return store.Result{}, r.ctx.Err()
	}
}

func (s *Store) poke() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// take returns the requests that are waiting, and whether the store is being closed. It gives the
// committer's last slice back for the next ones.
func (s *Store) take(reuse []*request) ([]*request, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	taken := s.waiting
	clear(reuse)
	s.waiting = reuse[:0]
	return taken, s.closing
}

// Close implements store.Store.
func (s *Store) Close() error {
	s.mu.Lock()
	s.closing = true
	s.mu.Unlock()
	s.poke()
	<-s.done
	return s.err
}
