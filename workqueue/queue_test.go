package workqueue_test

import (
	"errors"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	testclock "k8s.io/utils/clock/testing"

	"github.com/setpoint-dev/setpoint/workqueue"
)

type queue = workqueue.Queue[string]

// handClock is moved by hand. Its timers never fire, so that nothing happens but by the test's steps.
type handClock struct {
	clock.RealClock
	nanos atomic.Int64
}

func (c *handClock) Now() time.Time                  { return time.Unix(0, c.nanos.Load()) }
func (c *handClock) Since(t time.Time) time.Duration { return c.Now().Sub(t) }
func (c *handClock) NewTimer(time.Duration) clock.Timer {
	return stoppedTimer{c.RealClock.NewTimer(1000 * time.Hour)}
}
func (c *handClock) Step(d time.Duration) { c.nanos.Add(int64(d)) }

// stoppedTimer can't be set.
type stoppedTimer struct{ clock.Timer }

func (stoppedTimer) Reset(time.Duration) bool { return false }

func newQueue(t *testing.T, opts workqueue.Options[string]) (*queue, *handClock) {
	t.Helper()
	clock := &handClock{}
	opts.Clock = clock
	q := workqueue.New(opts)
	t.Cleanup(q.ShutDown)
	return q, clock
}

// take returns every key that is ready now, and is done with each.
func take(q *queue) []string {
	var keys []string
	for {
		key, _, ok := q.TryGet()
		if !ok {
			return keys
		}
		keys = append(keys, key)
		defer q.Done(key)
	}
}

func wantTaken(t *testing.T, q *queue, want ...string) {
	t.Helper()
	if diff := cmp.Diff(want, take(q)); diff != "" {
		t.Errorf("ready keys (-want +got):\n%s", diff)
	}
}

func TestEqualWaitingKeysCollapse(t *testing.T) {
	q, _ := newQueue(t, workqueue.Options[string]{})
	for _, key := range []string{"a", "b", "a", "a", "b"} {
		q.Add(key)
	}
	if q.Len() != 2 {
		t.Errorf("Len() = %d, want 2", q.Len())
	}
	wantTaken(t, q, "a", "b")
	wantTaken(t, q)
}

func TestKeyAddedInWorkRunsAgainAfterDone(t *testing.T) {
	q, _ := newQueue(t, workqueue.Options[string]{})
	q.Add("a")
	q.TryGet()
	q.Add("a")
	q.Add("a")
	if _, _, ok := q.TryGet(); ok {
		t.Fatal("a key in work was handed out a second time")
	}
	q.Done("a")
	wantTaken(t, q, "a")
	wantTaken(t, q)
}

func TestDoneOfWhatIsNotInWorkIsIgnored(t *testing.T) {
	q, _ := newQueue(t, workqueue.Options[string]{})
	q.Add("a")
	q.Done("a")
	q.Done("b")
	wantTaken(t, q, "a")
}

func TestB115_BackoffDoublesToItsBoundAndNeverOverflows(t *testing.T) {
	q, clock := newQueue(t, workqueue.Options[string]{RetriesPerSecond: -1})
	last := time.Duration(0)
	for n := range 10_000 {
		q.AddRateLimited("a")
		keys := q.Keys()
		wait := keys[0].Next.Sub(clock.Now())
		if wait <= 0 || wait < last || wait > 1000*time.Second {
			t.Fatalf("failure %d waits %v after %v", n+1, wait, last)
		}
		if n == 3 && wait != 40*time.Millisecond {
			t.Errorf("fourth failure waits %v, want 40ms", wait)
		}
		last = wait
		clock.Step(wait)
		wantTaken(t, q, "a")
	}
	if last != 1000*time.Second {
		t.Errorf("the longest wait is %v, want 1000s", last)
	}
	q.Forget("a")
	if n := len(q.Keys()); n != 0 || q.NumRequeues("a") != 0 {
		t.Errorf("%d keys and %d failures remembered after Forget", n, q.NumRequeues("a"))
	}
}

func TestB116_QueuesShareNoFailures(t *testing.T) {
	q1, _ := newQueue(t, workqueue.Options[string]{})
	q2, _ := newQueue(t, workqueue.Options[string]{})
	q1.AddRateLimited("a")
	q2.AddRateLimited("a")
	q2.Forget("a")
	if q1.NumRequeues("a") != 1 || q2.NumRequeues("a") != 0 {
		t.Errorf("failures %d and %d, want 1 and 0", q1.NumRequeues("a"), q2.NumRequeues("a"))
	}
}

