package embedded

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"strings"

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
	r := &frameReader{file: name, r: bufio.NewReaderSize(file, blockBytes)}
	if err := c.readHead(r); err != nil {
		return err
	}
	names := interned{}
	for count := uint64(0); ; {
		body, err := r.next()
		if err != nil {
			return err
		}
		for p := (parser{rest: body}); len(p.rest) > 0; {
			rec := p.record(names)
			switch {
			case p.err != nil:
				return r.corrupt(p.err)
			case rec.key.Resource != "":
				entry(rec.entry())
				count++
			case rec.number != count:
				return r.corrupt(fmt.Errorf("%d entries are there of %d", count, rec.number))
			default:
				c.size = r.offset
				return nil
			}
		}
	}
}

func (c *checkpoint) readHead(r *frameReader) error {
	body, err := r.next()
	if err != nil {
		return err
	}
	p := parser{rest: body}
	c.revision = store.Revision(p.uvarint())
	if p.err != nil {
		return r.corrupt(p.err)
	}
	return nil
}

// frameReader reads frames that follow each other in a file, numbered from zero.
type frameReader struct {
	file   string
	r      io.Reader
	number uint64
	offset int64 // where the next frame starts
	buf    []byte
}

func (r *frameReader) corrupt(err error) error {
	return &CorruptError{File: r.file, Offset: r.offset, Err: err}
}

// next returns the body of the next frame; it is valid until the next call.
func (r *frameReader) next() ([]byte, error) {
	r.buf = slices.Grow(r.buf[:0], frameHead)[:frameHead]
	if _, err := io.ReadFull(r.r, r.buf); err != nil {
		return nil, r.corrupt(fmt.Errorf("reading a frame: %w", err))
	}
	n := int(binary.LittleEndian.Uint32(r.buf[8:]))
	if n > frameBytesMax {
		return nil, r.corrupt(fmt.Errorf("frame of %d bytes, at most %d are allowed", n, frameBytesMax))
	}
	r.buf = slices.Grow(r.buf, n)[:frameHead+n]
	if _, err := io.ReadFull(r.r, r.buf[frameHead:]); err != nil {
		return nil, r.corrupt(fmt.Errorf("reading a frame: %w", err))
	}
	number, body, err := parseFrame(r.buf)
	if err == nil && number != r.number {
		err = fmt.Errorf("frame %d stands where frame %d should", number, r.number)
	}
	if err != nil {
		return nil, r.corrupt(err)
	}
	r.number++
	r.offset += int64(len(r.buf))
	return body, nil
}

// frameBytesMax bounds what a damaged length can make us allocate. A block is full when it has
// blockBytes, so it is that and one entry; a value has at most commitBytesMax.
const frameBytesMax = blockBytes + commitBytesMax + 1<<16
