// Package storetest is the contract of a store.Store as tests, which every engine runs:
//
//	func TestStore(t *testing.T) {
//		storetest.Run(t, func(t *testing.T) store.Store { return memory.New(memory.Options{}) })
//	}
package storetest

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/setpoint-dev/setpoint/store"
)

// Run runs all tests of the contract. Open returns a new and empty store that is closed at the end
// of the test it gets, and that keeps its history at least as long.
func Run(t *testing.T, open func(t *testing.T) store.Store) {
	for _, test := range []struct {
		name string
		run  func(*env)
	}{
		{"CommitStampsTheRevision", testStamp},
		{"CommitChangesAllOrNothing", testAtomic},
		{"CommitChecksWhatItExpects", testExpect},
		{"CommitThatChangesNothingMakesNoRevision", testNoOp},
		{"CommitNamesAKeyOnce", testTwice},
		{"CommitObeysItsContext", testCommitContext},
		{"DeleteShowsTheLastStateAtItsRevision_B003", testDelete},
		{"MemoAndOriginArriveWithTheEntry", testMemo},
		{"ListIsOrderedAndBounded", testList},
		{"SnapshotStaysWhatItIs", testSnapshot},
		{"SnapshotAtReadsThePast", testSnapshotAt},
		{"SnapshotAtEndsAtTheWindow", testSnapshotWindow},
		{"PagesOfAListAgree_B016", testPages},
		{"WatchReturnsRevisionsWhole", testWatchAtomic},
		{"WatchFiltersByPrefix", testWatchPrefix},
		{"WatchResumesOrIsTold_B001", testResume},
		{"WatchGetsTheDeleteOrIsTold_B011", testCompactAtDelete},
		{"WatchRevisionRisesWhileQuiet", testQuiet},
		{"WatchReadyNeverMissesACommit", testReady},
		{"WatchWaitingNeverMissesACommit", testReadyRace},
		{"WatchWaitsForTheContext", testWatchContext},
		{"WatchStalledIsToldNotBuffered", testStalled},
		{"WatchFoldedOverAListIsTheState_B005", testFold},
		{"WatchBookmarksAreNeverAhead_B010", testBookmarks},
		{"WatchOpenedDuringCompactionHasNoGap_B006", testOpenRace},
		{"CloseEndsWatchesAndCommits", testClose},
		{"ModelAgrees", testModel},
		{"CheckerFindsNothing", testChecker},
	} {
		t.Run(test.name, func(t *testing.T) { test.run(&env{T: t, Store: open(t)}) })
	}
}

// env is a test with its store, and with words that fail the test instead of returning errors.
type env struct {
	*testing.T
	store.Store
}

func pod(path string) store.Key { return store.Key{Resource: "pods", Path: path} }

// value is a value in which the revision is stamped, and the offset where it is.
func value(s string) ([]byte, int) {
	head := `{"resourceVersion":"`
	return []byte(head + `","value":"` + s + `"}`), len(head)
}

func put(key store.Key, s string) store.Op {
	v, at := value(s)
	return store.Op{Key: key, Type: store.Put, Expect: store.Any, Value: v, RevisionAt: at}
}

func del(key store.Key) store.Op {
	v, at := value("deleted")
	return store.Op{Key: key, Type: store.Delete, Expect: store.Any, Value: v, RevisionAt: at}
}

func (e *env) commit(ops ...store.Op) store.Result {
	e.Helper()
	result, err := e.Commit(e.Context(), ops...)
	if err != nil {
		e.Fatalf("Commit: %v", err)
	}
	return result
}

func (e *env) snapshot() store.Snapshot {
	e.Helper()
	s, err := e.Snapshot(e.Context())
	if err != nil {
		e.Fatalf("Snapshot: %v", err)
	}
	return s
}

func (e *env) snapshotAt(at store.Revision) store.Snapshot {
	e.Helper()
	s, err := e.SnapshotAt(e.Context(), at)
	if err != nil {
		e.Fatalf("SnapshotAt(%d): %v", at, err)
	}
	return s
}

func (e *env) compact(before store.Revision) {
	e.Helper()
	if err := e.Compact(e.Context(), before); err != nil {
		e.Fatalf("Compact(%d): %v", before, err)
	}
}

func (e *env) watch(resource, prefix string, after store.Revision) store.Watch {
	e.Helper()
	w, err := e.Watch(resource, prefix, after)
	if err != nil {
		e.Fatalf("Watch(%s, %q, %d): %v", resource, prefix, after, err)
	}
	return w
}

// events returns what the watch has now, in words.
func (e *env) events(w store.Watch) []string {
	e.Helper()
	var all []string
	for {
		events, err := w.TryNext()
		if err != nil {
			e.Fatalf("TryNext: %v", err)
		}
		if len(events) == 0 {
			return all
		}
		for _, ev := range events {
			all = append(all, describe(ev))
		}
	}
}

func describe(ev *store.Event) string {
	verb := map[store.EventType]string{store.Put: "put", store.Delete: "delete"}[ev.Type]
	return fmt.Sprintf("%d %s %s", ev.Entry.Revision, verb, ev.Entry.Key)
}

func (e *env) same(what string, got, want any) {
	e.Helper()
	// Entries are shared, so the same entry is the same pointer.
	identity := cmp.Comparer(func(a, b *store.Entry) bool { return a == b })
	if diff := cmp.Diff(want, got, identity); diff != "" {
		e.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

func (e *env) fails(what string, err, want error) {
	e.Helper()
	if !errors.Is(err, want) {
		e.Errorf("%s: %v, want %v", what, err, want)
	}
}

func paths(entries []*store.Entry) []string {
	var all []string
	for _, entry := range entries {
		all = append(all, entry.Key.Path)
	}
	return all
}

// plain takes the stamp and the frame off a value.
func plain(v []byte) string {
	_, rest, _ := strings.Cut(string(v), `"value":"`)
	return strings.TrimSuffix(rest, `"}`)
}