func TestB118_AddAfterKeepsTheEarliest(t *testing.T) {
	for _, delays := range [][]time.Duration{
		{10 * time.Second, time.Second},
		{time.Second, 10 * time.Second},
	} {
		q, clock := newQueue(t, workqueue.Options[string]{})
		for _, d := range delays {
			q.AddAfter("a", d)
		}
		clock.Step(time.Second - 1)
		wantTaken(t, q)
		clock.Step(1)
		wantTaken(t, q, "a")
		clock.Step(time.Minute)
		wantTaken(t, q)
	}
}

func TestB118_AddNowReplacesADelay(t *testing.T) {
	q, clock := newQueue(t, workqueue.Options[string]{})
	q.AddAfter("a", time.Second)
	q.Add("a")
	wantTaken(t, q, "a")
	clock.Step(time.Minute)
	wantTaken(t, q)
}

func TestDelayOfAKeyInWorkHoldsAfterDone(t *testing.T) {
	q, clock := newQueue(t, workqueue.Options[string]{})
	q.Add("a")
	q.TryGet()
	q.AddAfter("a", time.Second)
	q.Done("a")
	wantTaken(t, q)
	clock.Step(time.Second)
	wantTaken(t, q, "a")
}

func TestTokenBucketBoundsRetriesOfAllKeys(t *testing.T) {
	q, clock := newQueue(t, workqueue.Options[string]{RetriesPerSecond: 10, RetriesBurst: 3})
	for _, key := range []string{"a", "b", "c", "d", "e"} {
		q.AddRateLimited(key)
	}
	q.Add("fresh")
	wantTaken(t, q, "fresh")
	clock.Step(5 * time.Millisecond)
	wantTaken(t, q, "a", "b", "c")
	clock.Step(95 * time.Millisecond)
	wantTaken(t, q, "d")
	clock.Step(100 * time.Millisecond)
	wantTaken(t, q, "e")
}

func TestB120_HigherPriorityFirstAndOneInEightForTheRest(t *testing.T) {
	q, clock := newQueue(t, workqueue.Options[string]{})
	low := workqueue.AddOptions{Priority: -100}
	q.AddWith(low, "low1", "low2")
	served := map[string]int{}
	// Fresh keys arrive at 120 % of what is served, for ever.
	for n := 1; served["low2"] == 0; n++ {
		clock.Step(time.Millisecond)
		q.Add("fresh" + time.Duration(2*n).String())
		q.Add("fresh" + time.Duration(2*n+1).String())
		key, _, _ := q.TryGet()
		q.Done(key)
		served[key] = n
		if n > 100 {
			t.Fatal("a key of low priority is starved")
		}
	}
	if served["low1"] < 8 || served["low2"] > 16 {
		t.Errorf("low keys served as number %d and %d, want 8 and 16", served["low1"], served["low2"])
	}
}

func TestFreshChangeRaisesAKeyOfLowPriority(t *testing.T) {
	q, _ := newQueue(t, workqueue.Options[string]{})
	q.AddWith(workqueue.AddOptions{Priority: -100}, "a", "b", "c")
	q.Add("c")
	wantTaken(t, q, "c", "a", "b")
}

func TestManyPriorities(t *testing.T) {
	q, _ := newQueue(t, workqueue.Options[string]{})
	for p := range 100 {
		q.AddWith(workqueue.AddOptions{Priority: p}, "p")
		if _, got, ok := q.TryGet(); !ok || got != p {
			t.Fatalf("priority %d, want %d", got, p)
		}
		q.Done("p")
	}
}

func TestGetWakesWhenADelayEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := workqueue.New(workqueue.Options[string]{})
		defer q.ShutDown()
		start := time.Now()
		q.AddAfter("late", time.Hour)
		q.AddAfter("soon", time.Second)
		for _, want := range []string{"soon", "late"} {
			if key, _ := q.Get(); key != want {
				t.Errorf("got %s, want %s", key, want)
			}
		}
		if took := time.Since(start); took != time.Hour {
			t.Errorf("took %v, want 1h", took)
		}
	})
}

