package etcd_test

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/setpoint-dev/setpoint/store"
	"github.com/setpoint-dev/setpoint/store/etcd"
	"github.com/setpoint-dev/setpoint/store/etcd/etcdtest"
)

// Commits that wait together share transactions, also those that are fenced by one lease, and each has
// a revision of its own, which is known to a store that knows nothing of the transaction, too.
func TestCommitsShareTransactions(t *testing.T) {
	address := etcdtest.Start(t)
	p, prefix := newProxy(t, address), space()
	s := open(t, etcd.Options{Endpoints: []string{p.address()}, Prefix: prefix, Timeout: patience})
	lease := commit(t, s, put("a/lease", "1")).Revision
	const writers = 200
	before := served(t, address, "Txn")
	p.hold()
	results := make([]store.Result, writers)
	var group, asking sync.WaitGroup
	asking.Add(writers)
	for i := range writers {
		group.Go(func() {
			asking.Done()
			fence := store.Op{Key: pod("a/lease"), Expect: lease}
			var err error
			if results[i], err = s.Commit(t.Context(), put(fmt.Sprint("a/", i), "1"), fence); err != nil {
				t.Error(err)
			}
		})
	}
	asking.Wait()
	p.pass()
	group.Wait()
	revisions, newest := map[store.Revision]bool{}, store.Revision(0)
	for i, r := range results {
		if got, want := value(t, s, fmt.Sprint("a/", i)), fmt.Sprintf("1@%d", r.Revision); got != want {
			t.Errorf("a/%d is %q, want %q", i, got, want)
		}
		revisions[r.Revision], newest = true, max(newest, r.Revision)
	}
	if len(revisions) != writers {
		t.Errorf("%d commits have %d revisions", writers, len(revisions))
	}
	// Four, and a few for those that the scheduler kept from asking until then.
	if got := served(t, address, "Txn") - before; got > writers/4 {
		t.Errorf("%d commits took %d transactions", writers, got)
	} else {
		t.Logf("%d commits took %d transactions", writers, got)
	}
	_ = compactAll(t, address, prefix)
	later, err := open(t, etcd.Options{Endpoints: []string{address}, Prefix: prefix}).Snapshot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if later.Revision() != newest {
		t.Errorf("a store that starts later is at %d, want %d", later.Revision(), newest)
	}
	for i, r := range results {
		made, found := r.Entries[0], later.Get(pod(fmt.Sprint("a/", i)))
		if found == nil || found.Revision != made.Revision || found.Created != made.Created ||
			string(found.Value) != string(made.Value) {
			t.Errorf("a store that starts later has %+v, want %+v", found, made)
		}
	}
}

// Commits of one key, each by what the one before has made, cost a transaction each, and none that fails.
func TestCommitsOfAKeyDoNotMeetInEtcd(t *testing.T) {
	address := etcdtest.Start(t)
	s := open(t, etcd.Options{Endpoints: []string{address}, Prefix: space(), Timeout: patience})
	before := served(t, address, "Txn")
	const writers = 100
	var group sync.WaitGroup
	for i := range writers {
		group.Go(func() {
			if _, err := s.Commit(t.Context(), put("a/x", fmt.Sprint(i))); err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
	if got := served(t, address, "Txn") - before; got != writers {
		t.Errorf("%d commits of a key took %d transactions", writers, got)
	}
}

// A commit of one who has lost a lease fails, also if it waits together with the one that took it.
func TestCommitBehindTheLossOfItsLease(t *testing.T) {
	g := newGate(t, etcdtest.Start(t))
	s := open(t, etcd.Options{Endpoints: []string{g.address}, Prefix: space(), Timeout: patience})
	for round := range 20 {
		held := commit(t, s, put("a/lease", fmt.Sprint("me ", round))).Revision
		take := put("a/lease", fmt.Sprint("you ", round))
		take.Expect = held
		write := put("a/x", fmt.Sprint(round))
		var taken, written store.Result
		var err error
		g.hold("Txn")
		var group sync.WaitGroup
		for i := range etcd.FlyingMax { // so that there is something to wait for
			before := g.came("Txn")
			group.Go(func() { commit(t, s, put(fmt.Sprint("b/", i), fmt.Sprint(round))) })
			g.untilCame("Txn", before+1)
		}
		asked := s.Asked()
		group.Go(func() { taken = commit(t, s, take) })
		group.Go(func() {
			written, err = s.Commit(t.Context(), write, store.Op{Key: pod("a/lease"), Expect: held})
		})
		for looks := time.NewTicker(time.Millisecond); s.Asked() < asked+2; <-looks.C {
		}
		g.pass("Txn")
		group.Wait()
		var conflict *store.ConflictError
		switch {
		case err == nil && written.Revision > taken.Revision:
			t.Fatalf("written at %d, and the lease was lost at %d", written.Revision, taken.Revision)
		case err != nil && !errors.As(err, &conflict):
			t.Fatal(err)
		}
	}
}

// A store that was asked to be quiet sends nothing until the time is over, if whoever asked is never
// through.
func TestStoreIsQuietWhenAsked(t *testing.T) {
	address, prefix := etcdtest.Start(t), space()
	s := open(t, etcd.Options{Endpoints: []string{address}, Prefix: prefix, Timeout: patience})
	before := commit(t, s, put("a/x", "1")).Revision
	asked := time.Now()
	if _, err := raw(t, address).Put(t.Context(), prefix+"/quiet", "somebody"); err != nil {
		t.Fatal(err)
	}
	if err := s.Compact(t.Context(), before); err != nil { // it has heard of that, and so of what was before
		t.Fatal(err)
	}
	commit(t, s, put("a/x", "2"))
	if took := time.Since(asked); took < etcd.QuietFor {
		t.Errorf("it was quiet for %v, want %v", took, etcd.QuietFor)
	}
}

// Commits of many keys come through while four stores write all the time.
func TestLargeCommitIsNotStarved(t *testing.T) {
	address, prefix := etcdtest.Start(t), space()
	options := etcd.Options{Endpoints: []string{address}, Prefix: prefix, Timeout: patience}
	const stores, writers = 4, 16
	var all []*etcd.Store
	for range stores {
		all = append(all, open(t, options))
	}
	var done atomic.Bool
	var written atomic.Int64
	var group, started sync.WaitGroup
	started.Add(writers)
	for w := range writers {
		group.Go(func() {
			for n := 0; !done.Load(); n++ {
				if _, err := all[w%stores].Commit(t.Context(), put(fmt.Sprint("a/", w), fmt.Sprint(n))); err != nil {
					t.Error(err)
					return
				}
				if written.Add(1); n == 0 {
					started.Done()
				}
			}
		})
	}
	started.Wait()
	most := int64(0)
	for n := range 5 {
		var many []store.Op
		for i := range 1000 {
			many = append(many, put(fmt.Sprint("b/", i), fmt.Sprint(n)))
		}
		before := written.Load()
		commit(t, all[0], many...)
		most = max(most, written.Load()-before)
	}
	done.Store(true)
	group.Wait()
	// What is under way when it comes, and while it is overtaken and asks for quiet: 5 of each writer,
	// and more on a busy machine.
	if most > 100*writers {
		t.Errorf("%d others came before one", most)
	}
	t.Logf("%d others came before one at most", most)
}
