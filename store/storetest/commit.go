package storetest

import (
	"context"
	"errors"
	"fmt"

	"github.com/setpoint-dev/setpoint/store"
)

func testStamp(e *env) {
	for i := range 3 {
		r := e.commit(put(pod("a/x"), fmt.Sprint(i)))
		want := fmt.Sprintf(`{"resourceVersion":"%d","value":"%d"}`, r.Revision, i)
		e.same("value", string(e.snapshot().Get(pod("a/x")).Value), want)
	}
	op := put(pod("a/y"), "as it is")
	op.RevisionAt = -1
	r := e.commit(op)
	e.same("value without a stamp", string(r.Entries[0].Value), string(op.Value))
}

func testAtomic(e *env) {
	first := e.commit(put(pod("a/x"), "1"), put(pod("a/y"), "1"), put(store.Key{Resource: "nodes", Path: "n"}, "1"))
	for i, entry := range first.Entries {
		e.same(fmt.Sprintf("revision of entry %d", i), entry.Revision, first.Revision)
	}
	wrong := put(pod("a/y"), "2")
	wrong.Expect = first.Revision + 1
	if _, err := e.Commit(e.Context(), put(pod("a/x"), "2"), wrong); err == nil {
		e.Error("a commit with a wrong expectation went through")
	}
	s := e.snapshot()
	e.same("revision after the conflict", s.Revision(), first.Revision)
	e.same("value after the conflict", plain(s.Get(pod("a/x")).Value), "1")
	second := e.commit(put(pod("a/x"), "2"))
	e.same("created", second.Entries[0].Created, first.Revision)
	if second.Revision <= first.Revision {
		e.Errorf("revision %d comes after %d", second.Revision, first.Revision)
	}
}

func testExpect(e *env) {
	conflict := func(op store.Op, found bool) {
		e.Helper()
		_, err := e.Commit(e.Context(), op)
		var c *store.ConflictError
		if !errors.As(err, &c) {
			e.Fatalf("Commit: %v, want a conflict", err)
		}
		e.same("key of the conflict", c.Key, op.Key)
		e.same("expected of the conflict", c.Expected, op.Expect)
		e.same("found of the conflict", c.Found != nil, found)
	}
	create := put(pod("a/x"), "1")
	create.Expect = 0
	made := e.commit(create)
	conflict(create, true)

	check := store.Op{Key: pod("a/x"), Expect: made.Revision}
	r := e.commit(check)
	e.same("a check changes", r.Changed, false)
	e.same("entry of a check", r.Entries[0], made.Entries[0])
	e.same("entry of a check of nothing", e.commit(store.Op{Key: pod("a/none")}).Entries[0] == nil, true)

	check.Expect++
	conflict(check, true)
	check.Key = pod("a/none")
	conflict(check, false)

	remove := del(pod("a/x"))
	remove.Expect = made.Revision + 7
	conflict(remove, true)
	remove.Expect = made.Revision
	e.commit(remove)
	again := e.commit(create)
	e.same("created again", again.Entries[0].Created, again.Revision)
}

func testNoOp(e *env) {
	made := e.commit(put(pod("a/x"), "1"))
	w := e.watch("pods", "", made.Revision)
	for _, op := range []store.Op{put(pod("a/x"), "1"), del(pod("a/none")), {Key: pod("a/x"), Expect: store.Any}} {
		r := e.commit(op)
		e.same("changed", r.Changed, false)
		e.same("revision", r.Revision, made.Revision)
	}
	e.same("entry", e.commit(put(pod("a/x"), "1")).Entries[0], made.Entries[0])
	// Beside a real change the same thing stays as it is, too.
	r := e.commit(put(pod("a/x"), "1"), put(pod("a/y"), "1"))
	e.same("entry beside a change", r.Entries[0], made.Entries[0])
	e.same("events", e.events(w), []string{fmt.Sprintf("%d put pods/a/y", r.Revision)})
	// What differs only where the stamp is differs.
	op := put(pod("a/x"), "1")
	op.RevisionAt++
	e.same("stamped elsewhere", e.commit(op).Changed, true)
}

func testTwice(e *env) {
	ops := []store.Op{put(pod("a/x"), "1"), put(pod("a/y"), "1"), del(pod("a/x"))}
	if _, err := e.Commit(e.Context(), ops...); err == nil {
		e.Error("a commit that names a key twice went through")
	}
	for i := range 20 {
		ops = append(ops, put(pod(fmt.Sprint(i)), "1"))
	}
	if _, err := e.Commit(e.Context(), ops...); err == nil {
		e.Error("a large commit that names a key twice went through")
	}
	e.same("revision", e.Revision(), store.Revision(0))
}

func testCommitContext(e *env) {
	ctx, cancel := context.WithCancel(e.Context())
	cancel()
	_, err := e.Commit(ctx, put(pod("a/x"), "1"))
	e.fails("Commit", err, context.Canceled)
}

func testDelete(e *env) {
	made := e.commit(put(pod("a/x"), "1"))
	e.commit(put(pod("a/other"), "1"))
	gone := e.commit(del(pod("a/x")))
	e.same("entry after the delete", e.snapshot().Get(pod("a/x")) == nil, true)
	w := e.watch("pods", "a/x", made.Revision)
	events, err := w.TryNext()
	if err != nil || len(events) != 1 {
		e.Fatalf("TryNext: %d events, %v", len(events), err)
	}
	ev := events[0]
	e.same("type", ev.Type, store.Delete)
	e.same("revision", ev.Entry.Revision, gone.Revision)
	e.same("value", string(ev.Entry.Value), fmt.Sprintf(`{"resourceVersion":"%d","value":"deleted"}`, gone.Revision))
	e.same("created", ev.Entry.Created, made.Revision)
	e.same("previous", ev.Prev, made.Entries[0])
	e.same("entry of the result", gone.Entries[0], ev.Entry)

	bare := store.Op{Key: pod("a/other"), Type: store.Delete, Expect: store.Any, RevisionAt: -1}
	e.same("value of a delete without one", len(e.commit(bare).Entries[0].Value), 0)
}

func testMemo(e *env) {
	op := put(pod("a/x"), "1")
	op.Memo, op.Origin = "a memo", "tester"
	e.commit(op)
	e.same("memo", e.snapshot().Get(pod("a/x")).Memo.Load(), any("a memo"))
	events, err := e.watch("pods", "", 0).TryNext()
	if err != nil || len(events) != 1 {
		e.Fatalf("TryNext: %d events, %v", len(events), err)
	}
	e.same("origin", events[0].Origin, "tester")
}