// A clock that is moved by hand waits for those who do not receive what its timers sent: the queue's
// timer fires while the queue is told of an earlier key.
func TestClockMovedByHandIsNeverHeldUp(t *testing.T) {
	clock := testclock.NewFakeClock(time.Unix(0, 0))
	q := workqueue.New(workqueue.Options[int]{Clock: clock})
	moved := make(chan struct{})
	go func() {
		defer close(moved)
		for key := range 100_000 {
			q.AddAfter(key, time.Millisecond)
			clock.Step(time.Millisecond)
		}
	}()
	select {
	case <-moved:
	case <-t.Context().Done():
	case <-time.After(time.Minute):
		t.Fatal("the clock stands still")
	}
}

func TestShutDownReturnsWhatIsReadyAndDropsTheRest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := workqueue.New(workqueue.Options[string]{})
		q.Add("a")
		q.AddAfter("later", time.Second)
		q.ShutDown()
		q.Add("ignored")
		if key, shutdown := q.Get(); key != "a" || shutdown {
			t.Errorf("Get() = %s, %v", key, shutdown)
		}
		if _, shutdown := q.Get(); !shutdown {
			t.Error("Get() did not say shutdown")
		}
		if !q.ShuttingDown() {
			t.Error("ShuttingDown() = false")
		}
	})
}

func TestDrainWaitsForWorkAndForWhatBecameDirtyInIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := workqueue.New(workqueue.Options[string]{})
		q.Add("a")
		q.Get()
		q.Add("a")
		var drained atomic.Bool
		go func() {
			q.ShutDownWithDrain()
			drained.Store(true)
		}()
		synctest.Wait()
		q.Done("a")
		synctest.Wait()
		if drained.Load() {
			t.Fatal("drained before the second run of a")
		}
		if key, shutdown := q.Get(); key != "a" || shutdown {
			t.Fatalf("Get() = %s, %v", key, shutdown)
		}
		q.Done("a")
		synctest.Wait()
		if !drained.Load() {
			t.Fatal("not drained")
		}
	})
}

func TestKeysTellWhyEachWaits(t *testing.T) {
	q, clock := newQueue(t, workqueue.Options[string]{})
	start := clock.Now()
	why := workqueue.Reason{Event: "updated", Kind: "Pod", Object: types.NamespacedName{Namespace: "x", Name: "y"}}
	q.AddWith(workqueue.AddOptions{Reason: why}, "ready")
	q.AddWith(workqueue.AddOptions{Reason: why}, "ready")
	clock.Step(time.Second)
	failure := errors.New("no such image")
	q.Fail("failing", failure, 0)
	q.Add("work")
	// The first ready key is "ready"; put it back behind "work".
	q.TryGet()
	q.Add("ready")

	got := q.Keys()
	want := []workqueue.Key[string]{
		{Key: "ready", State: workqueue.Dirty, Since: start.Add(time.Second), Adds: 1},
		{Key: "failing", State: workqueue.Delayed, Since: start.Add(time.Second), Adds: 1,
			Next: start.Add(time.Second + 5*time.Millisecond), Failures: 1, LastError: failure},
		{Key: "work", State: workqueue.Ready, Since: start.Add(time.Second), Adds: 1},
	}
	byKey := map[string]workqueue.Key[string]{}
	for _, k := range got {
		byKey[k.Key] = k
	}
	for _, w := range want {
		same := cmp.Comparer(func(a, b error) bool { return errors.Is(a, b) })
		if diff := cmp.Diff(w, byKey[w.Key], same); diff != "" {
			t.Errorf("%s (-want +got):\n%s", w.Key, diff)
		}
	}
	if why.String() != "Pod x/y updated" {
		t.Errorf("reason reads %q", why)
	}
}

func TestReasonsAreDistinctAndBounded(t *testing.T) {
	q, _ := newQueue(t, workqueue.Options[string]{})
	for n := range 1000 {
		q.AddWith(workqueue.AddOptions{Reason: workqueue.Reason{Event: strings.Repeat("e", n%20+1)}}, "a")
	}
	k := q.Keys()[0]
	if len(k.Reasons) != 8 || k.Adds != 1000 {
		t.Errorf("%d reasons of %d adds, want 8 of 1000", len(k.Reasons), k.Adds)
	}
}

