package logs

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"
)

const timeFormat = "2006-01-02T15:04:05.000000000Z07:00"

// followEvery is how often a follower looks for more. A tenth of a second is
// not noticed by a person and costs one read at the end of a file.
const followEvery = 100 * time.Millisecond

// ReadOptions say which lines are wanted; they mirror core/v1 PodLogOptions.
type ReadOptions struct {
	TailLines  *int64          // only so many of the last lines; nil means all
	LimitBytes *int64          // stop after so many bytes; nil means no limit
	Since      time.Time       // only lines printed at this time or later
	Timestamps bool            // put the time before each line
	Stream     string          // only "stdout" or only "stderr"; empty means both
	Follow     bool            // go on until Done is closed and everything is read
	Done       <-chan struct{} // closed when nothing more will be written
}

// Read writes the lines logged at path, the oldest first and the rotated files
// before the current one, to w. With Follow it ends when Done is closed and the
// end is reached, when ctx ends, or when w fails. If w has a Flush method it is
// called whenever the reader has caught up.
func Read(ctx context.Context, path string, opts ReadOptions, w io.Writer) error {
	files, err := openAll(path)
	if err != nil {
		return err
	}
	r := &reader{opts: opts, out: w, left: -1}
	if opts.LimitBytes != nil {
		r.left = *opts.LimitBytes
	}
	defer func() {
		for _, f := range files {
			f.Close()
		}
	}()
	skip := 0
	if opts.TailLines != nil {
		if skip, err = linesBeforeTail(files, opts, *opts.TailLines); err != nil {
			return err
		}
	}
	r.skip = skip
	for _, f := range files {
		if err := r.drain(f); err != nil {
			return ignoreFull(err)
		}
	}
	r.flush()
	if !opts.Follow {
		return nil
	}
	var current *os.File
	if n := len(files); n > 0 {
		current = files[n-1]
		files = files[:n-1]
	}
	return ignoreFull(r.follow(ctx, path, current))
}

// errFull ends a read that reached its limit of bytes.
var errFull = errors.New("limit of bytes reached")

func ignoreFull(err error) error {
	if errors.Is(err, errFull) {
		return nil
	}
	return err
}

// openAll opens the rotated files, the oldest first, and the current one. The
// current one is opened first: if a rotation comes between, a file is seen
// twice and dropped, never missed.
func openAll(path string) ([]*os.File, error) {
	var newestFirst []*os.File
	for i := 0; ; i++ {
		name := path
		if i > 0 {
			name = rotated(path, i)
		}
		f, err := os.Open(name)
		if os.IsNotExist(err) {
			break
		}
		if err != nil {
			for _, open := range newestFirst {
				open.Close()
			}
			return nil, fmt.Errorf("log: %w", err)
		}
		if n := len(newestFirst); n > 0 && sameFile(newestFirst[n-1], f) {
			f.Close()
			continue
		}
		newestFirst = append(newestFirst, f)
	}
	for i, j := 0, len(newestFirst)-1; i < j; i, j = i+1, j-1 {
		newestFirst[i], newestFirst[j] = newestFirst[j], newestFirst[i]
	}
	return newestFirst, nil
}

func sameFile(a, b *os.File) bool {
	x, errA := a.Stat()
	y, errB := b.Stat()
	return errA == nil && errB == nil && os.SameFile(x, y)
}

// linesBeforeTail counts the wanted lines that come before the last tail ones.
func linesBeforeTail(files []*os.File, opts ReadOptions, tail int64) (int, error) {
	counter := &reader{opts: opts, out: io.Discard, left: -1}
	for _, f := range files {
		if err := counter.drain(f); err != nil {
			return 0, err
		}
		if _, err := f.Seek(0, io.SeekStart); err != nil {
			return 0, fmt.Errorf("log: %w", err)
		}
		counter.rest = nil
	}
	return max(0, counter.lines-int(tail)), nil
}

// reader is the state of one Read.
type reader struct {
	opts  ReadOptions
	out   io.Writer
	left  int64  // bytes that may still be written; negative means no limit
	skip  int    // whole lines still to be passed over
	lines int    // whole lines seen, of those wanted
	inRow bool   // the last part written was not the end of its line
	rest  []byte // the beginning of a line whose newline was not there yet
}

// drain reads f to its end.
func (r *reader) drain(f io.Reader) error {
	in := bufio.NewReaderSize(f, 64<<10)
	for {
		part, err := in.ReadBytes('\n')
		if err == io.EOF {
			r.rest = append(r.rest, part...)
			return nil
		}
		if err != nil {
			return fmt.Errorf("log: %w", err)
		}
		if len(r.rest) > 0 {
			part = append(r.rest, part...)
			r.rest = nil
		}
		if err := r.line(part[:len(part)-1]); err != nil {
			return err
		}
	}
}

// line writes one line of the file if it is wanted. A line that is not in the
// format is passed over: it can only come from a disk that lost a write.
func (r *reader) line(raw []byte) error {
	stamp, rest, ok1 := bytes.Cut(raw, []byte{' '})
	stream, rest, ok2 := bytes.Cut(rest, []byte{' '})
	tag, text, ok3 := bytes.Cut(rest, []byte{' '})
	at, err := time.Parse(timeFormat, string(stamp))
	if !ok1 || !ok2 || !ok3 || err != nil {
		return nil
	}
	if r.opts.Stream != "" && r.opts.Stream != string(stream) || at.Before(r.opts.Since) {
		return nil
	}
	starts, ends := !r.inRow, string(tag) == "F"
	r.inRow = !ends
	if ends {
		r.lines++
	}
	if r.skip > 0 {
		if ends {
			r.skip--
		}
		return nil
	}
	if starts && r.opts.Timestamps {
		if err := r.write(append(bytes.Clone(stamp), ' ')); err != nil {
			return err
		}
	}
	if ends {
		text = append(bytes.Clone(text), '\n')
	}
	return r.write(text)
}

func (r *reader) write(text []byte) error {
	full := false
	if r.left >= 0 && int64(len(text)) >= r.left {
		text, full = text[:r.left], true
	}
	n, err := r.out.Write(text)
	if r.left >= 0 {
		r.left -= int64(n)
	}
	if err == nil && full {
		err = errFull
	}
	return err
}

func (r *reader) flush() {
	if f, ok := r.out.(interface{ Flush() }); ok {
		f.Flush()
	}
}

// follow reads what is appended to f and moves on to the file that replaces it.
func (r *reader) follow(ctx context.Context, path string, f *os.File) error {
	defer func() {
		if f != nil {
			f.Close()
		}
	}()
	tick := time.NewTicker(followEvery)
	defer tick.Stop()
	for last := false; ; {
		select {
		case <-ctx.Done():
			return nil
		case <-r.opts.Done:
			last = true
		case <-tick.C:
		}
		next, err := replaced(path, f)
		if err != nil {
			return err
		}
		if f != nil {
			if err := r.drain(f); err != nil {
				return err
			}
		}
		if next != nil {
			if f != nil {
				f.Close()
			}
			f, r.rest = next, nil
			if err := r.drain(f); err != nil {
				return err
			}
		}
		r.flush()
		if last {
			return nil
		}
	}
}

// replaced opens path if it is no longer the file f.
func replaced(path string, f *os.File) (*os.File, error) {
	next, err := os.Open(path)
	if os.IsNotExist(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("log: %w", err)
	}
	if f != nil && sameFile(f, next) {
		next.Close()
		return nil, nil
	}
	return next, nil
}
