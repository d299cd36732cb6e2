package workqueue_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/setpoint-dev/setpoint/workqueue"
)

var errBroken = errors.New("broken")

// work pops keys, and has those of the namespace "broken" fail, until it pops the key; it returns
// how many it popped before that.
func work(t *testing.T, q *workqueue.Queue[types.NamespacedName], until types.NamespacedName) int {
	t.Helper()
	for n := range 10_000 {
		key, priority, ok := q.TryGet()
		switch {
		case !ok:
			t.Fatalf("%s is not there after %d others", until, n)
		case key == until:
			q.Forget(key)
			q.Done(key)
			return n
		case key.Namespace == "broken":
			q.Fail(key, errBroken, priority)
		}
		q.Done(key)
	}
	t.Fatalf("%s is starved", until)
	return 0
}

func storm(q *workqueue.Queue[types.NamespacedName], keys int) {
	for i := range keys {
		q.Add(types.NamespacedName{Namespace: "broken", Name: fmt.Sprint(i)})
	}
}

func TestFailingKeysOfOneNamespaceDelayAnothersByOneGet(t *testing.T) {
	clock := &handClock{}
	q := workqueue.New(workqueue.Options[types.NamespacedName]{Clock: clock, RetriesPerSecond: -1})
	defer q.ShutDown()
	storm(q, 1000)
	quiet := types.NamespacedName{Namespace: "quiet", Name: "web"}
	for range 1000 { // through all stages of the storm's back-off
		q.Add(quiet)
		if n := work(t, q, quiet); n > 1 {
			t.Fatalf("it waited for %d keys of the other namespace, want at most 1", n)
		}
		clock.Step(5 * time.Millisecond)
		if q.Len() == 0 {
			clock.Step(1000 * time.Second)
		}
	}
}

func TestFailingKeysOfOneNamespaceDelayNoRetryOfAnother(t *testing.T) {
	clock := &handClock{}
	q := workqueue.New(workqueue.Options[types.NamespacedName]{Clock: clock})
	defer q.ShutDown()
	storm(q, 1000)
	for range 1000 {
		key, _, _ := q.TryGet()
		q.Fail(key, errBroken, 0) // far more than a budget of 100
		q.Done(key)
	}
	quiet := types.NamespacedName{Namespace: "quiet", Name: "web"}
	q.Fail(quiet, errBroken, 0)
	clock.Step(5 * time.Millisecond)
	if n := work(t, q, quiet); n > 1 {
		t.Errorf("its retry waited for %d keys of the other namespace, want at most 1", n)
	}
}

// However many namespaces fail, retries are bounded by ten budgets of one.
func TestRetriesOfAllNamespacesAreBounded(t *testing.T) {
	clock := &handClock{}
	q := workqueue.New(workqueue.Options[types.NamespacedName]{
		Clock: clock, RetriesPerSecond: 1, RetriesBurst: 2, DelayMin: time.Nanosecond, DelayMax: time.Nanosecond,
	})
	defer q.ShutDown()
	for i := range 100 {
		for _, name := range []string{"a", "b"} {
			q.Fail(types.NamespacedName{Namespace: fmt.Sprint(i), Name: name}, errBroken, 0)
		}
	}
	clock.Step(time.Microsecond)
	if q.Stats(); q.Len() != 20 {
		t.Errorf("%d keys are tried again at once, want 20", q.Len())
	}
	clock.Step(time.Second)
	if q.Stats(); q.Len() != 30 {
		t.Errorf("%d keys are tried again after a second, want 30", q.Len())
	}
}