func TestMetrics(t *testing.T) {
	q, clock := newQueue(t, workqueue.Options[string]{Name: "web"})
	q.Add("a")
	q.Add("b")
	clock.Step(2 * time.Second)
	q.TryGet()
	clock.Step(3 * time.Second)
	q.AddRateLimited("c")
	got := map[string]float64{}
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(q)
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		m := family.GetMetric()[0]
		got[family.GetName()] = m.GetGauge().GetValue() + m.GetCounter().GetValue() +
			m.GetHistogram().GetSampleSum()
	}
	want := map[string]float64{
		"workqueue_adds_total":                        2,
		"workqueue_delayed":                           1,
		"workqueue_depth":                             1,
		"workqueue_longest_running_processor_seconds": 3,
		"workqueue_oldest_age_seconds":                5,
		"workqueue_queue_duration_seconds":            2,
		"workqueue_retries_total":                     1,
		"workqueue_unfinished_work_seconds":           3,
		"workqueue_work_duration_seconds":             0,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("metrics (-want +got):\n%s", diff)
	}
}

// No key is lost and none is worked on twice at once, however many add and work.
// TestB121_EveryAddInARunLeadsToALaterRun does what workers and watches do in any order, from a seed: no add,
// in whatever way and whatever becomes of the run that it falls into, is lost.
func TestB121_EveryAddInARunLeadsToALaterRun(t *testing.T) {
	for seed := range uint64(200) {
		random := rand.New(rand.NewPCG(seed, 121))
		q, clock := newQueue(t, workqueue.Options[string]{DelayMax: time.Minute})
		keys := []string{"a", "b", "c", "d"}
		owed := map[string]string{} // key to the last add that no run has followed
		inWork := map[string]bool{}
		get := func() bool {
			key, _, ok := q.TryGet()
			if ok {
				delete(owed, key)
				inWork[key] = true
			}
			return ok
		}
		for range 300 {
			key := keys[random.IntN(len(keys))]
			switch op := random.IntN(9); {
			case op == 0:
				q.Add(key)
				owed[key] = "Add"
			case op == 1:
				q.AddAfter(key, time.Duration(random.IntN(3000))*time.Millisecond)
				owed[key] = "AddAfter"
			case op == 2:
				q.Fail(key, errors.New("failed"), random.IntN(3)-1)
				owed[key] = "Fail"
			case op == 3:
				q.AddWith(workqueue.AddOptions{Priority: random.IntN(5) - 2, After: time.Duration(random.IntN(2))}, key)
				owed[key] = "AddWith"
			case op == 4:
				q.Forget(key)
			case op == 5 && inWork[key]:
				delete(inWork, key)
				q.Done(key)
			case op == 6:
				clock.Step(time.Duration(random.IntN(2000)) * time.Millisecond)
			default:
				get()
			}
		}
		for key := range inWork {
			q.Done(key)
		}
		for range 10 {
			for clock.Step(time.Minute); get(); {
			}
			for key := range inWork {
				delete(inWork, key)
				q.Done(key)
			}
		}
		if len(owed) > 0 {
			t.Errorf("seed %d: no run followed on %v", seed, owed)
		}
	}
}

func TestConcurrentAddsAndWorkers(t *testing.T) {
	q := workqueue.New(workqueue.Options[int]{})
	const keys, adders, rounds = 50, 4, 2000
	var added, seen [keys]atomic.Int64
	var inWork [keys]atomic.Bool
	var workers, adding sync.WaitGroup
	for range 4 {
		workers.Go(func() {
			for {
				key, shutdown := q.Get()
				if shutdown {
					return
				}
				if inWork[key].Swap(true) {
					t.Errorf("key %d is worked on twice at once", key)
				}
				// What was added before this point is seen by this run.
				seen[key].Store(added[key].Load())
				inWork[key].Store(false)
				q.Done(key)
			}
		})
	}
	for a := range adders {
		adding.Go(func() {
			for n := range rounds {
				key := (n*7 + a) % keys
				added[key].Add(1)
				if n%5 == 0 {
					q.AddAfter(key, time.Microsecond)
				}
				q.Add(key)
			}
		})
	}
	adding.Wait()
	q.ShutDownWithDrain()
	workers.Wait()
	for key := range keys {
		if added[key].Load() != seen[key].Load() {
			t.Errorf("key %d: %d adds, the last run saw %d", key, added[key].Load(), seen[key].Load())
		}
	}
}
