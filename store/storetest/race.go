package storetest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/setpoint-dev/setpoint/store"
	"github.com/setpoint-dev/setpoint/store/storetest/checker"
)

// effort is how long a test tries to hit a race, whatever the engine and the machine.
const effort = 300 * time.Millisecond

// writers has goroutines write keys of two namespaces until stop is closed.
func (e *env) writers(n int, stop <-chan struct{}) *sync.WaitGroup {
	var group sync.WaitGroup
	for w := range n {
		group.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				default:
				}
				key := pod(fmt.Sprintf("%c/%d", 'a'+w%2, i*31%25))
				op := put(key, fmt.Sprintf("%d-%d", w, i))
				if i%4 == 0 {
					op = del(key)
				}
				if _, err := e.Commit(context.Background(), op); err != nil {
					e.Errorf("Commit: %v", err)
					return
				}
			}
		})
	}
	return &group
}

// follower is a client: it lists, watches, and keeps what it should know to be true.
type follower struct {
	w      store.Watch
	known  map[string]store.Revision
	last   store.Revision // of the newest event
	told   store.Revision // the newest bookmark
	prefix string
}

func follow(s store.Store, snapshot store.Snapshot, prefix string) (*follower, error) {
	f := &follower{known: map[string]store.Revision{}, last: snapshot.Revision(), prefix: prefix}
	entries, _ := snapshot.List("pods", store.ListOptions{Prefix: prefix})
	for _, entry := range entries {
		f.known[entry.Key.Path] = entry.Revision
	}
	var err error
	f.w, err = s.Watch("pods", prefix, snapshot.Revision())
	return f, err
}

// step takes one call's events, and checks them against what it knows.
func (f *follower) step() (int, error) {
	before := f.last
	events, err := f.w.TryNext()
	for _, ev := range events {
		path, prev := ev.Entry.Key.Path, store.Revision(0)
		if ev.Prev != nil {
			prev = ev.Prev.Revision
		}
		switch {
		case ev.Entry.Revision <= f.told:
			return 0, fmt.Errorf("an event of %d comes after the watch said %d", ev.Entry.Revision, f.told)
		case ev.Entry.Revision <= before || ev.Entry.Revision < f.last:
			return 0, fmt.Errorf("revision %d comes after %d", ev.Entry.Revision, f.last)
		case prev != f.known[path]:
			return 0, fmt.Errorf("%s was at %d before %d, and known at %d", path, prev, ev.Entry.Revision, f.known[path])
		}
		f.last = ev.Entry.Revision
		if f.known[path] = ev.Entry.Revision; ev.Type == store.Delete {
			delete(f.known, path)
		}
	}
	f.told = f.w.Revision()
	if err == nil && f.told < f.last {
		err = fmt.Errorf("the watch says %d and has returned %d", f.told, f.last)
	}
	return len(events), err
}

// agrees compares what the follower knows with a state.
func (f *follower) agrees(s store.Snapshot) error {
	entries, _ := s.List("pods", store.ListOptions{Prefix: f.prefix})
	if len(entries) != len(f.known) {
		return fmt.Errorf("%d keys are known at %d, there are %d", len(f.known), s.Revision(), len(entries))
	}
	for _, entry := range entries {
		if f.known[entry.Key.Path] != entry.Revision {
			return fmt.Errorf("%s is known at %d, it is at %d", entry.Key.Path, f.known[entry.Key.Path], entry.Revision)
		}
	}
	return nil
}

func testFold(e *env) {
	stop := make(chan struct{})
	writers := e.writers(8, stop)
	var clients sync.WaitGroup
	for n := range 16 {
		clients.Go(func() {
			snapshot, err := e.Snapshot(context.Background())
			if err != nil {
				e.Errorf("Snapshot: %v", err)
				return
			}
			f, err := follow(e, snapshot, []string{"", "a/", "b/"}[n%3])
			for got := 0; err == nil && got < 300; {
				var k int
				if k, err = f.step(); k == 0 && err == nil {
					<-f.w.Ready()
				}
				got += k
			}
			if err != nil {
				e.Errorf("client %d: %v", n, err)
				return
			}
			// The state of the revision that the watch says it has reached.
			at, err := e.SnapshotAt(context.Background(), f.w.Revision())
			if err == nil {
				err = f.agrees(at)
			}
			if err != nil {
				e.Errorf("client %d: %v", n, err)
			}
		})
	}
	clients.Wait()
	close(stop)
	writers.Wait()
}

func testBookmarks(e *env) {
	stop := make(chan struct{})
	writers := e.writers(4, stop)
	f, err := follow(e, e.snapshot(), "a/")
	for i, start := 0, time.Now(); err == nil && time.Since(start) < effort; i++ {
		if _, err = f.step(); err != nil || i%100 != 0 {
			continue
		}
		// A bookmark says that all up to it has been seen: then it is the state of that revision.
		var at store.Snapshot
		if at, err = e.SnapshotAt(context.Background(), f.w.Revision()); err == nil {
			err = f.agrees(at)
		}
	}
	close(stop)
	writers.Wait()
	if err != nil {
		e.Error(err)
	}
}

func testOpenRace(e *env) {
	stop := make(chan struct{})
	writers := e.writers(2, stop)
	var compactor sync.WaitGroup
	compactor.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				if err := e.Compact(context.Background(), e.Revision()); err != nil {
					e.Errorf("Compact: %v", err)
					return
				}
			}
		}
	})
	opened := 0
	for start := time.Now(); time.Since(start) < effort; {
		f, err := follow(e, e.snapshot(), "")
		for k := 0; err == nil && k < 3; k++ {
			_, err = f.step()
		}
		if err == store.ErrCompacted {
			continue
		}
		if err != nil {
			e.Error(err)
			break
		}
		opened++
	}
	close(stop)
	writers.Wait()
	compactor.Wait()
	if opened == 0 {
		e.Error("no watch got as far as to see anything")
	}
}

// testReadyRace commits while watches are between finding nothing and waiting. A commit that one of
// them misses there would only be noticed with the next, which does not come.
func testReadyRace(e *env) {
	ctx, cancel := context.WithCancel(e.Context())
	const watchers = 32
	var readers, arrived sync.WaitGroup
	for range watchers {
		w := e.watch("pods", "", 0)
		readers.Go(func() {
			for {
				events, err := w.Next(ctx)
				if err != nil {
					e.fails("Next", err, context.Canceled)
					return
				}
				e.same("events", len(events), 1)
				arrived.Done()
				for range rand.IntN(4_000) {
					_ = w.Revision() // so that it gets to waiting at another moment of the commit
				}
			}
		})
	}
	for i, start := 0, time.Now(); time.Since(start) < effort; i++ {
		arrived.Add(watchers)
		e.commit(put(pod("a/x"), fmt.Sprint(i)))
		arrived.Wait()
	}
	cancel()
	readers.Wait()
}

// testChecker is the whole contract under random traffic, judged from a record of it.
func testChecker(e *env) {
	seed := Seed(e)
	if err := checker.Check(e.Context(), e.Store, checker.Options{Seed: seed}); err != nil {
		e.Errorf("seed %d: %v", seed, err)
	}
}
