package storetest

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sort"

	"github.com/setpoint-dev/setpoint/store"
)

// model is a store in fifty lines: every state there ever was.
type model struct {
	revision  store.Revision
	compacted store.Revision
	states    []map[store.Key]modelEntry // by revision
	commits   []store.Revision
}

type modelEntry struct {
	value    string
	revision store.Revision
	created  store.Revision
}

func newModel() *model {
	return &model{states: []map[store.Key]modelEntry{{}}, commits: []store.Revision{0}}
}

// commit changes the model as a commit does that an engine gave a revision. A revision may be larger
// than the next one, by as much as gapMax.
func (m *model) commit(ops []store.Op, at store.Revision) (changed, conflict bool) {
	now := m.states[m.revision]
	for _, op := range ops {
		if op.Expect != store.Any && op.Expect != now[op.Key].revision {
			return false, true
		}
	}
	if at <= m.revision || at > m.revision+gapMax {
		at = m.revision + 1
	}
	next := maps.Clone(now)
	for _, op := range ops {
		old, exists := now[op.Key]
		switch value := plain(op.Value); {
		case op.Type == store.Delete && exists:
			delete(next, op.Key)
			changed = true
		case op.Type == store.Put && (!exists || old.value != value):
			e := modelEntry{value, at, at}
			if exists {
				e.created = old.created
			}
			next[op.Key] = e
			changed = true
		}
	}
	if changed {
		for ; m.revision < at-1; m.revision++ {
			m.states = append(m.states, now)
		}
		m.revision = at
		m.commits = append(m.commits, at)
		m.states = append(m.states, next)
	}
	return changed, false
}

// agrees compares a snapshot with the model's state of its revision.
func (m *model) agrees(s store.Snapshot) error {
	want := m.states[s.Revision()]
	found := 0
	for _, resource := range modelResources {
		entries, _ := s.List(resource, store.ListOptions{})
		if !slices.IsSortedFunc(entries, func(a, b *store.Entry) int {
			return map[bool]int{true: -1, false: 1}[a.Key.Path < b.Key.Path]
		}) {
			return fmt.Errorf("%s at %d are not in order", resource, s.Revision())
		}
		for _, entry := range entries {
			got := modelEntry{plain(entry.Value), entry.Revision, entry.Created}
			if got != want[entry.Key] {
				return fmt.Errorf("%s at %d is %+v, want %+v", entry.Key, s.Revision(), got, want[entry.Key])
			}
			found++
		}
	}
	if found != len(want) {
		return fmt.Errorf("%d keys at %d, want %d", found, s.Revision(), len(want))
	}
	return nil
}

// some returns a revision: mostly that of a commit, or one beside it.
func (m *model) some(rnd *rand.Rand) store.Revision {
	return max(m.commits[rnd.IntN(len(m.commits))]+store.Revision(rnd.IntN(3)-1), 1)
}

// gapMax is how many revisions may pass between two commits of one who writes alone.
const gapMax = 1000

var modelResources = []string{"pods", "nodes", "leases"}

// action is a step of a random run: a commit, a read of the past, or a compaction.
type action struct {
	ops     []store.Op
	at      store.Revision
	compact store.Revision
}

func (a action) String() string {
	switch {
	case a.compact > 0:
		return fmt.Sprintf("compact to %d", a.compact)
	case a.at > 0:
		return fmt.Sprintf("read at %d", a.at)
	}
	s := "commit"
	for _, op := range a.ops {
		verb := map[store.EventType]string{0: "check", store.Put: "put", store.Delete: "delete"}[op.Type]
		s += fmt.Sprintf(" %s %s=%s if %d;", verb, op.Key, plain(op.Value), op.Expect)
	}
	return s
}

