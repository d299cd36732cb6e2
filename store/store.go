// Package store keeps every object of a control plane: one writer's order over all keys, read as
// snapshots and followed as watches.
//
// A Store is a map from Key to bytes with a single, ever-rising Revision. A commit changes several
// keys in one revision or none. Reads never wait for writes: a Snapshot is a view of one revision
// that stays what it is. A watch is a cursor into a log that all watchers share, so a slow watcher
// costs nothing and is told ErrCompacted when the log no longer reaches back to where it stands.
//
// All methods of a Store, a Snapshot and a Watch may be called concurrently, except Watch.Next and
// Watch.TryNext, which belong to one goroutine. Byte slices that go in and come out are shared and never
// modified by either side.
package store

import (
	"context"
	"errors"
	"fmt"
)

// Revision counts commits over the whole store. The first commit has revision 1 or more; a later
// commit has a larger one, across restarts and restores too. Zero means "no revision".
type Revision int64

// Key names one object. Resource is the kind of thing ("pods", "deployments.apps"); watches and
// lists stay inside one resource and cost nothing for others. Path is "namespace/name", or "name"
// for what has no namespace. Keys of a resource are ordered by Path, bytewise.
type Key struct {
	Resource string
	Path     string
}

func (k Key) String() string { return k.Resource + "/" + k.Path }

// Entry is an object as of the revision that last wrote it. Entries are shared and read-only,
// except for Memo.
type Entry struct {
	Key      Key
	Value    []byte   // as committed, with the revision stamped in (Op.RevisionAt)
	Revision Revision // of the last write
	Created  Revision // of the write that made the key
	// Memo is a slot for one form derived from Value, so that it is derived at most once per
	// revision and process. Whoever derives it sets it; setting it twice to equal things is fine.
	Memo Memo
}

// EventType says what a commit did to a key.
type EventType uint8

const (
	Put EventType = iota + 1
	Delete
)

// Event is one change of one key. For a Delete, Entry holds the last state as the deleting commit
// stamped it (its Value may be nil if the commit gave none), with the deletion's revision.
// Prev is the entry before the change, nil if the key was made by it.
type Event struct {
	Type  EventType
	Entry *Entry
	Prev  *Entry
	// Origin is that of the Op.
	Origin string
	// Memo is a slot for the framed form of the event, shared by all its watchers.
	Memo Memo
}

// Any as an Op's Expect means that the commit does not care what was there.
const Any Revision = -1

// Op is one change, or one condition, of a commit.
type Op struct {
	Key Key
	// Type is Put or Delete; zero only checks Expect.
	Type EventType
	// Expect is the revision the key must have for the commit to go through: zero for a key that
	// must not exist, Any for whatever is there.
	Expect Revision
	// Value is what to store; for a Delete the last state that watchers are shown.
	Value []byte
	// RevisionAt is an offset into Value: the store inserts the commit's revision there, in decimal
	// digits. Negative leaves Value as it is.
	RevisionAt int
	// Memo, if not nil, becomes the new entry's Memo.
	Memo any
	// Origin says who writes and why; it is kept with the history, and not interpreted.
	Origin string
	// Frees says that the op makes room, if not now then by what follows it, as the mark that an
	// object is to be deleted does. Such ops, and Deletes, go through when others get ErrNoSpace, in
	// an engine that can keep room for them.
	Frees bool
}

// ListOptions choose a part of a resource.
type ListOptions struct {
	Prefix string // only paths with this prefix, such as "default/"; "" for all
	After  string // only paths greater than this; "" from the start
	Limit  int    // at most so many entries; 0 for all
}

// Snapshot is the state as of one revision.
type Snapshot interface {
	Revision() Revision
	// Get returns the entry, or nil if the key does not exist.
	Get(Key) *Entry
	// List returns entries in order of Path, and whether more follow after a Limit.
	List(resource string, opts ListOptions) (entries []*Entry, more bool)
	// Count returns how many entries of the resource have the prefix and come after the path.
	Count(resource string, opts ListOptions) int
}

