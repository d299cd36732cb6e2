package workqueue_test

import (
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	upstream "k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"

	"github.com/setpoint-dev/setpoint/workqueue"
)

// What users of client-go's and of controller-runtime's queues rely on. Each behaviour is tried on
// the queue that is known for it, too: what fails there is not one.

type anyQueue = upstream.TypedRateLimitingInterface[string]

func exponential() upstream.TypedRateLimiter[string] {
	return upstream.NewTypedItemExponentialFailureRateLimiter[string](time.Millisecond, time.Second)
}

func clientGos() anyQueue { return upstream.NewTypedRateLimitingQueue(exponential()) }

func controllerRuntimes() anyQueue {
	return priorityqueue.New("q", func(o *priorityqueue.Opts[string]) { o.RateLimiter = exponential() })
}

func ours() anyQueue {
	return workqueue.New(workqueue.Options[string]{RateLimiter: exponential()})
}

func behavesLike(t *testing.T, theirs func() anyQueue, behaviours map[string]func(*testing.T, anyQueue)) {
	for name, behaviour := range behaviours {
		for of, queue := range map[string]func() anyQueue{"theirs": theirs, "ours": ours} {
			t.Run(name+"/"+of, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					q := queue()
					defer func() {
						// client-go's has to be told even after a drain, and controller-runtime's never twice.
						if _, once := q.(priorityqueue.PriorityQueue[string]); !once || !q.ShuttingDown() {
							q.ShutDown()
						}
					}()
					behaviour(t, q)
				})
			})
		}
	}
}

// get pops a key and expects it to be there within no time, or shutdown.
func get(t *testing.T, q anyQueue, want string) {
	t.Helper()
	var got string
	var shutdown atomic.Bool
	popped := make(chan struct{})
	go func() {
		key, down := q.Get()
		got = key
		shutdown.Store(down)
		close(popped)
	}()
	synctest.Wait()
	select {
	case <-popped:
	default:
		t.Fatalf("Get blocks, want %q", want)
	}
	if shutdown.Load() {
		got = "shutdown"
	}
	if got != want {
		t.Fatalf("Get() = %q, want %q", got, want)
	}
}

func wantLen(t *testing.T, q anyQueue, want int) {
	t.Helper()
	synctest.Wait()
	if n := q.Len(); n != want {
		t.Fatalf("Len() = %d, want %d", n, want)
	}
}

// begin begins something in the background; what it returns tells whether it has ended.
func begin(f func()) (ended func() bool) {
	var done atomic.Bool
	go func() {
		f()
		done.Store(true)
	}()
	return func() bool {
		synctest.Wait()
		return done.Load()
	}
}

