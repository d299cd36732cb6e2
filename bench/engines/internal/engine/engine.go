// Package engine gives the storage libraries that were considered for the store one shape: append
// a group of records durably, and read all of them back after a restart.
package engine

import "fmt"

// Engine is what the store's committer needs from a disk.
type Engine interface {
	// Append stores the records in order and returns when they are on disk.
	Append(records [][]byte) error
	Close() error
}

// A Library is one candidate.
type Library struct {
	Name string
	// Package is what a program imports for it, and Uses what it refers to, so that the linker
	// keeps it; "" for what needs no library.
	Package, Uses string
	// Commits says that each Append is one commit of one record, that it may be called by any
	// number of goroutines, and that the engine groups them itself.
	Commits bool
	// NoRestart says that records cannot be read back: it only shows a limit of writing.
	NoRestart bool
	// Open opens the directory and calls replay for each record there, in order.
	Open func(dir string, replay func(record []byte)) (Engine, error)
}

// Libraries are all candidates, the bare files that bound them first.
func Libraries() []Library {
	return []Library{
		{Name: "bare file", Open: openBare},
		{Name: "bare file, recycled", NoRestart: true, Open: openRecycled},
		{Name: "etcd wal", Package: "go.etcd.io/etcd/server/v3/storage/wal", Uses: "Create", Open: openEtcdWAL},
		{Name: "raft-wal", Package: "github.com/hashicorp/raft-wal", Uses: "Open", Open: openRaftWAL},
		{Name: "tidwall/wal", Package: "github.com/tidwall/wal", Uses: "Open", Open: openTidwall},
		{Name: "Pebble", Package: "github.com/cockroachdb/pebble/v2", Uses: "Open", Open: openPebble},
		{Name: "bbolt", Package: "go.etcd.io/bbolt", Uses: "Open", Open: openBolt},
		{Name: "Setpoint's store", Commits: true, Open: openStore},
	}
}

// keyOf names record n in the libraries that want keys: they see the 100,000 objects that the
// benchmark rewrites, as a store would.
func keyOf(n uint64) []byte { return fmt.Appendf(nil, "pods/default/web-%06d", n%100_000) }
