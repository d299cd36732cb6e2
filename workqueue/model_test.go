package workqueue_test

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/setpoint-dev/setpoint/workqueue"
)

// model is the queue as one would write it without a thought of speed: a list of waits.
type model struct {
	waits  []*wait // in order of becoming ready
	inWork map[string]bool
	turn   int
	rings  map[int][]string // by priority, the classes that take turns
	served map[int]int      // by priority, when it had its turn
}

type wait struct {
	key      string
	priority int
	due      time.Time // zero: ready
}

// classOf makes three classes of eight keys.
func classOf(key string) string { return string('x' + rune(key[0]%3)) }

func (m *model) find(key string) *wait {
	i := slices.IndexFunc(m.waits, func(w *wait) bool { return w.key == key })
	if i < 0 {
		return nil
	}
	return m.waits[i]
}

func (m *model) add(now time.Time, key string, after time.Duration, priority int) {
	w := m.find(key)
	if w == nil {
		w = &wait{key: key, priority: priority}
		if after > 0 {
			w.due = now.Add(after)
		}
		m.note(priority)
		m.enter(w)
		return
	}
	raised := priority > w.priority
	if raised {
		m.note(priority)
		w.priority = priority
	}
	switch due := now.Add(after); {
	case w.due.IsZero():
		if raised {
			m.enter(w)
		}
	case after <= 0:
		w.due = time.Time{}
		m.enter(w)
	case due.Before(w.due):
		w.due = due
	}
}

// note has a priority be one that is in use.
func (m *model) note(priority int) {
	if _, ok := m.served[priority]; !ok {
		m.served[priority] = m.turn
	}
}

// enter makes a wait the last, and its class one that takes turns if it can be popped.
func (m *model) enter(w *wait) {
	m.waits = append(slices.DeleteFunc(m.waits, func(x *wait) bool { return x == w }), w)
	class, ring := classOf(w.key), m.rings[w.priority]
	if m.ready(w) && !slices.Contains(ring, class) {
		m.rings[w.priority] = append(ring, class)
	}
}

func (m *model) ready(w *wait) bool { return w.due.IsZero() && !m.inWork[w.key] }

// mature makes ready what is due, in the order of time; it comes before adds and pops.
func (m *model) mature(now time.Time) {
	matured := slices.DeleteFunc(slices.Clone(m.waits), func(w *wait) bool {
		return w.due.IsZero() || w.due.After(now)
	})
	slices.SortStableFunc(matured, func(a, b *wait) int { return a.due.Compare(b.due) })
	for _, w := range matured {
		w.due = time.Time{}
		m.enter(w)
	}
}

func (m *model) pop() (string, bool) {
	priority, ok := m.choose()
	for ok {
		class := m.rings[priority][0]
		m.rings[priority] = m.rings[priority][1:]
		of := func(w *wait) bool {
			return m.ready(w) && w.priority == priority && classOf(w.key) == class
		}
		i := slices.IndexFunc(m.waits, of)
		if i < 0 {
			continue // its keys have got a higher priority
		}
		w := m.waits[i]
		m.waits = slices.Delete(m.waits, i, i+1)
		if slices.ContainsFunc(m.waits, of) {
			m.rings[priority] = append(m.rings[priority], class)
		}
		m.inWork[w.key] = true
		return w.key, true
	}
	return "", false
}

// choose returns the priority to pop from.
func (m *model) choose() (int, bool) {
	var priorities []int
	for _, w := range m.waits {
		if m.ready(w) && !slices.Contains(priorities, w.priority) {
			priorities = append(priorities, w.priority)
		}
	}
	if len(priorities) == 0 {
		return 0, false
	}
	slices.SortFunc(priorities, func(a, b int) int { return cmp.Compare(b, a) })
	if lower := priorities[1:]; len(lower) > 0 {
		if m.turn++; m.turn%8 == 0 {
			slices.SortStableFunc(lower, func(a, b int) int { return cmp.Compare(m.served[a], m.served[b]) })
			m.served[lower[0]] = m.turn
			return lower[0], true
		}
	}
	return priorities[0], true
}

func (m *model) done(key string) {
	delete(m.inWork, key)
	// A key that became ready in work becomes so now.
	if w := m.find(key); w != nil && w.due.IsZero() {
		m.enter(w)
	}
}

func TestQueueIsItsModel(t *testing.T) {
	for seed := range uint64(200) {
		if steps, err := runModel(seed, 2000); err != nil {
			// The shortest failing run is a prefix: report the last steps of it.
			t.Fatalf("seed %d, after %d steps: %v", seed, len(steps), err)
		}
	}
}

func runModel(seed uint64, n int) (steps []string, err error) {
	random := rand.New(rand.NewPCG(seed, 1))
	clock := &handClock{}
	q := workqueue.New(workqueue.Options[string]{Clock: clock, Class: classOf})
	defer q.ShutDown()
	m := &model{inWork: map[string]bool{}, rings: map[int][]string{}, served: map[int]int{}}
	var working []string
	for range n {
		key := string(rune('a' + random.IntN(8)))
		// Distinct delays, so that no two keys become ready in the same instant.
		after := time.Duration(random.IntN(1<<30)) * time.Duration(random.IntN(2))
		priority := random.IntN(4) - 1
		var step string
		what := random.IntN(6)
		if what < 4 {
			m.mature(clock.Now())
		}
		switch what {
		case 0, 1:
			step = fmt.Sprintf("add %s after %v at %d", key, after, priority)
			q.AddWith(workqueue.AddOptions{After: after, Priority: priority}, key)
			m.add(clock.Now(), key, after, priority)
		case 2, 3:
			got, _, ok := q.TryGet()
			want, wantOK := m.pop()
			step = fmt.Sprintf("pop %s", want)
			if got != want || ok != wantOK {
				return steps, fmt.Errorf("popped %q, the model %q; steps:\n%q", got, want, steps[max(0, len(steps)-20):])
			}
			if ok {
				working = append(working, got)
			}
		case 4:
			if len(working) == 0 {
				continue
			}
			i := random.IntN(len(working))
			step = "done " + working[i]
			q.Done(working[i])
			m.done(working[i])
			working = slices.Delete(working, i, i+1)
		case 5:
			step = "step"
			clock.Step(time.Duration(random.IntN(1 << 28)))
		}
		steps = append(steps, step)
	}
	return steps, nil
}
