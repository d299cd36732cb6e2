package embedded

import (
	"fmt"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/setpoint-dev/setpoint/store/internal/core"
)

// A start reads gigabytes. One goroutine reads the files, in order; what was read is checked and taken
// apart by as many as there are processors, and goes into the core in order again.

// inOrder has pieces of work done beside each other, and what they return used in the order in which
// they were given. do says whether there is a use for more; wait returns the first error, of work or
// use, after which nothing was used.
func inOrder[T any](use func(T) error) (do func(work func() (T, error)) bool, wait func() error) {
	type result struct {
		value T
		err   error
	}
	results := make(chan chan result, 2*runtime.GOMAXPROCS(0)) // so much is held in memory at most
	ended := make(chan error, 1)
	var failed atomic.Bool
	go func() {
		var first error
		for r := range results {
			done := <-r
			if first == nil {
				first = done.err
			}
			if first == nil {
				first = use(done.value)
			}
			failed.Store(first != nil)
		}
		ended <- first
	}()
	do = func(work func() (T, error)) bool {
		r := make(chan result, 1)
		results <- r
		go func() {
			value, err := work()
			r <- result{value, err}
		}()
		return !failed.Load()
	}
	return do, func() error { close(results); return <-ended }
}

// logged is an entry of the log, and where it ends.
type logged struct {
	index  uint64
	frame  []byte
	file   string
	offset int64
}

// said is what an entry of the log says.
type said struct {
	logged
	at      time.Time
	changes []core.Change
}

// read checks an entry and takes it apart. Possible errors: *CorruptError.
func (l logged) read() (b said, err error) {
	b.logged = l
	number, body, err := parseFrame(l.frame)
	if err == nil && number != l.index {
		err = fmt.Errorf("entry %d has batch %d", l.index, number)
	}
	if err == nil {
		b.at, err = parseBatch(body, func(ch core.Change) error {
			b.changes = append(b.changes, ch)
			return nil
		})
	}
	if err != nil {
		return b, l.corrupt(err)
	}
	return b, nil
}

func (l *logged) corrupt(err error) error {
	return &CorruptError{File: l.file, Offset: l.offset, Err: err}
}

// replayer takes entries apart beside each other, some at a time, and replays them in order.
type replayer struct {
	do    func(func() ([]said, error)) bool
	wait  func() error
	group []logged
	bytes int
}

// replayFunc gets what an entry says, in order.
type replayFunc func(*said) error

// groupBytes is how much of the log is taken apart at once: what costs more than handing it over.
const groupBytes = 256 << 10

func newReplayer(replay replayFunc) *replayer {
	r := &replayer{}
	r.do, r.wait = inOrder(func(batches []said) error {
		for i := range batches {
			if err := replay(&batches[i]); err != nil {
				return batches[i].corrupt(err)
			}
		}
		return nil
	})
	return r
}

// add takes an entry, and says whether there is a use for more.
func (r *replayer) add(l logged) bool {
	r.group = append(r.group, l)
	if r.bytes += len(l.frame); r.bytes < groupBytes {
		return true
	}
	return r.flush()
}

func (r *replayer) flush() bool {
	group := r.group
	r.group, r.bytes = nil, 0
	return r.do(func() ([]said, error) {
		batches := make([]said, len(group))
		for i := range group {
			var err error
			if batches[i], err = group[i].read(); err != nil {
				return batches, err
			}
		}
		return batches, nil
	})
}

// end returns when everything was replayed, or the first error.
func (r *replayer) end() error {
	r.flush()
	return r.wait()
}