func TestBehavesLikeClientGo(t *testing.T) {
	behavesLike(t, clientGos, map[string]func(*testing.T, anyQueue){
		"many producers and consumers": func(t *testing.T, q anyQueue) {
			producersAndConsumers(t, q, q.ShutDown)
		},
		"many, drained": func(t *testing.T, q anyQueue) {
			producersAndConsumers(t, q, q.ShutDownWithDrain)
		},
		"Len counts no key twice and none in work": func(t *testing.T, q anyQueue) {
			q.Add("a")
			q.Add("b")
			q.Add("a")
			wantLen(t, q, 2)
			get(t, q, "a")
			q.Add("a")
			wantLen(t, q, 1)
		},
		"a key that is added in work comes once after it": func(t *testing.T, q anyQueue) {
			q.Add("a")
			get(t, q, "a")
			q.Add("a")
			q.Add("a")
			again := begin(func() { key, _ := q.Get(); q.Done(key) })
			if again() {
				t.Fatal("handed out twice at once")
			}
			q.Done("a")
			if !again() {
				t.Fatal("not handed out again")
			}
			wantLen(t, q, 0)
		},
		"a drain waits for keys in work, Get does not": func(t *testing.T, q anyQueue) {
			q.Add("a")
			q.Add("b")
			get(t, q, "a")
			get(t, q, "b")
			drained := begin(q.ShutDownWithDrain)
			get(t, q, "shutdown")
			q.Done("a")
			if drained() {
				t.Fatal("drained with b in work")
			}
			q.Done("b")
			if !drained() {
				t.Fatal("not drained")
			}
		},
		"a drain waits for what became dirty": func(t *testing.T, q anyQueue) {
			q.Add("a")
			get(t, q, "a")
			q.Add("a")
			drained := begin(q.ShutDownWithDrain)
			get(t, q, "shutdown")
			q.Done("a")
			get(t, q, "a")
			q.Done("a")
			get(t, q, "shutdown")
			if !drained() {
				t.Fatal("not drained")
			}
		},
		"ShutDown waits for nothing": func(t *testing.T, q anyQueue) {
			q.Add("a")
			get(t, q, "a")
			q.ShutDown()
			get(t, q, "shutdown")
		},
		"ShutDown ends a drain": func(t *testing.T, q anyQueue) {
			q.Add("a")
			get(t, q, "a")
			drained := begin(q.ShutDownWithDrain)
			get(t, q, "shutdown")
			q.ShutDown()
			if !drained() {
				t.Fatal("the drain goes on")
			}
		},
		"what is ready at ShutDown is handed out, and what comes later is not": func(t *testing.T, q anyQueue) {
			q.Add("a")
			q.AddAfter("later", time.Millisecond)
			q.ShutDown()
			q.Add("b")
			<-time.After(time.Second)
			get(t, q, "a")
			get(t, q, "shutdown")
			if !q.ShuttingDown() {
				t.Error("ShuttingDown() = false")
			}
		},
		"AddAfter": func(t *testing.T, q anyQueue) {
			q.AddAfter("a", 50*time.Millisecond)
			wantLen(t, q, 0)
			<-time.After(60 * time.Millisecond)
			get(t, q, "a")
			q.Done("a")
			<-time.After(10 * time.Second)
			wantLen(t, q, 0)
		},
		"AddAfter of nothing is Add": func(t *testing.T, q anyQueue) {
			q.AddAfter("a", 0)
			get(t, q, "a")
			q.AddAfter("b", -time.Second)
			get(t, q, "b")
		},
		"of several delays the shortest holds, once": func(t *testing.T, q anyQueue) {
			q.AddAfter("a", 70*time.Millisecond)
			q.AddAfter("a", 50*time.Millisecond)
			q.AddAfter("a", 90*time.Millisecond)
			<-time.After(60 * time.Millisecond)
			get(t, q, "a")
			q.Done("a")
			<-time.After(time.Minute)
			wantLen(t, q, 0)
		},
		"keys come in the order of their delays": func(t *testing.T, q anyQueue) {
			q.AddAfter("c", 3*time.Second)
			q.AddAfter("a", time.Second)
			q.AddAfter("b", 2*time.Second)
			<-time.After(time.Minute)
			for _, key := range []string{"a", "b", "c"} {
				get(t, q, key)
			}
		},
		"AddRateLimited delays by the limiter until Forget": func(t *testing.T, q anyQueue) {
			for n, wait := range []time.Duration{1, 2, 4, 8} {
				q.AddRateLimited("a")
				if q.NumRequeues("a") != n+1 {
					t.Fatalf("%d requeues, want %d", q.NumRequeues("a"), n+1)
				}
				<-time.After(wait*time.Millisecond - 1)
				wantLen(t, q, 0)
				<-time.After(1)
				get(t, q, "a")
				q.Done("a")
			}
			q.Forget("a")
			if q.NumRequeues("a") != 0 {
				t.Fatalf("%d requeues after Forget", q.NumRequeues("a"))
			}
			q.AddRateLimited("a")
			<-time.After(time.Millisecond)
			get(t, q, "a")
		},
	})
}

// producersAndConsumers has every key be worked on after its last add, and none after shutdown.
func producersAndConsumers(t *testing.T, q anyQueue, shutDown func()) {
	var producers, consumers sync.WaitGroup
	var worked sync.Map
	for i := range 50 {
		producers.Go(func() {
			for range 50 {
				q.Add(fmt.Sprint(i))
				<-time.After(time.Millisecond)
			}
		})
	}
	for range 10 {
		consumers.Go(func() {
			readded := map[string]bool{}
			for {
				key, shutdown := q.Get()
				if shutdown {
					return
				}
				worked.Store(key, true)
				<-time.After(3 * time.Millisecond)
				if !readded[key] {
					readded[key] = true
					q.Add(key)
				}
				q.Done(key)
			}
		})
	}
	producers.Wait()
	shutDown()
	q.Add("after shutdown")
	consumers.Wait()
	if _, found := worked.Load("after shutdown"); found {
		t.Error("a key was taken after shutdown")
	}
	for i := range 50 {
		if _, found := worked.Load(fmt.Sprint(i)); !found {
			t.Errorf("key %d was never worked on", i)
		}
	}
	wantLen(t, q, 0)
}

