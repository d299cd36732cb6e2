package engine

import (
	"encoding/binary"
	"path/filepath"

	"github.com/cockroachdb/pebble/v2"
	bolt "go.etcd.io/bbolt"
)

// join and split put a group of records into one.
func join(dst []byte, records [][]byte) []byte {
	for _, r := range records {
		dst = binary.LittleEndian.AppendUint32(dst, uint32(len(r)))
		dst = append(dst, r...)
	}
	return dst
}

func split(group []byte, replay func([]byte)) {
	for len(group) >= 4 {
		n := binary.LittleEndian.Uint32(group)
		replay(group[4 : 4+n])
		group = group[4+n:]
	}
}

type pebbleDB struct {
	db *pebble.DB
	n  uint64
}

type quiet struct{}

func (quiet) Infof(string, ...any)  {}
func (quiet) Errorf(string, ...any) {}
func (quiet) Fatalf(string, ...any) {}

func openPebble(dir string, replay func([]byte)) (Engine, error) {
	db, err := pebble.Open(dir, &pebble.Options{Logger: quiet{}, FormatMajorVersion: pebble.FormatNewest})
	if err != nil {
		return nil, err
	}
	it, err := db.NewIter(nil)
	if err != nil {
		return nil, err
	}
	for it.First(); it.Valid(); it.Next() {
		replay(it.Value())
	}
	return &pebbleDB{db: db}, it.Close()
}

func (p *pebbleDB) Append(records [][]byte) error {
	b := p.db.NewBatch()
	defer b.Close()
	for _, r := range records {
		if err := b.Set(keyOf(p.n), r, nil); err != nil {
			return err
		}
		p.n++
	}
	return b.Commit(pebble.Sync)
}

func (p *pebbleDB) Close() error { return p.db.Close() }

type boltDB struct {
	db *bolt.DB
	n  uint64
}

var bucket = []byte("objects")

func openBolt(dir string, replay func([]byte)) (Engine, error) {
	options := *bolt.DefaultOptions
	options.FreelistType = bolt.FreelistMapType
	options.NoFreelistSync = true
	db, err := bolt.Open(filepath.Join(dir, "db"), 0o600, &options)
	if err != nil {
		return nil, err
	}
	return &boltDB{db: db}, db.Update(func(tx *bolt.Tx) error {
		b, err := tx.CreateBucketIfNotExists(bucket)
		if err != nil {
			return err
		}
		return b.ForEach(func(_, v []byte) error {
			replay(v)
			return nil
		})
	})
}

func (b *boltDB) Append(records [][]byte) error {
	return b.db.Update(func(tx *bolt.Tx) error {
		objects := tx.Bucket(bucket)
		for _, r := range records {
			if err := objects.Put(keyOf(b.n), r); err != nil {
				return err
			}
			b.n++
		}
		return nil
	})
}

func (b *boltDB) Close() error { return b.db.Close() }
