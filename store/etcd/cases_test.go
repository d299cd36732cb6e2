package etcd_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"

	"github.com/setpoint-dev/setpoint/store"
	"github.com/setpoint-dev/setpoint/store/etcd"
	"github.com/setpoint-dev/setpoint/store/etcd/etcdtest"
	"github.com/setpoint-dev/setpoint/store/storetest"
)

// TestB006_WatchesOpenedWhileTheFeedBreaks breaks the connections of a store to etcd again and again, while
// another writes, and watches are opened at what the first has. Each shows every change, once.
func TestB006_WatchesOpenedWhileTheFeedBreaks(t *testing.T) {
	const openers = 8
	seed, each := storetest.Seed(t), max(1, storetest.Rounds(t, 80)/openers)
	address, prefix := etcdtest.Start(t), space()
	p := newProxy(t, address)
	s := open(t, etcd.Options{Endpoints: []string{p.address()}, Prefix: prefix, Timeout: patience})
	writer := open(t, etcd.Options{Endpoints: []string{address}, Prefix: prefix, Timeout: patience})
	commit(t, writer, put("a/n", ""))
	value(t, s, "a/n") // so it is in memory
	ctx, done := context.WithCancel(t.Context())
	defer done()
	var beside, watches sync.WaitGroup
	beside.Go(func() {
		for n := 1; ctx.Err() == nil; n++ {
			if _, err := writer.Commit(ctx, put("a/n", strings.Repeat("+", n%1000))); err != nil && ctx.Err() == nil {
				t.Error(err)
				return
			}
		}
	})
	beside.Go(func() {
		for ctx.Err() == nil {
			p.cut()
			if _, err := s.Snapshot(ctx); err != nil && ctx.Err() == nil {
				t.Errorf("a read after the connections broke: %v", err)
				return
			}
		}
	})
	for opener := range openers {
		rnd := rand.New(rand.NewPCG(seed, uint64(opener)))
		watches.Go(func() {
			for range each {
				if err := followFor(ctx, s, 1+rnd.IntN(200)); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	watches.Wait()
	done()
	beside.Wait()
}

// followFor opens a watch at what is in memory and follows one object, that goes from one length of its
// value to the next, for so many changes.
func followFor(ctx context.Context, s *etcd.Store, changes int) error {
	snap, err := s.Reader.Snapshot(ctx)
	if err != nil {
		return err
	}
	w, err := s.Watch("pods", "", snap.Revision())
	if err != nil {
		return fmt.Errorf("a watch after %d: %w", snap.Revision(), err)
	}
	last := snap.Get(pod("a/n"))
	for seen := 0; seen < changes; {
		events, err := w.Next(ctx)
		if err != nil {
			return err
		}
		for _, ev := range events {
			was, is := strings.Count(string(last.Value), "+"), strings.Count(string(ev.Entry.Value), "+")
			if is != (was+1)%1000 || ev.Entry.Revision <= last.Revision {
				return fmt.Errorf("%d at %d is shown after %d at %d", is, ev.Entry.Revision, was, last.Revision)
			}
			last = ev.Entry
			seen++
		}
	}
	return nil
}

// TestB015_PausedStoreReadsNothingOld has a store hear nothing, as one whose process is stopped. A read that
// begins after another store's commit was acknowledged waits, and has it when it can hear again.
func TestB015_PausedStoreReadsNothingOld(t *testing.T) {
	address, prefix := etcdtest.Start(t), space()
	p := newProxy(t, address)
	paused := open(t, etcd.Options{Endpoints: []string{p.address()}, Prefix: prefix, Timeout: patience})
	other := open(t, etcd.Options{Endpoints: []string{address}, Prefix: prefix})
	commit(t, paused, put("a/x", "old"))
	for i := range 10 {
		p.hold()
		want := fmt.Sprintf("%d@%d", i, commit(t, other, put("a/x", fmt.Sprint(i))).Revision)
		got := make(chan string)
		go func() {
			text := ""
			if snap, err := paused.Snapshot(t.Context()); err == nil {
				text = string(snap.Get(pod("a/x")).Value)
			}
			got <- text
		}()
		p.pass()
		if text := <-got; text != want {
			t.Fatalf("read %q after %q was acknowledged", text, want)
		}
	}
}

// TestLargeCommitOnWhatIsNotSoAnyMore has a commit of more keys than are guarded one by one, with a
// condition that another store has made wrong without this one having heard of it.
func TestLargeCommitOnWhatIsNotSoAnyMore(t *testing.T) {
	address, prefix := etcdtest.Start(t), space()
	p := newProxy(t, address)
	s := open(t, etcd.Options{Endpoints: []string{p.address()}, Prefix: prefix, Timeout: patience})
	other := open(t, etcd.Options{Endpoints: []string{address}, Prefix: prefix})
	ops := []store.Op{put("a/x", "mine")}
	ops[0].Expect = commit(t, s, put("a/x", "1")).Revision
	for i := range 200 {
		ops = append(ops, put(fmt.Sprint("b/", i), "1"))
	}
	p.hold()
	theirs := commit(t, other, put("a/x", "theirs")).Revision
	before := served(t, address, "Txn")
	failed := make(chan error, 1)
	go func() {
		_, err := s.Commit(t.Context(), ops...)
		failed <- err
	}()
	// Usually it is sent by then. If not, because a busy machine has had the connection die, it fails for
	// what is heard first.
	for tries := 0; tries < 100 && served(t, address, "Txn") == before; tries++ {
	}
	p.pass()
	var conflict *store.ConflictError
	if err := <-failed; !errors.As(err, &conflict) || conflict.Found == nil || conflict.Found.Revision != theirs {
		t.Errorf("Commit: %v, want a conflict with %d", err, theirs)
	}
	if got, want := value(t, other, "a/x"), fmt.Sprintf("theirs@%d", theirs); got != want {
		t.Errorf("a/x is %q, want %q", got, want)
	}
}