func TestBehavesLikeControllerRuntimes(t *testing.T) {
	with := func(q anyQueue, o priorityqueue.AddOpts, keys ...string) {
		q.(priorityqueue.PriorityQueue[string]).AddWithOpts(o, keys...)
		synctest.Wait()
	}
	priority := func(p int) priorityqueue.AddOpts { return priorityqueue.AddOpts{Priority: &p} }
	pop := func(t *testing.T, q anyQueue, want string, wantPriority int) {
		t.Helper()
		synctest.Wait()
		key, got, _ := q.(priorityqueue.PriorityQueue[string]).GetWithPriority()
		if key != want || got != wantPriority {
			t.Fatalf("got %q of priority %d, want %q of %d", key, got, want, wantPriority)
		}
	}
	behavesLike(t, controllerRuntimes, map[string]func(*testing.T, anyQueue){
		"in order": func(t *testing.T, q anyQueue) {
			with(q, priorityqueue.AddOpts{}, "a", "b", "a", "c")
			for _, key := range []string{"a", "b", "c"} {
				pop(t, q, key, 0)
			}
		},
		"a key in work is passed over until it is done": func(t *testing.T, q anyQueue) {
			q.Add("a")
			pop(t, q, "a", 0)
			q.Add("a")
			q.Add("b")
			pop(t, q, "b", 0)
			q.Done("a")
			pop(t, q, "a", 0)
		},
		"the highest priority holds": func(t *testing.T, q anyQueue) {
			with(q, priority(1), "a")
			with(q, priority(2), "a")
			with(q, priority(-1), "a")
			pop(t, q, "a", 2)
			wantLen(t, q, 0)
		},
		"a key that is raised goes first": func(t *testing.T, q anyQueue) {
			with(q, priority(0), "a", "b", "c")
			with(q, priority(1), "c")
			wantLen(t, q, 3)
			pop(t, q, "c", 1)
			pop(t, q, "a", 0)
		},
		"but behind those that had the priority": func(t *testing.T, q anyQueue) {
			with(q, priority(0), "a")
			with(q, priority(1), "b")
			with(q, priority(1), "a")
			pop(t, q, "b", 1)
			pop(t, q, "a", 1)
		},
		"a delay keeps its priority": func(t *testing.T, q anyQueue) {
			with(q, priority(-100), "low")
			high := priority(0)
			high.After = time.Second
			with(q, high, "high")
			<-time.After(time.Second)
			pop(t, q, "high", 0)
		},
		"equal delays end in the order of adds": func(t *testing.T, q anyQueue) {
			for i := range 100 {
				with(q, priorityqueue.AddOpts{After: time.Second}, fmt.Sprint(i))
			}
			<-time.After(time.Second)
			for i := range 100 {
				pop(t, q, fmt.Sprint(i), 0)
			}
		},
		"an add without a delay ends one": func(t *testing.T, q anyQueue) {
			with(q, priorityqueue.AddOpts{After: time.Hour}, "a")
			wantLen(t, q, 0)
			with(q, priority(1), "a")
			pop(t, q, "a", 1)
		},
		"a delay does not take back an add": func(t *testing.T, q anyQueue) {
			with(q, priorityqueue.AddOpts{}, "a")
			with(q, priorityqueue.AddOpts{After: time.Hour}, "a")
			pop(t, q, "a", 0)
		},
		"of a delay and a failure's the shorter holds": func(t *testing.T, q anyQueue) {
			with(q, priorityqueue.AddOpts{After: time.Hour, RateLimited: true}, "a")
			<-time.After(time.Millisecond)
			pop(t, q, "a", 0)
		},
		"ShutDown wakes who waits": func(t *testing.T, q anyQueue) {
			woken := begin(func() { q.Get() })
			if woken() {
				t.Fatal("Get returned without a key")
			}
			q.ShutDown()
			if !woken() {
				t.Fatal("Get waits on")
			}
			get(t, q, "shutdown")
		},
	})
}

// A key that is done is not kept from the garbage collector, whatever it holds.
func TestKeysThatAreDoneAreCollected(t *testing.T) {
	type big struct{ _ [1 << 20]byte }
	q := workqueue.New(workqueue.Options[*big]{})
	defer q.ShutDown()
	const keys = 10
	collected := make(chan struct{}, keys)
	for range keys {
		key := new(big)
		runtime.AddCleanup(key, func(int) { collected <- struct{}{} }, 0)
		q.AddWith(workqueue.AddOptions{Reason: workqueue.Reason{Event: "test"}}, key)
		q.AddWith(workqueue.AddOptions{Priority: 1}, key) // leaves the place it had
		key, _ = q.Get()
		q.Fail(key, errBroken, 0)
		q.Forget(key)
		q.Done(key)
		key, _ = q.Get()
		q.Done(key)
	}
	q.Stats()
	for range keys {
		runtime.GC()
		select {
		case <-collected:
		case <-time.After(time.Minute):
			t.Fatal("a key is kept")
		}
	}
}

// What metrics count is what client-go counts: keys that become ready, not calls.
func TestStatsCountAsClientGosMetricsDo(t *testing.T) {
	q, clock := newQueue(t, workqueue.Options[string]{})
	q.Add("a")
	q.Add("a")                   // waits already
	q.AddAfter("b", time.Second) // not yet
	q.AddRateLimited("c")        // not yet
	got := []uint64{q.Stats().Adds, q.Stats().Retries}
	clock.Step(time.Minute)
	q.TryGet()
	q.Add("a") // in work: will be ready
	got = append(got, q.Stats().Adds, q.Stats().Retries)
	if diff := cmp.Diff([]uint64{1, 2, 4, 2}, got); diff != "" {
		t.Errorf("adds and retries before and after (-want +got):\n%s", diff)
	}
}
