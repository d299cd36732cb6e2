package etcd_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/setpoint-dev/setpoint/store"
	"github.com/setpoint-dev/setpoint/store/etcd"
	"github.com/setpoint-dev/setpoint/store/etcd/etcdtest"
)

func pod(path string) store.Key { return store.Key{Resource: "pods", Path: path} }

func put(path, value string) store.Op {
	return store.Op{
		Key: pod(path), Type: store.Put, Expect: store.Any, Value: []byte(value + "@"), RevisionAt: len(value) + 1,
	}
}

func commit(t testing.TB, s store.Store, ops ...store.Op) store.Result {
	t.Helper()
	result, err := s.Commit(t.Context(), ops...)
	if err != nil {
		t.Fatal(err)
	}
	return result
}

func value(t testing.TB, s store.Store, path string) string {
	t.Helper()
	snap, err := s.Snapshot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if e := snap.Get(pod(path)); e != nil {
		return string(e.Value)
	}
	return ""
}

func TestB015_ReadsSeeWhatAnotherAcknowledged(t *testing.T) {
	address, prefix := etcdtest.Start(t), space()
	a := open(t, etcd.Options{Endpoints: []string{address}, Prefix: prefix})
	b := open(t, etcd.Options{Endpoints: []string{address}, Prefix: prefix})
	for i := range 300 {
		writer, reader := store.Store(a), store.Store(b)
		if i%2 == 1 {
			writer, reader = b, a
		}
		r := commit(t, writer, put("a/x", fmt.Sprint(i)))
		want := fmt.Sprintf("%d@%d", i, r.Revision)
		if got := value(t, reader, "a/x"); got != want {
			t.Fatalf("read %q after %q was acknowledged", got, want)
		}
	}
}

// A client that comes from one server to another brings a revision that the other may not know yet.
func TestRevisionsOfOthersAreNotTheFuture(t *testing.T) {
	address, prefix := etcdtest.Start(t), space()
	a := open(t, etcd.Options{Endpoints: []string{address}, Prefix: prefix})
	b := open(t, etcd.Options{Endpoints: []string{address}, Prefix: prefix})
	for i := range 100 {
		at := commit(t, a, put("a/x", fmt.Sprint(i))).Revision
		if _, err := b.Watch("pods", "", at); err != nil {
			t.Fatalf("Watch after %d: %v", at, err)
		}
		at = commit(t, a, put("a/x", fmt.Sprint(i, "again"))).Revision
		if _, err := b.SnapshotAt(t.Context(), at); err != nil {
			t.Fatalf("SnapshotAt(%d): %v", at, err)
		}
		op := put("a/x", fmt.Sprint(i, "by b"))
		op.Expect = commit(t, a, put("a/x", fmt.Sprint(i, "once more"))).Revision
		commit(t, b, op)
	}
}

// Writers on two stores add to one counter; each addition goes by what it expects.
func TestNoUpdateIsLostBetweenStores(t *testing.T) {
	address, prefix := etcdtest.Start(t), space()
	a := open(t, etcd.Options{Endpoints: []string{address}, Prefix: prefix})
	b := open(t, etcd.Options{Endpoints: []string{address}, Prefix: prefix})
	commit(t, a, put("a/n", ""))
	const writers, additions = 4, 40
	var group sync.WaitGroup
	for w := range writers {
		s := []store.Store{a, b}[w%2]
		group.Go(func() {
			for done := 0; done < additions; {
				snap, err := s.Snapshot(t.Context())
				if err != nil {
					t.Error(err)
					return
				}
				e := snap.Get(pod("a/n"))
				before, _, _ := strings.Cut(string(e.Value), "@")
				op := put("a/n", before+"+")
				op.Expect = e.Revision
				_, err = s.Commit(t.Context(), op)
				var conflict *store.ConflictError
				switch {
				case err == nil:
					done++
				case !errors.As(err, &conflict):
					t.Error(err)
					return
				case conflict.Found.Revision <= e.Revision:
					t.Errorf("a conflict with %d, which was expected to be %d", conflict.Found.Revision, e.Revision)
				}
			}
		})
	}
	group.Wait()
	if got := strings.Count(value(t, b, "a/n"), "+"); got != writers*additions {
		t.Errorf("%d additions are left of %d", got, writers*additions)
	}
}