func TestClassIsTheNamespaceOrWhatIsChosen(t *testing.T) {
	// One key of the second class, behind two of the first.
	second := func(pop func() any) any { pop(); return pop() }
	requests := workqueue.New(workqueue.Options[reconcile.Request]{})
	request := func(namespace, name string) reconcile.Request {
		return reconcile.Request{NamespacedName: types.NamespacedName{Namespace: namespace, Name: name}}
	}
	requests.Add(request("a", "1"))
	requests.Add(request("a", "2"))
	requests.Add(request("b", "1"))
	got := second(func() any { key, _, _ := requests.TryGet(); return key })
	if got != any(request("b", "1")) {
		t.Errorf("requests: second is %v, want b/1", got)
	}
	chosen := workqueue.New(workqueue.Options[int]{Class: func(key int) string { return fmt.Sprint(key % 2) }})
	for _, key := range []int{2, 4, 1} {
		chosen.Add(key)
	}
	if got := second(func() any { key, _, _ := chosen.TryGet(); return key }); got != any(1) {
		t.Errorf("chosen: second is %v, want 1", got)
	}
	none := workqueue.New(workqueue.Options[int]{})
	for _, key := range []int{2, 4, 1} {
		none.Add(key)
	}
	if got := second(func() any { key, _, _ := none.TryGet(); return key }); got != any(4) {
		t.Errorf("none: second is %v, want 4", got)
	}
}

// Priorities go before fairness, and the lower ones get their share of one in eight all the same.
func TestB120_PrioritiesHoldAcrossNamespaces(t *testing.T) {
	clock := &handClock{}
	q := workqueue.New(workqueue.Options[types.NamespacedName]{Clock: clock})
	defer q.ShutDown()
	resync := workqueue.AddOptions{Priority: -100}
	low := types.NamespacedName{Namespace: "quiet", Name: "low"}
	q.AddWith(resync, low)
	for i := range 1000 {
		q.AddWith(resync, types.NamespacedName{Namespace: fmt.Sprint("resync", i%10), Name: fmt.Sprint(i)})
	}
	fresh, lowAt := 0, 0
	for n := 1; lowAt == 0 && n <= 1000; n++ {
		// More fresh keys than are popped, of more namespaces than one.
		q.Add(types.NamespacedName{Namespace: fmt.Sprint("fresh", n%5), Name: fmt.Sprint(2 * n)})
		q.Add(types.NamespacedName{Namespace: fmt.Sprint("fresh", n%3), Name: fmt.Sprint(2*n + 1)})
		key, priority, _ := q.TryGet()
		q.Done(key)
		if priority == 0 {
			fresh++
		}
		if key == low {
			lowAt = n
		}
	}
	if lowAt != 8 || fresh != 7 {
		t.Errorf("the low key was number %d after %d fresh ones, want 8 after 7", lowAt, fresh)
	}
}

// What is remembered of namespaces does not grow with those that are gone.
func TestNamespacesThatAreGoneAreForgotten(t *testing.T) {
	clock := &handClock{}
	q := workqueue.New(workqueue.Options[types.NamespacedName]{Clock: clock})
	defer q.ShutDown()
	for i := range 100_000 {
		key := types.NamespacedName{Namespace: fmt.Sprint(i), Name: "web"}
		q.AddWith(workqueue.AddOptions{Priority: i % 20}, key)
		q.TryGet()
		if i%2 == 0 {
			q.AddRateLimited(key)
			q.Forget(key)
		}
		q.Done(key)
		clock.Step(time.Second)
		q.TryGet()
		q.Done(key)
	}
	if classes, flows, slots := q.Sizes(); classes > 200 || flows > 400 || slots > 200 {
		t.Errorf("%d classes, %d flows and %d slots are kept for no key", classes, flows, slots)
	}
}

// TestDebtsOutliveTheKeysOfAClass has a class use up its retries, have no keys any more, and fail again
// after many other classes have come and gone.
func TestDebtsOutliveTheKeysOfAClass(t *testing.T) {
	q, clock := newQueue(t, workqueue.Options[string]{
		RetriesPerSecond: 1, RetriesBurst: 1, Class: func(key string) string { return key },
	})
	for range 5 {
		q.AddRateLimited("x")
	}
	q.Add("x")
	wantTaken(t, q, "x")
	q.Forget("x")
	for i := range 1000 {
		q.Add(fmt.Sprint(i))
		take(q)
	}
	q.AddRateLimited("x")
	clock.Step(4 * time.Second)
	wantTaken(t, q)
	clock.Step(2 * time.Second)
	wantTaken(t, q, "x")
}