// randomAction does something that has a fair chance to change something.
func randomAction(rnd *rand.Rand, m *model) action {
	switch rnd.IntN(20) {
	case 0:
		later := m.commits[sort.Search(len(m.commits), func(i int) bool { return m.commits[i] > m.compacted }):]
		if len(later) == 0 {
			return action{compact: m.revision + 1}
		}
		return action{compact: later[rnd.IntN(min(5, len(later)))]}
	case 1, 2:
		return action{at: m.some(rnd)}
	}
	var a action
	for range 1 + rnd.IntN(3) {
		key := store.Key{
			Resource: modelResources[rnd.IntN(len(modelResources))],
			Path:     fmt.Sprintf("%c/%d", 'a'+rnd.IntN(2), rnd.IntN(4)),
		}
		if slices.ContainsFunc(a.ops, func(op store.Op) bool { return op.Key == key }) {
			continue
		}
		op := put(key, fmt.Sprint(rnd.IntN(3)))
		op.Type = []store.EventType{store.Put, store.Put, store.Put, store.Delete, 0}[rnd.IntN(5)]
		switch rnd.IntN(4) {
		case 0:
			op.Expect = m.commits[rnd.IntN(len(m.commits))]
		case 1:
			op.Expect = m.states[m.revision][key].revision
		}
		a.ops = append(a.ops, op)
	}
	return a
}

func testModel(e *env) {
	seed := Seed(e)
	rnd := rand.New(rand.NewPCG(seed, 0))
	m := newModel()
	followers := map[string]*follower{}
	var done []action
	for range 1_000 {
		a := randomAction(rnd, m)
		done = append(done, a)
		err := e.act(a, m)
		if err == nil {
			err = e.compare(rnd, m, followers)
		}
		if err != nil {
			for _, a := range done[max(0, len(done)-20):] {
				e.Log(a)
			}
			e.Fatalf("step %d of seed %d: %v", len(done), seed, err)
		}
	}
}

func (e *env) act(a action, m *model) error {
	if a.compact > 0 {
		err := e.Compact(e.Context(), a.compact)
		if a.compact > m.revision {
			return wants(err, store.ErrFuture)
		}
		m.compacted = max(m.compacted, a.compact)
		return err
	}
	if a.at > 0 {
		s, err := e.SnapshotAt(e.Context(), a.at)
		switch {
		case a.at > m.revision:
			return wants(err, store.ErrFuture)
		case a.at < m.compacted:
			return wants(err, store.ErrCompacted)
		case err != nil:
			return err
		}
		return m.agrees(s)
	}
	result, err := e.Commit(e.Context(), a.ops...)
	changed, conflict := m.commit(a.ops, result.Revision)
	var c *store.ConflictError
	switch {
	case conflict != errors.As(err, &c):
		return fmt.Errorf("%v, want a conflict: %v", err, conflict)
	case conflict:
		return nil
	case err != nil:
		return err
	case result.Changed != changed || result.Revision != m.revision:
		return fmt.Errorf("revision %d, changed %v; want %d, %v", result.Revision, result.Changed, m.revision, changed)
	}
	return nil
}

func wants(err, want error) error {
	if errors.Is(err, want) {
		return nil
	}
	return fmt.Errorf("%v, want %v", err, want)
}

// compare checks the newest state, and lets watches that started at random times catch up at
// random times; one that was told ErrCompacted starts anew.
func (e *env) compare(rnd *rand.Rand, m *model, followers map[string]*follower) error {
	s, err := e.Snapshot(e.Context())
	if err != nil {
		return err
	}
	if s.Revision() != m.revision || e.Compacted() != m.compacted {
		return fmt.Errorf("at %d compacted to %d; want %d, %d", s.Revision(), e.Compacted(), m.revision, m.compacted)
	}
	if err := m.agrees(s); err != nil {
		return err
	}
	prefix := []string{"", "a/", "b/"}[rnd.IntN(3)]
	f := followers[prefix]
	if f == nil {
		followers[prefix], err = follow(e, s, prefix)
		return err
	}
	if rnd.IntN(3) > 0 {
		return nil
	}
	before := f.last
	if _, err = f.step(); errors.Is(err, store.ErrCompacted) && before < m.compacted {
		delete(followers, prefix)
		return nil
	}
	if err != nil {
		return fmt.Errorf("watch of %q: %w", prefix, err)
	}
	return f.agrees(s)
}
