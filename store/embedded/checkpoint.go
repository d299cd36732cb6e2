package embedded

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/setpoint-dev/setpoint/store"
)

// A checkpoint is the whole state after an entry of the log, in one file: a frame that says which
// state it is, frames of entries, and a last frame that says how many there were. It gets its name
// when it is complete and on disk.
type checkpoint struct {
	index    uint64 // the log goes on after this entry
	revision store.Revision
	size     int64 // of the file
}

const (
	checkpointPrefix = "checkpoint-"
	// blockBytes is how much is written and checked at once.
	blockBytes = 1 << 20
)

func (c checkpoint) name() string { return fmt.Sprintf("%s%016x", checkpointPrefix, c.index) }

// write makes the file.
func (c *checkpoint) write(
	dir string, entries iter.Seq[*store.Entry], fail func(string) error,
) error {
	path := filepath.Join(dir, c.name())
	temp := path + ".tmp"
	f, err := os.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	c.size, err = c.writeTo(f, entries)
	if err == nil {
		err = f.Sync()
	}
	if err == nil {
		err = fail("name")
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return errors.Join(err, os.Remove(temp))
	}
	if err := os.Rename(temp, path); err != nil {
		return err
	}
	return syncDir(dir)
}

func (c *checkpoint) writeTo(w io.Writer, entries iter.Seq[*store.Entry]) (size int64, err error) {
	frames := uint64(0)
	var buf []byte
	flush := func() error {
		endFrame(buf, 0)
		n, err := w.Write(buf)
		size += int64(n)
		frames++
		buf = beginFrame(buf[:0], frames)
		return err
	}
	buf = beginFrame(buf, frames)
	buf = binary.AppendUvarint(buf, uint64(c.revision))
	if err := flush(); err != nil {
		return size, err
	}
	count := uint64(0)
	for e := range entries {
		buf = appendRecord(buf, &record{key: e.Key, revision: e.Revision, number: uint64(e.Created), value: e.Value})
		count++
		if len(buf) >= blockBytes {
			if err := flush(); err != nil {
				return size, err
			}
		}
	}
	if len(buf) > frameHead {
		if err := flush(); err != nil {
			return size, err
		}
	}
	// The last record is told from the others by its resource, which no entry has.
	buf = appendRecord(buf, &record{number: count})
	return size, flush()
}

// entry is what a record of a checkpoint says. It shares no memory with it.
func (r *record) entry() *store.Entry {
	return &store.Entry{
		Key: r.key, Revision: r.revision, Created: store.Revision(r.number), Value: slices.Clone(r.value),
	}
}

// listCheckpoints finds the checkpoints in the directory, oldest first, and what a crash left of others.
func listCheckpoints(dir string) (found []checkpoint, leftovers []string, err error) {
	paths, err := filepath.Glob(filepath.Join(dir, checkpointPrefix+"*"))
	if err != nil {
		return nil, nil, fmt.Errorf("store: reading the directory: %w", err)
	}
	slices.Sort(paths)
	for _, path := range paths {
		var c checkpoint
		name := filepath.Base(path)
		if strings.HasSuffix(name, ".tmp") {
			leftovers = append(leftovers, path)
		} else if _, err := fmt.Sscanf(name, checkpointPrefix+"%016x", &c.index); err == nil {
			found = append(found, c)
		}
	}
	if len(found) == 0 {
		found = []checkpoint{{}} // the empty state
	}
	return found, leftovers, nil
}

// head reads which state the checkpoint is of, and how large its file is.
// Possible errors: *CorruptError.
func (c *checkpoint) head(dir string) error {
	path := filepath.Join(dir, c.name())
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	c.size = info.Size()
	return c.readHead(&frameReader{file: path, r: f})
}

// read loads the checkpoint's entries, and its revision before the first of them.
// Possible errors: *CorruptError.
func (c *checkpoint) read(dir string, entry func(*store.Entry)) error {
	path := filepath.Join(dir, c.name())
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	return c.readFrom(path, f, entry)
}

