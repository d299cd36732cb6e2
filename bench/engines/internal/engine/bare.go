package engine

import (
	"bufio"
	"encoding/binary"
	"errors"
	"io"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// bare is a length-prefixed file, written once and synced once per group: the limit of what any
// library can do. A recycled one overwrites blocks that were written before, so that a sync moves
// no file system metadata.
type bare struct {
	f      *os.File
	buf    []byte
	at     int64
	wrapAt int64
}

const recycledBytes = 64 << 20

func openBare(dir string, replay func([]byte)) (Engine, error) {
	f, err := os.OpenFile(filepath.Join(dir, "log"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	b := &bare{f: f}
	r := bufio.NewReaderSize(f, 1<<20)
	for {
		var head [4]byte
		if _, err := io.ReadFull(r, head[:]); errors.Is(err, io.EOF) {
			return b, nil
		} else if err != nil {
			return nil, err
		}
		record := make([]byte, binary.LittleEndian.Uint32(head[:]))
		if _, err := io.ReadFull(r, record); err != nil {
			return nil, err
		}
		replay(record)
		b.at += int64(len(head) + len(record))
	}
}

func openRecycled(dir string, _ func([]byte)) (Engine, error) {
	f, err := os.OpenFile(filepath.Join(dir, "log"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	if _, err := f.Write(make([]byte, recycledBytes)); err != nil {
		return nil, err
	}
	return &bare{f: f, wrapAt: recycledBytes}, f.Sync()
}

func (b *bare) Append(records [][]byte) error {
	b.buf = b.buf[:0]
	for _, r := range records {
		b.buf = binary.LittleEndian.AppendUint32(b.buf, uint32(len(r)))
		b.buf = append(b.buf, r...)
	}
	if b.wrapAt > 0 && b.at+int64(len(b.buf)) > b.wrapAt {
		b.at = 0
	}
	n, err := b.f.WriteAt(b.buf, b.at)
	if err != nil {
		return err
	}
	b.at += int64(n)
	return unix.Fdatasync(int(b.f.Fd()))
}

func (b *bare) Close() error { return b.f.Close() }
