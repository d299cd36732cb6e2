package storetest

import (
	"fmt"
	"strings"

	"github.com/setpoint-dev/setpoint/store"
)

func testList(e *env) {
	all := []string{"a/x", "a/y", "a-b/x", "b/x", "b/\xff", "c"}
	for _, path := range all {
		e.commit(put(pod(path), "1"))
	}
	e.commit(put(store.Key{Resource: "podtemplates", Path: "a/z"}, "1"))
	s := e.snapshot()
	for _, test := range []struct {
		opts store.ListOptions
		want string
		more bool
	}{
		{store.ListOptions{}, "a-b/x a/x a/y b/x b/\xff c", false},
		{store.ListOptions{Prefix: "a/"}, "a/x a/y", false},
		{store.ListOptions{Prefix: "b/"}, "b/x b/\xff", false},
		{store.ListOptions{Prefix: "b/\xff"}, "b/\xff", false},
		{store.ListOptions{Prefix: "d"}, "", false},
		{store.ListOptions{Limit: 2}, "a-b/x a/x", true},
		{store.ListOptions{Limit: 6}, "a-b/x a/x a/y b/x b/\xff c", false},
		{store.ListOptions{After: "a/x", Limit: 2}, "a/y b/x", true},
		{store.ListOptions{Prefix: "a/", After: "a/x"}, "a/y", false},
		{store.ListOptions{Prefix: "a/", After: "a"}, "a/x a/y", false},
		{store.ListOptions{Prefix: "a/", After: "a/y"}, "", false},
		{store.ListOptions{Prefix: "a/", After: "z"}, "", false},
		{store.ListOptions{Prefix: "a/", Limit: 1}, "a/x", true},
	} {
		entries, more := s.List("pods", test.opts)
		what := fmt.Sprintf("%+v", test.opts)
		e.same(what, strings.Join(paths(entries), " "), test.want)
		e.same(what+" more", more, test.more)
		unlimited := test.opts
		unlimited.Limit = 0
		entries, _ = s.List("pods", unlimited)
		e.same(what+" count", s.Count("pods", test.opts), len(entries))
	}
	entries, more := s.List("nothing", store.ListOptions{})
	e.same("list of nothing", len(entries) == 0 && !more, true)
}

func testSnapshot(e *env) {
	last := store.Revision(0)
	for i := range 100 {
		last = e.commit(put(pod(fmt.Sprintf("a/%03d", i)), "old")).Revision
	}
	s := e.snapshot()
	for i := range 100 {
		if i%2 == 0 {
			e.commit(del(pod(fmt.Sprintf("a/%03d", i))))
		} else {
			e.commit(put(pod(fmt.Sprintf("a/%03d", i)), "new"))
		}
	}
	e.commit(put(pod("a/another"), "new"))
	entries, _ := s.List("pods", store.ListOptions{})
	e.same("number of entries", len(entries), 100)
	for _, entry := range entries {
		e.same(entry.Key.Path, plain(entry.Value), "old")
	}
	e.same("revision", s.Revision(), last)
	e.same("entries now", e.snapshot().Count("pods", store.ListOptions{}), 51)
}

func testSnapshotAt(e *env) {
	type state map[string]string
	states := map[store.Revision]state{0: {}}
	current := state{}
	for i := range 300 {
		key := pod(fmt.Sprintf("a/%d", i*7%40))
		var made store.Result
		if _, ok := current[key.Path]; ok && i%3 == 0 {
			made = e.commit(del(key))
			delete(current, key.Path)
		} else {
			made = e.commit(put(key, fmt.Sprint(i)))
			current[key.Path] = fmt.Sprint(i)
		}
		copied := state{}
		for k, v := range current {
			copied[k] = v
		}
		states[made.Revision] = copied
	}
	for at, want := range states {
		s := e.snapshotAt(at)
		e.same("revision", s.Revision(), at)
		got := state{}
		entries, _ := s.List("pods", store.ListOptions{})
		for _, entry := range entries {
			got[entry.Key.Path] = plain(entry.Value)
			e.same("get", s.Get(entry.Key), entry)
		}
		e.same(fmt.Sprintf("state at %d", at), got, want)
		e.same("count", s.Count("pods", store.ListOptions{}), len(want))
		e.same("another resource", s.Count("nodes", store.ListOptions{}), 0)
	}
}

func testSnapshotWindow(e *env) {
	at := []store.Revision{0}
	for i := range 200 {
		at = append(at, e.commit(put(pod("a/x"), fmt.Sprint(i+1))).Revision)
	}
	old := e.snapshotAt(at[50])
	e.compact(at[100])
	e.same("compacted", e.Compacted(), at[100])
	for n, want := range map[int]error{50: store.ErrCompacted, 99: store.ErrCompacted, 100: nil, 101: nil, 200: nil} {
		s, err := e.SnapshotAt(e.Context(), at[n])
		e.fails(fmt.Sprintf("SnapshotAt(%d)", at[n]), err, want)
		if err == nil {
			e.same("value", plain(s.Get(pod("a/x")).Value), fmt.Sprint(n))
		}
	}
	_, err := e.SnapshotAt(e.Context(), at[200]+1)
	e.fails("SnapshotAt of the future", err, store.ErrFuture)
	e.same("a snapshot from before", plain(old.Get(pod("a/x")).Value), "50")
	e.fails("Compact", e.Compact(e.Context(), at[200]+1), store.ErrFuture)
	e.compact(at[30]) // is over already
	e.same("compacted", e.Compacted(), at[100])
}

func testPages(e *env) {
	for i := range 10 {
		e.commit(put(pod(fmt.Sprintf("a/%d", i)), "1"))
	}
	at := e.Revision()
	var got []string
	for after, more := "", true; more; {
		var entries []*store.Entry
		entries, more = e.snapshotAt(at).List("pods", store.ListOptions{After: after, Limit: 3})
		got = append(got, paths(entries)...)
		after = got[len(got)-1]
		e.commit(del(pod("a/5")))
		e.commit(put(pod(after+"x"), "1"), put(pod("a/7"), after))
	}
	want := []string{"a/0", "a/1", "a/2", "a/3", "a/4", "a/5", "a/6", "a/7", "a/8", "a/9"}
	e.same("pages", got, want)
	e.compact(at + 1)
	_, err := e.SnapshotAt(e.Context(), at)
	e.fails("SnapshotAt after the compaction", err, store.ErrCompacted)
}
