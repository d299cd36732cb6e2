package logs

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"
)

// The streams a line may come from.
const (
	Stdout = "stdout"
	Stderr = "stderr"
)

// lineMax is where a longer line is cut into parts (tag P, the last one F).
// 16 KiB is what container runtimes use; a reader joins the parts again.
const lineMax = 16 << 10

// Writer appends lines to a file and rotates it. Its streams may be written
// to at the same time; lines never mix.
type Writer struct {
	path     string
	bytesMax int64
	filesMax int
	now      func() time.Time

	mu   sync.Mutex
	file *os.File
	size int64
	line bytes.Buffer
}

// Options bound what a Writer leaves on the disk: FilesMax files of about
// BytesMax each. Zero means 10 MiB and 5 files, the defaults of a kubelet.
type Options struct {
	BytesMax int64
	FilesMax int
	Now      func() time.Time `json:"-"` // nil means time.Now
}

// Open returns a Writer that appends to path. Rotated files stand beside it as
// path.1 (the newest) to path.N.
func Open(path string, opts Options) (*Writer, error) {
	if opts.BytesMax <= 0 {
		opts.BytesMax = 10 << 20
	}
	if opts.FilesMax <= 0 {
		opts.FilesMax = 5
	}
	if opts.Now == nil {
		opts.Now = time.Now
	}
	w := &Writer{path: path, bytesMax: opts.BytesMax, filesMax: opts.FilesMax, now: opts.Now}
	return w, w.open()
}

func (w *Writer) open() error {
	f, err := os.OpenFile(w.path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o640)
	if err != nil {
		return fmt.Errorf("log: %w", err)
	}
	info, err := f.Stat()
	if err != nil {
		f.Close()
		return fmt.Errorf("log: %w", err)
	}
	w.file, w.size = f, info.Size()
	return nil
}

// Copy reads lines from r until it ends and writes them under the stream's
// name. A last line without a newline is kept as a line. After an error of the
// disk it goes on reading, so that the process behind r is not blocked for
// ever, and returns the first error at the end.
func (w *Writer) Copy(stream string, r io.Reader) error {
	var first error
	buf := make([]byte, 0, lineMax)
	chunk := make([]byte, lineMax)
	emit := func(tag string, line []byte) {
		if err := w.write(stream, tag, line); err != nil && first == nil {
			first = err
		}
	}
	for {
		n, err := r.Read(chunk)
		buf = append(buf, chunk[:n]...)
		for {
			i := bytes.IndexByte(buf, '\n')
			if i >= 0 {
				emit("F", buf[:i])
				buf = buf[i+1:]
				continue
			}
			if len(buf) < lineMax {
				break
			}
			emit("P", buf[:lineMax])
			buf = buf[lineMax:]
		}
		if err != nil {
			if len(buf) > 0 {
				emit("F", buf)
			}
			return first
		}
		buf = append(make([]byte, 0, lineMax), buf...)
	}
}

func (w *Writer) write(stream, tag string, line []byte) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.line.Reset()
	w.line.WriteString(w.now().UTC().Format(timeFormat))
	w.line.WriteByte(' ')
	w.line.WriteString(stream)
	w.line.WriteByte(' ')
	w.line.WriteString(tag)
	w.line.WriteByte(' ')
	w.line.Write(line)
	w.line.WriteByte('\n')
	if w.size > 0 && w.size+int64(w.line.Len()) > w.bytesMax {
		if err := w.rotate(); err != nil {
			return err
		}
	}
	n, err := w.file.Write(w.line.Bytes())
	w.size += int64(n)
	return err
}

// rotate moves path.1 to path.2 and so on, path to path.1, and opens anew.
func (w *Writer) rotate() error {
	for i := w.filesMax - 2; i >= 1; i-- {
		if err := os.Rename(rotated(w.path, i), rotated(w.path, i+1)); err != nil && !os.IsNotExist(err) {
			return fmt.Errorf("rotate log: %w", err)
		}
	}
	var err error
	if w.filesMax > 1 {
		err = os.Rename(w.path, rotated(w.path, 1))
	} else {
		err = os.Remove(w.path)
	}
	if err != nil && !os.IsNotExist(err) {
		return fmt.Errorf("rotate log: %w", err)
	}
	old := w.file
	if err := w.open(); err != nil {
		w.file = old
		return err
	}
	return old.Close()
}

// Close closes the file.
func (w *Writer) Close() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.file.Close()
}

func rotated(path string, n int) string { return fmt.Sprintf("%s.%d", path, n) }

// Tail returns the end of what was logged, at most linesMax lines and bytesMax
// bytes, without times. It is what a container that failed without a message
// of its own is said to have said.
func Tail(path string, linesMax int64, bytesMax int) string {
	var out strings.Builder
	if err := Read(context.Background(), path, ReadOptions{TailLines: &linesMax}, &out); err != nil {
		return ""
	}
	text := out.String()
	if len(text) > bytesMax {
		text = text[len(text)-bytesMax:]
	}
	return text
}
