package core_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/setpoint-dev/setpoint/store"
	"github.com/setpoint-dev/setpoint/store/internal/core"
)

// What engines share of the contract is tested by storetest. This is what only an engine sees: the
// writer's side.

var start = time.Unix(1_000_000, 0)

func key(path string) store.Key { return store.Key{Resource: "pods", Path: path} }

func put(path, value string) store.Op {
	return store.Op{Key: key(path), Type: store.Put, Expect: store.Any, Value: []byte(value), RevisionAt: -1}
}

func decide(t *testing.T, c *core.Core, ops ...store.Op) store.Result {
	t.Helper()
	r, err := c.Decide(ops)
	if err != nil {
		t.Fatalf("Decide: %v", err)
	}
	return r
}

// state is everything that is published, in words.
func state(t *testing.T, r *core.Reader) (all []string) {
	t.Helper()
	at, entries := r.Entries()
	all = append(all, fmt.Sprintf("at %d from %d", at, r.Compacted()))
	for e := range entries {
		all = append(all, fmt.Sprintf("%s=%s made %d changed %d", e.Key, e.Value, e.Created, e.Revision))
	}
	return all
}

func expect(t *testing.T, what string, got []string, want ...string) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

// events returns what a watch has.
func events(t *testing.T, w store.Watch) (all []string) {
	t.Helper()
	got, err := w.TryNext()
	if err != nil {
		t.Fatalf("TryNext: %v", err)
	}
	for _, e := range got {
		was := "nothing"
		if e.Prev != nil {
			was = string(e.Prev.Value)
		}
		all = append(all, fmt.Sprintf("%d %d %s: %s was %s", e.Entry.Revision, e.Type, e.Entry.Key.Path, e.Entry.Value, was))
	}
	return all
}

func watch(t *testing.T, r *core.Reader, after store.Revision) store.Watch {
	t.Helper()
	w, err := r.Watch("pods", "", after)
	if err != nil {
		t.Fatalf("Watch: %v", err)
	}
	return w
}

// TestDecidedIsInvisibleUntilPublished decides two commits, the second on top of the first.
func TestDecidedIsInvisibleUntilPublished(t *testing.T) {
	c := core.New(core.Options{}, 0)
	w := watch(t, c.Reader(), 0)
	ready := w.Ready()
	decide(t, c, put("a", "1"))
	second := put("a", "2")
	second.Expect = 1
	if r := decide(t, c, second); r.Revision != 2 {
		t.Errorf("the second commit has revision %d, want 2", r.Revision)
	}
	expect(t, "before Publish", state(t, c.Reader()), "at 0 from 0")
	expect(t, "events before Publish", events(t, w))
	select {
	case <-ready:
		t.Error("a watch was woken by what nobody may see yet")
	default:
	}
	var kept []string
	for ch := range c.Pending() {
		kept = append(kept, fmt.Sprintf("%d %s", ch.Revision, ch.Value))
	}
	expect(t, "what the engine has to keep", kept, "1 1", "2 2")
	c.Publish(start)
	<-ready
	expect(t, "after Publish", state(t, c.Reader()), "at 2 from 0", "pods/a=2 made 1 changed 2")
	expect(t, "events after Publish", events(t, w), "1 1 a: 1 was nothing", "2 1 a: 2 was 1")
}

// TestRollbackForgetsWhatWasDecided decides changes of what there is, of what there is not, and of a new
// resource, takes them back, and decides others in their place.
func TestRollbackForgetsWhatWasDecided(t *testing.T) {
	c := core.New(core.Options{}, 0)
	decide(t, c, put("a", "1"), put("b", "1"))
	c.Publish(start)
	want := state(t, c.Reader())
	w := watch(t, c.Reader(), 1)
	node := store.Op{Key: store.Key{Resource: "nodes", Path: "n"}, Type: store.Put, Value: []byte("1"), RevisionAt: -1}
	decide(t, c, put("a", "lost"), node)
	decide(t, c, store.Op{Key: key("b"), Type: store.Delete, Expect: 1, RevisionAt: -1})
	c.Rollback()
	expect(t, "after Rollback", state(t, c.Reader()), want...)
	for range c.Pending() {
		t.Error("something is still to be kept")
	}
	c.Publish(start)
	expect(t, "a Publish of nothing", state(t, c.Reader()), want...)
	if r := decide(t, c, node); r.Revision != 2 || !r.Changed { // Expect 0: it does not exist
		t.Errorf("the next commit: %+v, want revision 2", r)
	}
	c.Publish(start)
	expect(t, "events", events(t, w))
	expect(t, "at last", state(t, c.Reader()), "at 2 from 0", "nodes/n=1 made 2 changed 2",
		"pods/a=1 made 1 changed 1", "pods/b=1 made 1 changed 1")
}

