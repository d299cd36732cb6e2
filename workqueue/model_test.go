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
}

type wait struct {
	key      string
	priority int
	due      time.Time // zero: ready
	since    time.Time
}

func (m *model) add(now time.Time, key string, after time.Duration, priority int) {
	i := slices.IndexFunc(m.waits, func(w *wait) bool { return w.key == key })
	if i < 0 {
		w := &wait{key: key, priority: priority, since: now}
		if after > 0 {
			w.due = now.Add(after)
		}
		m.waits = append(m.waits, w)
		return
	}
	w := m.waits[i]
	toEnd := priority > w.priority
	w.priority = max(w.priority, priority)
	switch due := now.Add(after); {
	case w.due.IsZero():
	case after <= 0:
		w.due, w.since, toEnd = time.Time{}, now, true
	case due.Before(w.due):
		w.due = due
	}
	if toEnd {
		m.waits = append(slices.Delete(m.waits, i, i+1), w)
	}
}

// mature makes ready what is due, in the order of time; it comes before adds and pops.
func (m *model) mature(now time.Time) {
	matured := slices.DeleteFunc(slices.Clone(m.waits), func(w *wait) bool {
		return w.due.IsZero() || w.due.After(now)
	})
	slices.SortStableFunc(matured, func(a, b *wait) int { return a.due.Compare(b.due) })
	for _, w := range matured {
		m.waits = append(slices.DeleteFunc(m.waits, func(x *wait) bool { return x == w }), w)
		w.since, w.due = w.due, time.Time{}
	}
}

func (m *model) pop() (string, bool) {
	ready := slices.DeleteFunc(slices.Clone(m.waits), func(w *wait) bool {
		return !w.due.IsZero() || m.inWork[w.key]
	})
	if len(ready) == 0 {
		return "", false
	}
	slices.SortStableFunc(ready, func(a, b *wait) int { return cmp.Compare(b.priority, a.priority) })
	next := ready[0]
	if heads := headsBelow(ready); len(heads) > 0 {
		if m.turn++; m.turn%8 == 0 {
			next = slices.MinFunc(heads, func(a, b *wait) int { return a.since.Compare(b.since) })
		}
	}
	m.waits = slices.DeleteFunc(m.waits, func(x *wait) bool { return x == next })
	m.inWork[next.key] = true
	return next.key, true
}

// headsBelow returns the first key of each priority but the highest.
func headsBelow(ready []*wait) []*wait {
	var heads []*wait
	for i := 1; i < len(ready); i++ {
		if ready[i].priority != ready[i-1].priority {
			heads = append(heads, ready[i])
		}
	}
	return heads
}

func (m *model) done(key string) {
	delete(m.inWork, key)
	// A key that became ready in work becomes so now.
	i := slices.IndexFunc(m.waits, func(w *wait) bool { return w.key == key && w.due.IsZero() })
	if i >= 0 {
		w := m.waits[i]
		m.waits = append(slices.Delete(m.waits, i, i+1), w)
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
	q := workqueue.New(workqueue.Options[string]{Clock: clock})
	defer q.ShutDown()
	m := &model{inWork: map[string]bool{}}
	var working []string
	for range n {
		key := string(rune('a' + random.IntN(8)))
		// Distinct delays, so that no two keys become ready in the same instant.
		after := time.Duration(random.IntN(1<<30)) * time.Duration(random.IntN(2))
		priority := random.IntN(3) - 1
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
