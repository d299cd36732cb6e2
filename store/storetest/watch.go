package storetest

import (
	"context"
	"fmt"

	"github.com/setpoint-dev/setpoint/store"
)

func testWatchAtomic(e *env) {
	w := e.watch("pods", "", 0)
	const wide, deep = 40, 60 // more events than a call returns, and than fit a piece of a log
	var made []store.Revision
	for i := range deep {
		var ops []store.Op
		for j := range wide {
			ops = append(ops, put(pod(fmt.Sprintf("a/%d", j)), fmt.Sprint(i)))
		}
		made = append(made, e.commit(ops...).Revision)
	}
	last := store.Revision(0)
	for total := 0; total < wide*deep; {
		events, err := w.TryNext()
		if err != nil || len(events) == 0 {
			e.Fatalf("TryNext: %d events after %d, %v", len(events), total, err)
		}
		for i, ev := range events {
			if want := fmt.Sprintf("a/%d", i%wide); ev.Entry.Key.Path != want {
				e.Fatalf("event %d of a call is of %s, want %s", i, ev.Entry.Key.Path, want)
			}
			if i%wide == 0 {
				last = made[(total+i)/wide]
			}
			e.same("revision", ev.Entry.Revision, last)
		}
		e.same("whole revisions", len(events)%wide, 0)
		e.same("revision of the watch", w.Revision(), last)
		total += len(events)
	}
}

func testWatchPrefix(e *env) {
	all, some := e.watch("pods", "", 0), e.watch("pods", "a/", 0)
	first := e.commit(put(pod("a/x"), "1"), put(pod("b/x"), "1")).Revision
	second := e.commit(put(pod("b/x"), "2")).Revision
	last := e.commit(put(store.Key{Resource: "nodes", Path: "a/x"}, "1")).Revision
	e.same("all", e.events(all), []string{fmt.Sprintf("%d put pods/a/x", first), fmt.Sprintf("%d put pods/b/x", first),
		fmt.Sprintf("%d put pods/b/x", second)})
	e.same("some", e.events(some), []string{fmt.Sprintf("%d put pods/a/x", first)})
	e.same("revision", some.Revision(), last)
}

func testResume(e *env) {
	const n = 200
	at := []store.Revision{0}
	var want []string
	for i := range n {
		at = append(at, e.commit(put(pod("a/x"), fmt.Sprint(i))).Revision)
		want = append(want, fmt.Sprintf("%d put pods/a/x", at[i+1]))
	}
	for i, after := range at {
		got := e.events(e.watch("pods", "", after))
		e.same(fmt.Sprintf("events after %d", after), append([]string(nil), got...), append([]string(nil), want[i:]...))
	}
	_, err := e.Watch("pods", "", at[n]+1)
	e.fails("Watch of the future", err, store.ErrFuture)
	for _, first := range []int{1, 63, 64, 65, 128, 150, n} {
		e.compact(at[first])
		for i, after := range at {
			w, err := e.Watch("pods", "", after)
			if i < first {
				e.fails(fmt.Sprintf("Watch(%d) compacted to %d", after, at[first]), err, store.ErrCompacted)
				continue
			}
			if err != nil {
				e.Fatalf("Watch(%d) compacted to %d: %v", after, at[first], err)
			}
			e.same("number of events", len(e.events(w)), n-i)
		}
	}
}

func testCompactAtDelete(e *env) {
	e.commit(put(pod("a/x"), "1"))
	gone := e.commit(del(pod("a/x"))).Revision
	stalled := e.watch("pods", "", gone-1)
	caughtUp := e.watch("pods", "", gone)
	after := e.commit(put(pod("a/y"), "1")).Revision
	e.compact(gone)
	_, err := e.Watch("pods", "", gone-1)
	e.fails("Watch before the delete", err, store.ErrCompacted)
	_, err = stalled.TryNext()
	e.fails("TryNext of a stalled watch", err, store.ErrCompacted)
	want := []string{fmt.Sprintf("%d put pods/a/y", after)}
	e.same("a watch that had the delete", e.events(caughtUp), want)
	e.same("a watch from the delete", e.events(e.watch("pods", "", gone)), want)
}

func testQuiet(e *env) {
	w := e.watch("pods", "", 0)
	last := store.Revision(0)
	for i := range 10 {
		r := e.commit(put(store.Key{Resource: "nodes", Path: "n"}, fmt.Sprint(i)))
		e.same("events", len(e.events(w)), 0)
		e.same("revision", w.Revision(), r.Revision)
		last = r.Revision
	}
	// What was compacted was not of this resource, so the watch has missed nothing.
	behind := e.watch("pods", "", last)
	e.compact(e.commit(put(store.Key{Resource: "nodes", Path: "n"}, "again")).Revision)
	r := e.commit(put(pod("a/x"), "1"))
	e.same("events", e.events(behind), []string{fmt.Sprintf("%d put pods/a/x", r.Revision)})
}

func testReady(e *env) {
	w := e.watch("pods", "", 0)
	for i := range 100 {
		before := w.Ready()
		select {
		case <-before:
			e.Fatal("ready without an event")
		default:
		}
		e.commit(put(pod("a/x"), fmt.Sprint(i)))
		<-before
		<-w.Ready()
		e.same("number of events", len(e.events(w)), 1)
	}
}

func testWatchContext(e *env) {
	w := e.watch("pods", "", 0)
	ctx, cancel := context.WithCancel(e.Context())
	cancel()
	_, err := w.Next(ctx)
	e.fails("Next", err, context.Canceled)
	e.commit(put(pod("a/x"), "1"))
	events, err := w.Next(ctx)
	e.fails("Next with an event there", err, nil)
	e.same("events", len(events), 1)
}

func testStalled(e *env) {
	stalled := e.watch("pods", "", 0)
	healthy := e.watch("pods", "", 0)
	last := store.Revision(0)
	for i := range 500 {
		last = e.commit(put(pod("a/x"), fmt.Sprint(i))).Revision
		e.same("healthy", len(e.events(healthy)), 1)
	}
	e.compact(last - 1)
	_, err := stalled.TryNext()
	e.fails("stalled", err, store.ErrCompacted)
	select {
	case <-stalled.Ready():
	default:
		e.Error("a watch that has missed something is not ready to say so")
	}
	_, err = stalled.Next(e.Context())
	e.fails("stalled again", err, store.ErrCompacted)
}

func testClose(e *env) {
	w := e.watch("pods", "", 0)
	e.commit(put(pod("a/x"), "1"))
	s := e.snapshot()
	e.events(w)
	ended := make(chan error)
	go func() {
		_, err := w.Next(context.Background())
		ended <- err
	}()
	if err := e.Close(); err != nil {
		e.Errorf("Close: %v", err)
	}
	e.fails("Next", <-ended, store.ErrClosed)
	_, err := w.TryNext()
	e.fails("TryNext", err, store.ErrClosed)
	<-w.Ready()
	_, err = e.Watch("pods", "", 0)
	e.fails("Watch", err, store.ErrClosed)
	_, err = e.Commit(context.Background(), put(pod("a/x"), "2"))
	e.fails("Commit", err, store.ErrClosed)
	_, err = e.Snapshot(context.Background())
	e.fails("Snapshot", err, store.ErrClosed)
	_, err = e.SnapshotAt(context.Background(), 1)
	e.fails("SnapshotAt", err, store.ErrClosed)
	e.fails("Compact", e.Compact(context.Background(), 1), store.ErrClosed)
	e.same("a snapshot from before", plain(s.Get(pod("a/x")).Value), "1")
}