// TestConflictLeavesTheWorkingStateAlone has a commit fail in its second op.
func TestConflictLeavesTheWorkingStateAlone(t *testing.T) {
	c := core.New(core.Options{}, 0)
	second := put("b", "1")
	second.Expect = 7
	_, err := c.Decide([]store.Op{put("a", "1"), second})
	var conflict *store.ConflictError
	if !errors.As(err, &conflict) || conflict.Key != key("b") {
		t.Fatalf("Decide: %v, want a conflict about b", err)
	}
	for range c.Pending() {
		t.Error("the first op of a commit that failed is to be kept")
	}
	if r := decide(t, c, put("c", "1")); r.Revision != 1 {
		t.Errorf("the next commit has revision %d, want 1", r.Revision)
	}
}

// TestReplayMakesTheSame replays what one core had to keep in another: state, history and revisions.
func TestReplayMakesTheSame(t *testing.T) {
	c, again := core.New(core.Options{}, 0), core.New(core.Options{}, 0)
	steps := [][]store.Op{
		{put("a", "1"), put("b", "1")},
		{put("a", "2")},
		{{Key: key("b"), Type: store.Delete, Expect: store.Any, Value: []byte("last"), RevisionAt: -1}},
		{put("b", "2"), put("c", "1")},
	}
	for _, ops := range steps {
		decide(t, c, ops...)
		for ch := range c.Pending() {
			if err := again.Replay(ch); err != nil {
				t.Fatal(err)
			}
		}
		c.Publish(start)
	}
	again.Publish(start)
	expect(t, "the state", state(t, again.Reader()), state(t, c.Reader())...)
	expect(t, "the history", events(t, watch(t, again.Reader(), 0)), events(t, watch(t, c.Reader(), 0))...)
	if r := decide(t, again, put("d", "1")); r.Revision != 5 {
		t.Errorf("the next commit has revision %d, want 5", r.Revision)
	}
	again.Publish(start)
	for _, revision := range []store.Revision{5, 4} {
		if err := again.Replay(core.Change{Revision: revision, Type: store.Put, Key: key("x")}); err == nil {
			t.Errorf("revision %d was replayed after 5 was published", revision)
		}
	}
}

// TestLoadBeginsAHistory loads a checkpoint: the state is there, and nothing before it.
func TestLoadBeginsAHistory(t *testing.T) {
	c := core.New(core.Options{}, 40)
	c.Load(&store.Entry{Key: key("a"), Value: []byte("1"), Revision: 30, Created: 20})
	c.Publish(time.Time{})
	expect(t, "the state", state(t, c.Reader()), "at 40 from 40", "pods/a=1 made 20 changed 30")
	if _, err := c.Reader().Watch("pods", "", 39); !errors.Is(err, store.ErrCompacted) {
		t.Errorf("a watch from before: %v, want ErrCompacted", err)
	}
	w := watch(t, c.Reader(), 40)
	if err := c.Replay(core.Change{Revision: 41, Type: store.Put, Key: key("a"), Value: []byte("2")}); err != nil {
		t.Fatal(err)
	}
	c.Publish(start)
	expect(t, "events", events(t, w), "41 1 a: 2 was 1")
	expect(t, "the state after", state(t, c.Reader()), "at 41 from 40", "pods/a=2 made 20 changed 41")
}

// TestForkSharesAndParts forks beside a writer that has something decided.
func TestForkSharesAndParts(t *testing.T) {
	c := core.New(core.Options{}, 0)
	decide(t, c, put("a", "1"))
	c.Publish(start)
	decide(t, c, put("a", "not published"))
	fork := c.Reader().Fork(core.Options{})
	expect(t, "the fork", state(t, fork.Reader()), "at 1 from 1", "pods/a=1 made 1 changed 1")
	decide(t, fork, put("a", "fork"), put("f", "1"))
	fork.Publish(start)
	c.Publish(start)
	expect(t, "the origin", state(t, c.Reader()), "at 2 from 0", "pods/a=not published made 1 changed 2")
	expect(t, "the fork, later", state(t, fork.Reader()), "at 2 from 1", "pods/a=fork made 1 changed 2", "pods/f=1 made 2 changed 2")
}