// Watch is a cursor into the log of one resource.
type Watch interface {
	// Next returns the events after the last returned ones, in order of revision, all those of a
	// revision together; it blocks until there is one. The slice is valid until the next call.
	// Possible errors: ErrCompacted, ErrClosed, and the context's.
	Next(ctx context.Context) ([]*Event, error)
	// TryNext is Next that does not block: no events and no error if there are none yet.
	TryNext() ([]*Event, error)
	// Ready returns a channel that is closed when TryNext has, or may have, something to return.
	Ready() <-chan struct{}
	// Revision says how far the cursor has come: every event of the resource up to and including
	// this revision has been returned. It rises with the whole store's revision while the resource
	// is quiet, which is what a bookmark says.
	Revision() Revision
}

// Store is the contract. Engines are in sub-packages; storetest runs the contract against one.
type Store interface {
	// Commit makes all changes or none, and returns when they are durable. A Put that leaves the
	// value as it is (the stamped revision aside) and a Delete of a key that does not exist change
	// nothing; a commit that changes nothing returns the current revision and makes no event.
	// No two ops may have the same key.
	// Possible errors: *ConflictError, ErrNoSpace, ErrTooLarge, ErrNoAnswer, ErrClosed, and the context's.
	// After ErrNoAnswer and a context's error the commit may have happened, or still happen.
	Commit(ctx context.Context, ops ...Op) (Result, error)
	// Snapshot returns the newest durable state: at least as new as every commit that returned
	// before the call. Possible errors: ErrNoAnswer, ErrClosed, and the context's.
	Snapshot(ctx context.Context) (Snapshot, error)
	// SnapshotAt returns the state as of a revision. Possible errors: ErrCompacted, ErrFuture, and
	// those of Snapshot.
	SnapshotAt(ctx context.Context, at Revision) (Snapshot, error)
	// Watch returns a cursor that stands after a revision. It needs no closing: one that nobody
	// reads any more is garbage. Possible errors: ErrCompacted, ErrFuture, ErrNoAnswer, ErrClosed.
	Watch(resource, prefix string, after Revision) (Watch, error)
	// Revision is that of the newest durable commit.
	Revision() Revision
	// Compacted is the oldest revision that can still be read; watches can start at or after it.
	Compacted() Revision
	// Compact forgets history before the revision. Engines do it by themselves, too, by age and
	// size. Possible errors: ErrFuture, ErrNoAnswer, ErrClosed.
	Compact(ctx context.Context, before Revision) error
	// Close ends all watches with ErrClosed and releases the engine. Commits under way are finished
	// or fail.
	Close() error
}

// Result is what a commit did.
type Result struct {
	Revision Revision
	// Entries has an entry for each op, as it is after the commit: the new one of a Put, the last
	// state of a Delete, what is there for a check; nil where nothing is.
	Entries []*Entry
	// Changed is false if the commit found everything as it should be and made no revision.
	Changed bool
}

var (
	// ErrCompacted says that the history asked for is no longer kept.
	ErrCompacted = errors.New("store: revision has been compacted")
	// ErrFuture says that the revision asked for has not happened yet.
	ErrFuture = errors.New("store: revision is in the future")
	// ErrClosed says that the store has been closed.
	ErrClosed = errors.New("store: closed")
	// ErrTooLarge says that a commit is larger than the engine takes. Nothing was changed.
	ErrTooLarge = errors.New("store: the commit is too large")
	// ErrNoSpace says that the disk is full; reads and what makes room go on, and other writes do when
	// there is room again.
	ErrNoSpace = errors.New("store: no space left for writes")
	// ErrNoAnswer says that what the engine keeps its state in, on other machines, did not answer in time.
	ErrNoAnswer = errors.New("store: no answer")
)

// ConflictError says that a key was not at the revision a commit expected. Nothing was changed.
type ConflictError struct {
	Key      Key
	Expected Revision // zero: the key should not have existed
	Found    *Entry   // nil: the key does not exist
}

func (e *ConflictError) Error() string {
	found := Revision(0)
	if e.Found != nil {
		found = e.Found.Revision
	}
	return fmt.Sprintf("store: %s is at revision %d, not %d", e.Key, found, e.Expected)
}