// readFrom is read for a checkpoint that is in no directory; the name is for errors.
func (c *checkpoint) readFrom(
	name string, file io.Reader, entry func(*store.Entry),
) error {
	r := &frameReader{file: name, r: file}
	if err := c.readHead(r); err != nil {
		return err
	}
	count := uint64(0)
	do, wait := inOrder(func(b *block) error {
		for _, e := range b.entries {
			entry(e)
		}
		count += uint64(len(b.entries))
		switch {
		case !b.last:
			return nil
		case b.count != count:
			return b.corrupt(fmt.Errorf("%d entries are there of %d", count, b.count))
		}
		c.size = b.end
		return errStop
	})
	for more := true; more; {
		f, err := r.read()
		more = do(func() (*block, error) {
			if err != nil {
				return nil, err
			}
			return f.block()
		}) && err == nil
	}
	if err := wait(); !errors.Is(err, errStop) {
		return err
	}
	return nil
}

// block is what a frame of a checkpoint says.
type block struct {
	*frame
	entries []*store.Entry
	last    bool   // it is the end,
	count   uint64 // and says how many entries there are
}

func (f *frame) block() (*block, error) {
	defer f.free()
	body, err := f.body()
	if err != nil {
		return nil, err
	}
	b, names := &block{frame: f}, interned{}
	for p := (parser{rest: body}); len(p.rest) > 0 && !b.last; {
		rec := p.record(names)
		switch {
		case p.err != nil:
			return nil, f.corrupt(p.err)
		case rec.key.Resource != "":
			b.entries = append(b.entries, rec.entry())
		default:
			b.last, b.count = true, rec.number
		}
	}
	return b, nil
}

func (c *checkpoint) readHead(r *frameReader) error {
	f, err := r.read()
	if err != nil {
		return err
	}
	body, err := f.body()
	if err != nil {
		return err
	}
	p := parser{rest: body}
	c.revision = store.Revision(p.uvarint())
	if p.err != nil {
		return f.corrupt(p.err)
	}
	return nil
}

// frameReader reads frames that follow each other in a file, numbered from zero.
type frameReader struct {
	file   string
	r      io.Reader
	number uint64
	offset int64 // where the next frame starts
}

// frame is one that was read, and not looked at yet.
type frame struct {
	file   string
	offset int64
	end    int64  // where the next one starts
	number uint64 // that it should have
	data   []byte // nil when it has been freed
	buffer *[]byte
}

// buffers have the memory of frames that were freed: as large as a block is as a rule.
var buffers = sync.Pool{New: func() any { return new([]byte) }}

// free gives the memory of a frame to others. Nothing that was read of it shares it.
func (f *frame) free() {
	*f.buffer = f.data
	buffers.Put(f.buffer)
	f.buffer, f.data = nil, nil
}

func (f *frame) corrupt(err error) error {
	return &CorruptError{File: f.file, Offset: f.offset, Err: err}
}

// read returns the next frame.
func (r *frameReader) read() (*frame, error) {
	f := &frame{file: r.file, offset: r.offset, number: r.number, buffer: buffers.Get().(*[]byte)}
	f.data = slices.Grow((*f.buffer)[:0], frameHead+blockBytes)[:frameHead]
	if _, err := io.ReadFull(r.r, f.data); err != nil {
		return nil, f.corrupt(fmt.Errorf("reading a frame: %w", err))
	}
	if err := checkMagic(f.data); err != nil {
		if f.offset == 0 {
			err = fmt.Errorf("%w: is it a file that setpoint wrote?", err)
		}
		return nil, f.corrupt(err)
	}
	n := int(binary.LittleEndian.Uint32(f.data[8:]))
	if n > frameBytesMax {
		return nil, f.corrupt(fmt.Errorf("frame of %d bytes, at most %d are allowed", n, frameBytesMax))
	}
	f.data = slices.Grow(f.data, n)[:frameHead+n]
	if _, err := io.ReadFull(r.r, f.data[frameHead:]); err != nil {
		return nil, f.corrupt(fmt.Errorf("reading a frame: %w", err))
	}
	r.number++
	r.offset += int64(len(f.data))
	f.end = r.offset
	return f, nil
}

// body returns what a frame has, if it is whole.
func (f *frame) body() ([]byte, error) {
	number, body, err := parseFrame(f.data)
	if err == nil && number != f.number {
		err = fmt.Errorf("frame %d stands where frame %d should", number, f.number)
	}
	if err != nil {
		return nil, f.corrupt(err)
	}
	return body, nil
}

// frameBytesMax bounds what a damaged length can make us allocate. A block is full when it has
// blockBytes, so it is that and one entry; a value has at most commitBytesMax.
const frameBytesMax = blockBytes + commitBytesMax + 1<<16