// TestResetTellsEveryWatch replaces the state by one of which nobody knows how it came about.
func TestResetTellsEveryWatch(t *testing.T) {
	c := core.New(core.Options{}, 0)
	decide(t, c, put("a", "1"))
	c.Publish(start)
	behind, upToDate := watch(t, c.Reader(), 0), watch(t, c.Reader(), 1)
	quiet, err := c.Reader().Watch("nodes", "", 1)
	if err != nil {
		t.Fatal(err)
	}
	ready := upToDate.Ready()
	decide(t, c, put("lost", "1"))
	c.Reset(50, []*store.Entry{{Key: key("b"), Value: []byte("1"), Revision: 44, Created: 44}})
	expect(t, "the state", state(t, c.Reader()), "at 50 from 50", "pods/b=1 made 44 changed 44")
	<-ready
	for name, w := range map[string]store.Watch{"behind": behind, "up to date": upToDate, "quiet": quiet} {
		if _, err := w.TryNext(); !errors.Is(err, store.ErrCompacted) {
			t.Errorf("the watch that was %s: %v, want ErrCompacted", name, err)
		}
	}
	w := watch(t, c.Reader(), 50)
	entry, err := c.Adopt(core.Change{Revision: 52, Type: store.Put, Key: key("b"), Value: []byte(`{"rv":""}`)}, 7)
	if err != nil || string(entry.Value) != `{"rv":"52"}` {
		t.Fatalf("Adopt: %s, %v; want the revision in it", entry.Value, err)
	}
	c.Publish(start)
	expect(t, "events", events(t, w), `52 1 b: {"rv":"52"} was 1`)
}

// TestAgeSaysWhenToComeBack follows the clock as an engine does: it looks when it is told to, and by then
// something has become too old.
func TestAgeSaysWhenToComeBack(t *testing.T) {
	c := core.New(core.Options{HistoryAge: time.Hour}, 0)
	if wait := c.Age(start); wait != 0 {
		t.Errorf("an empty store has something to do in %v", wait)
	}
	now := start
	for i := range 100 {
		decide(t, c, put("a", fmt.Sprint(i)))
		c.Publish(now)
		now = now.Add(time.Second)
	}
	looks := 0
	for wait := c.Age(now); wait > 0; wait = c.Age(now) {
		before := c.Reader().Compacted()
		if now = now.Add(wait - time.Nanosecond); c.Age(now) == 0 || c.Reader().Compacted() != before {
			t.Fatalf("%v before its time something was too old", time.Nanosecond)
		}
		now = now.Add(time.Nanosecond)
		if c.Age(now); c.Reader().Compacted() == before {
			t.Fatalf("after %v nothing was too old", wait)
		}
		if looks++; looks > 100 {
			t.Fatal("it takes a look for each commit")
		}
	}
	if got, want := c.Reader().Compacted(), c.Reader().Revision(); got != want {
		t.Errorf("in the end the history begins at %d, want %d", got, want)
	}
	if old := start.Add(99*time.Second + time.Hour); now.Sub(old) > time.Second {
		t.Errorf("the last commit was kept for %v longer than an hour", now.Sub(old))
	}
}

// TestDueBoundsAReplay publishes only when it is due: history is bounded all the same.
func TestDueBoundsAReplay(t *testing.T) {
	const bytes = 1 << 20
	c := core.New(core.Options{HistoryBytes: bytes}, 0)
	value, published, most := make([]byte, 1000), 0, store.Revision(0)
	for i := range 10_000 {
		if err := c.Replay(core.Change{Revision: store.Revision(i + 1), Type: store.Put, Key: key("a"), Value: value}); err != nil {
			t.Fatal(err)
		}
		if c.Due(start) {
			c.Publish(start)
			published++
			most = max(most, c.Reader().Revision()-c.Reader().Compacted())
		}
	}
	// An event keeps its value, the one before, and a little: a sixty-fourth is seven of them.
	if limit := store.Revision(bytes/2000 + 8); most > limit || most < limit*3/4 {
		t.Errorf("%d events were kept, want about %d", most, limit)
	}
	if published > 10_000/6 {
		t.Errorf("it published %d times for 10,000 changes", published)
	}
}

// TestHistoryIsWeighed asks what the history takes, as it grows, ages and is given up.
func TestHistoryIsWeighed(t *testing.T) {
	const each = 256 + 1000 + 1000 + 1 // itself, the object, the one before, its name
	c := core.New(core.Options{HistoryAge: time.Hour}, 0)
	r, value := c.Reader(), strings.Repeat("v", 996)
	kept := func(what string, events int, since time.Time) {
		t.Helper()
		if got, most := r.HistoryBytes(), int64(events*each); got > most || got < most-2*each {
			t.Errorf("%s: %d bytes are kept, want %d of %d events", what, got, most, events)
		}
		if !r.HistorySince().Equal(since) {
			t.Errorf("%s: the history goes back to %v, want %v", what, r.HistorySince(), since)
		}
	}
	kept("at first", 0, time.Time{})
	for i := range 100 {
		decide(t, c, put("a", fmt.Sprintf("%s%04d", value, i)))
		c.Publish(start.Add(time.Duration(i) * time.Minute / 2))
	}
	kept("after 100 writes", 100, start)
	if err := c.Compact(50); err != nil {
		t.Fatal(err)
	}
	kept("half of it compacted", 50, start.Add(49*time.Minute/2).Add(time.Minute/2))
	c.Age(start.Add(3 * time.Hour))
	kept("all of it too old", 0, time.Time{})
}