func TestCommitWhoseAnswerIsLost(t *testing.T) {
	address, prefix := etcdtest.Start(t), space()
	p := newProxy(t, address)
	a := open(t, etcd.Options{Endpoints: []string{p.address()}, Prefix: prefix, Timeout: patience})
	b := open(t, etcd.Options{Endpoints: []string{address}, Prefix: prefix, Timeout: patience})
	made := commit(t, a, put("a/x", "1"))
	w, err := b.Watch("pods", "", made.Revision)
	if err != nil {
		t.Fatal(err)
	}
	p.hold()
	results := make(chan store.Result, 1)
	go func() {
		op := put("a/x", "2")
		op.Expect = made.Revision
		r, err := a.Commit(t.Context(), op, store.Op{Key: pod("a/none")})
		if err != nil {
			t.Error(err)
		}
		results <- r
	}()
	events, err := w.Next(t.Context()) // it has happened, and the one who did it does not know
	if err != nil {
		t.Fatal(err)
	}
	p.cut()
	p.pass()
	r := <-results
	if !r.Changed || r.Revision != events[0].Entry.Revision {
		t.Errorf("changed %v at %d, and it was at %d", r.Changed, r.Revision, events[0].Entry.Revision)
	}
	if again := commit(t, b, put("a/x", "2")); again.Changed {
		t.Errorf("it was done twice, up to %d", again.Revision)
	}
}

// A request arrives at etcd long after everybody has given it up. What it was to do has been done by
// another one, and undone: it is not done again.
func TestTransactionThatArrivesLate(t *testing.T) {
	address, prefix := etcdtest.Start(t), space()
	p := newProxy(t, address)
	a := open(t, etcd.Options{Endpoints: []string{p.address()}, Prefix: prefix})
	b := open(t, etcd.Options{Endpoints: []string{address}, Prefix: prefix})
	lease := store.Op{Key: pod("a/lease")}
	lease.Expect = commit(t, a, put("a/lease", "1")).Revision
	arrive := p.strand()
	made := commit(t, a, put("a/x", "1"), lease)
	gone := commit(t, b, store.Op{Key: pod("a/x"), Type: store.Delete, Expect: made.Revision, RevisionAt: -1})
	before := served(t, address, "Txn")
	arrive()
	untilServed(t, address, "Txn", before+1)
	if got := value(t, b, "a/x"); got != "" || b.Revision() != gone.Revision {
		t.Errorf("a/x is %q at %d again, and was deleted at %d", got, b.Revision(), gone.Revision)
	}
}

// Reads that wait together cost one request: while etcd has not answered the first, all that come are
// answered by the next.
func TestReadsShareARequest(t *testing.T) {
	address := etcdtest.Start(t)
	p := newProxy(t, address)
	s := open(t, etcd.Options{Endpoints: []string{p.address()}, Prefix: space(), Timeout: patience})
	const readers = 200
	before := served(t, address, "Range")
	p.hold()
	var group, asking sync.WaitGroup
	asking.Add(readers)
	for range readers {
		group.Go(func() {
			asking.Done()
			if _, err := s.Snapshot(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
	asking.Wait()
	p.pass()
	group.Wait()
	// Two, and a few for those that the scheduler kept from asking until then.
	if got := served(t, address, "Range") - before; got > readers/4 {
		t.Errorf("%d reads took %d requests", readers, got)
	} else {
		t.Logf("%d reads took %d requests", readers, got)
	}
}

// served says how many requests of a kind a member has answered.
func served(t *testing.T, address, method string) (count int) {
	t.Helper()
	answer, err := http.Get("http://" + address + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	lines := regexp.MustCompile(`(?m)^grpc_server_handled_total.*"` + method + `".* (\d+)$`)
	for _, found := range lines.FindAllStringSubmatch(string(text), -1) {
		n, err := strconv.Atoi(found[1])
		if err != nil {
			t.Fatal(err)
		}
		count += n
	}
	return count
}

// untilServed returns when a member has answered so many requests of a kind.
func untilServed(t *testing.T, address, method string, count int) {
	t.Helper()
	again := time.NewTicker(10 * time.Millisecond)
	defer again.Stop()
	for served(t, address, method) < count {
		select {
		case <-again.C:
		case <-t.Context().Done():
			t.Fatal("they never arrived")
		}
	}
}

func TestStoreThatWasAwayTooLong(t *testing.T) {
	address, prefix := etcdtest.Start(t), space()
	p := newProxy(t, address)
	a := open(t, etcd.Options{Endpoints: []string{p.address()}, Prefix: prefix})
	b := open(t, etcd.Options{Endpoints: []string{address}, Prefix: prefix})
	at := commit(t, a, put("a/x", "1"), put("a/gone", "1")).Revision
	w, err := a.Watch("pods", "", at)
	if err != nil {
		t.Fatal(err)
	}
	nodes, err := a.Watch("nodes", "", at)
	if err != nil {
		t.Fatal(err)
	}
	before, err := a.Snapshot(t.Context())
	if err != nil {
		t.Fatal(err)
	}

	p.hold()
	p.cut()
	commit(t, b, store.Op{Key: pod("a/gone"), Type: store.Delete, Expect: store.Any, RevisionAt: -1})
	for i := range 10 {
		commit(t, b, put("a/x", fmt.Sprint(i)))
	}
	base := compactAll(t, address, prefix)
	last := commit(t, b, put("a/y", "1")).Revision
	p.cut()
	p.pass()

	want := fmt.Sprintf("1@%d", last)
	if got := value(t, a, "a/y"); got != want {
		t.Errorf("a/y is %q, want %q", got, want)
	}
	if got := value(t, a, "a/gone"); got != "" {
		t.Errorf("a/gone is %q", got)
	}
	for name, w := range map[string]store.Watch{"pods": w, "nodes": nodes} {
		if _, err := w.TryNext(); !errors.Is(err, store.ErrCompacted) {
			t.Errorf("watch of %s: %v, want %v", name, err, store.ErrCompacted)
		}
	}
	if got := a.Compacted(); got != last-etcd.StepsMax {
		t.Errorf("compacted to %d, want %d (base %d)", got, last-etcd.StepsMax, base)
	}
	if before.Get(pod("a/gone")) == nil {
		t.Error("a snapshot from before has lost a key")
	}
	if _, err := a.Watch("pods", "", last-etcd.StepsMax); err != nil {
		t.Errorf("Watch of what etcd still has: %v", err)
	}
}

// compactAll lets etcd forget all history of a store.
func compactAll(t *testing.T, address, prefix string) int64 {
	t.Helper()
	c := raw(t, address)
	head, err := c.Get(t.Context(), prefix+"/head")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Compact(t.Context(), head.Kvs[0].ModRevision); err != nil {
		t.Fatal(err)
	}
	return head.Kvs[0].CreateRevision
}

func raw(t testing.TB, address string) *clientv3.Client {
	t.Helper()
	c, err := clientv3.New(clientv3.Config{Endpoints: []string{address}, Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func TestHistoryOutlivesTheProcess(t *testing.T) {
	address, prefix := etcdtest.Start(t), space()
	a := open(t, etcd.Options{Endpoints: []string{address}, Prefix: prefix})
	first := commit(t, a, put("a/x", "1")).Revision
	gone := put("a/x", "last")
	gone.Type, gone.Origin = store.Delete, "somebody"
	commit(t, a, gone)
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	b := open(t, etcd.Options{Endpoints: []string{address}, Prefix: prefix})
	w, err := b.Watch("pods", "", first)
	if err != nil {
		t.Fatal(err)
	}
	events, err := w.Next(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	e := events[0]
	got := fmt.Sprint(e.Type, " ", string(e.Entry.Value), " ", e.Origin, " after ", string(e.Prev.Value))
	want := fmt.Sprintf("%d last@%d somebody after 1@%d", store.Delete, first+etcd.StepsMax, first)
	if got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// A compaction leaves the state at the revision it names, and what came after it: also to a store that finds
// only what etcd was told to keep.
func TestCompactionLeavesWhatItNames(t *testing.T) {
	address, prefix := etcdtest.Start(t), space()
	a := open(t, etcd.Options{Endpoints: []string{address}, Prefix: prefix})
	var at []store.Revision
	for i := range 5 {
		at = append(at, commit(t, a, put("a/x", fmt.Sprint(i))).Revision)
	}
	if err := a.Compact(t.Context(), at[2]); err != nil {
		t.Fatal(err)
	}
	a.ForgetInEtcd()
	for name, s := range map[string]*etcd.Store{
		"the store":             a,
		"one that starts later": open(t, etcd.Options{Endpoints: []string{address}, Prefix: prefix}),
	} {
		if got := s.Compacted(); got != at[2] {
			t.Errorf("%s is compacted to %d, want %d", name, got, at[2])
		}
		if _, err := s.SnapshotAt(t.Context(), at[1]); !errors.Is(err, store.ErrCompacted) {
			t.Errorf("%s at the revision before: %v, want %v", name, err, store.ErrCompacted)
		}
		snap, err := s.SnapshotAt(t.Context(), at[2])
		if err != nil {
			t.Errorf("%s at the revision: %v", name, err)
			continue
		}
		if got, want := string(snap.Get(pod("a/x")).Value), fmt.Sprintf("2@%d", at[2]); got != want {
			t.Errorf("%s has %q at the revision, want %q", name, got, want)
		}
		w, err := s.Watch("pods", "", at[2])
		if err != nil {
			t.Errorf("%s after the revision: %v", name, err)
			continue
		}
		if events, err := w.Next(t.Context()); err != nil || len(events) != 2 {
			t.Errorf("%s shows %d events after the revision, %v; want 2", name, len(events), err)
		}
	}
}

func TestForeignKeysStopReadsInsteadOfBecomingObjects(t *testing.T) {
	address, prefix := etcdtest.Start(t), space()
	s := open(t, etcd.Options{Endpoints: []string{address}, Prefix: prefix, Timeout: 300 * time.Millisecond})
	if _, err := raw(t, address).Put(t.Context(), prefix+"/o/pods/a/x", "{}"); err != nil {
		t.Fatal(err)
	}
	_, err := s.Commit(t.Context(), put("a/x", "1"))
	if err == nil || !strings.Contains(err.Error(), "somebody else has written") {
		t.Errorf("Commit: %v, want it to say that somebody else has written", err)
	}
}

// A commit of more keys than etcd takes side by side is as any other: whole, conditional, and in one
// revision.
func TestCommitOfManyKeys(t *testing.T) {
	address, prefix := etcdtest.Start(t), space()
	a := open(t, etcd.Options{Endpoints: []string{address}, Prefix: prefix})
	b := open(t, etcd.Options{Endpoints: []string{address}, Prefix: prefix})
	var first, second []store.Op
	for i := range 1000 {
		op := put(fmt.Sprintf("a/%03d", i), "1")
		op.Origin = strings.Repeat("somebody ", 100) // 1.5 MB are not enough to say it for each
		first = append(first, op)
		if op.Value = []byte("2@"); i%2 == 0 {
			op.Type = store.Delete
		}
		second = append(second, op)
	}
	w, err := b.Watch("pods", "", 0)
	if err != nil {
		t.Fatal(err)
	}
	made := commit(t, a, first...)
	again := commit(t, b, second...)
	for name, want := range []store.Revision{made.Revision, again.Revision} {
		events, err := w.Next(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if len(events) != 1000 || events[0].Entry.Revision != events[999].Entry.Revision || events[999].Origin != first[0].Origin {
			t.Errorf("commit %d: %d events, the last at %d of %q, want 1000 at %d", name,
				len(events), events[len(events)-1].Entry.Revision, events[len(events)-1].Origin, want)
		}
	}
	if got := value(t, a, "a/001"); got != fmt.Sprintf("2@%d", again.Revision) {
		t.Errorf("a/001 is %q", got)
	}
	first[999].Expect = made.Revision // which is not so any more
	var conflict *store.ConflictError
	if _, err := a.Commit(t.Context(), first...); !errors.As(err, &conflict) || conflict.Key != first[999].Key {
		t.Errorf("a commit with one wrong condition of 1000: %v", err)
	}
	if a.Revision() != again.Revision {
		t.Errorf("revision %d, want %d", a.Revision(), again.Revision)
	}
}

func TestCommitsThatEtcdNeverTakes(t *testing.T) {
	address := etcdtest.Start(t)
	s := open(t, etcd.Options{Endpoints: []string{address}, Prefix: space()})
	var many []store.Op
	for i := range 5000 { // what etcd lets a nested transaction have
		many = append(many, put(fmt.Sprintf("a/%d", i), "1"))
	}
	for name, ops := range map[string][]store.Op{
		"more than etcd takes":       {put("a/x", strings.Repeat("x", 1600<<10))},
		"more than its client sends": {put("a/x", strings.Repeat("x", 3<<20))},
		"many keys":                  many,
	} {
		if _, err := s.Commit(t.Context(), ops...); !errors.Is(err, store.ErrTooLarge) {
			t.Errorf("%s: %v, want %v", name, err, store.ErrTooLarge)
		}
	}
	if s.Revision() != 0 {
		t.Errorf("revision %d", s.Revision())
	}
}
