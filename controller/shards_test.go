package controller_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/setpoint-dev/setpoint/controller"
	"github.com/setpoint-dev/setpoint/lease"
)

const (
	shards = 8
	keys   = 40
)

// replicas are managers that share one controller's keys, and who worked on which.
type replicas struct {
	*world
	managers map[string]*controller.Manager
	stops    map[string]func() error

	mu      sync.Mutex
	working map[string]string // by key, who works on it now
	passes  map[string]string // by key, who worked on it last, since cleared
	block   map[string]chan struct{}
}

func withLease(holder string) controller.ManagerOptions {
	return controller.ManagerOptions{
		Shards: shards,
		Lease:  &lease.Options{Namespace: "default", Name: "l", Holder: holder},
	}
}

func inShards(t *testing.T, test func(*replicas)) {
	inWorld(t, withLease("one"), func(w *world) {
		r := &replicas{
			world: w, managers: map[string]*controller.Manager{"one": w.mgr}, stops: map[string]func() error{},
			working: map[string]string{}, passes: map[string]string{}, block: map[string]chan struct{}{},
		}
		for i := range keys {
			w.must(w.live.Create(w.Context(), replicaSet(fmt.Sprint("rs", i), 1)))
		}
		test(r)
	})
}

func (r *replicas) join(name string) {
	r.Helper()
	mgr := r.managers[name]
	if mgr == nil {
		mgr = r.manager(withLease(name))
		r.managers[name] = mgr
	}
	r.must(controller.ManagedBy(mgr).For(&appsv1.ReplicaSet{}).
		WithOptions(controller.Options{MaxConcurrentReconciles: 3}).
		Complete(reconcile.Func(func(ctx context.Context, key reconcile.Request) (reconcile.Result, error) {
			return reconcile.Result{}, r.work(ctx, name, key)
		})))
	r.stops[name] = r.start(mgr)
	r.pass(time.Minute)
}

func (r *replicas) work(ctx context.Context, name string, key reconcile.Request) error {
	term, ok := lease.TermFrom(ctx)
	want := fmt.Sprintf("l-%d", lease.ShardOf(key.String(), shards))
	if !ok || term.Holder != name || term.Lease.Name != want {
		r.Errorf("%s works on %s in term %v, want one of %s", name, key, term, want)
	}
	r.mu.Lock()
	if other := r.working[key.Name]; other != "" {
		r.Errorf("%s works on %s while %s does", name, key, other)
	}
	r.working[key.Name], r.passes[key.Name] = name, name
	block := r.block[key.Name]
	r.mu.Unlock()
	if block != nil {
		<-block // it does not hear that it should end
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.working, key.Name)
	return nil
}

// took returns who worked on each key since it was last called.
func (r *replicas) took() map[string]string {
	r.mu.Lock()
	defer r.mu.Unlock()
	passes := r.passes
	r.passes = map[string]string{}
	return passes
}

// held returns how many keys are in the shards that a replica says it has.
func (r *replicas) held(name string) int {
	view := r.managers[name].Queues()[0]
	n := 0
	for i := range keys {
		if slices.Contains(view.Shards, lease.ShardOf(keyOf(fmt.Sprint("rs", i)).String(), shards)) {
			n++
		}
	}
	return n
}

func TestReplicasShareTheKeysOfAController(t *testing.T) {
	inShards(t, func(r *replicas) {
		r.join("one")
		if n := len(r.took()); n != keys {
			r.Fatalf("the only replica worked on %d keys, want all %d", n, keys)
		}
		r.join("two")
		moved := r.took()
		if n := r.held("two"); len(moved) != n || n == 0 || n == keys {
			r.Errorf("two joined: %d passes, want one for each of the %d keys it got", len(moved), n)
		}
		if by := slices.Compact(slices.Sorted(maps.Values(moved))); !slices.Equal(by, []string{"two"}) {
			r.Errorf("two joined: %v worked", by)
		}

		// Each change is for the one that has the shard.
		want := map[string]string{}
		for i := range keys {
			name := fmt.Sprint("rs", i)
			want[name] = "one"
			if moved[name] != "" {
				want[name] = "two"
			}
			rs := replicaSet(name, 2)
			r.must(r.live.Update(r.Context(), rs))
		}
		if diff := cmp.Diff(want, r.took()); diff != "" {
			r.Errorf("who worked on which change (-want +got):\n%s", diff)
		}
	})
}

// The standby's cache is warm: to take over it asks for no object but leases.
func TestReplicaThatTakesOverListsNothing(t *testing.T) {
	inShards(t, func(r *replicas) {
		r.join("one")
		r.join("two")
		r.took()
		n := r.held("one")
		r.server.Requests()
		r.must(r.stops["one"]())
		r.pass(10 * time.Second)
		if got := r.took(); len(got) != n {
			r.Errorf("two worked on %d keys, want the %d that one had", len(got), n)
		}
		for _, request := range r.server.Requests() {
			if !strings.Contains(request, "/leases") {
				r.Errorf("to take over it asked %s", request)
			}
		}
	})
}

// A key is in work when its shard should move: it moves when that has ended (work checks it).
func TestKeyInWorkKeepsItsShard(t *testing.T) {
	inShards(t, func(r *replicas) {
		r.join("one")
		r.took()
		released := make(chan struct{})
		r.mu.Lock()
		for i := range keys {
			r.block[fmt.Sprint("rs", i)] = released
		}
		r.mu.Unlock()
		for i := range keys {
			r.must(r.live.Update(r.Context(), replicaSet(fmt.Sprint("rs", i), 2)))
		}
		r.mu.Lock()
		working := maps.Clone(r.working)
		r.mu.Unlock()
		r.join("two")
		for key := range working {
			if got := r.took(); got[key] == "two" {
				r.Errorf("two works on %s, whose pass has not ended", key)
			}
		}
		close(released)
		r.pass(time.Minute)
		if r.held("one")+r.held("two") != keys || r.held("two") == 0 {
			r.Errorf("one has %d keys and two %d, of %d", r.held("one"), r.held("two"), keys)
		}
	})
}

func TestTakeoverOfALeaseListsNothing(t *testing.T) {
	options := func(holder string) controller.ManagerOptions {
		o := withLease(holder)
		o.Shards = 0
		return o
	}
	inWorld(t, options("one"), func(w *world) {
		passes := 0
		managers := []*controller.Manager{w.mgr, w.manager(options("two"))}
		var stops []func() error
		for _, mgr := range managers {
			w.must(controller.ManagedBy(mgr).For(&appsv1.ReplicaSet{}).Complete(reconcile.Func(
				func(context.Context, reconcile.Request) (reconcile.Result, error) {
					passes++
					return reconcile.Result{}, nil
				})))
			stops = append(stops, w.start(mgr))
			w.pass(time.Second)
		}
		w.must(w.live.Create(w.Context(), replicaSet("a", 1)))
		w.server.Requests()
		w.must(stops[0]())
		w.pass(10 * time.Second)
		if passes != 2 {
			w.Errorf("%d passes, want one by each", passes)
		}
		for _, request := range w.server.Requests() {
			if !strings.Contains(request, "/leases") {
				w.Errorf("to take over it asked %s", request)
			}
		}
	})
}

func TestShardsNeedALease(t *testing.T) {
	inWorld(t, controller.ManagerOptions{}, func(w *world) {
		_, err := controller.NewManager(w.server.Config(), controller.ManagerOptions{
			Mapper: w.server.Mapper(), Shards: 2,
		})
		if err == nil || !strings.Contains(err.Error(), "Lease") {
			w.Errorf("two shards without a lease: %v", err)
		}
	})
}

// TestRunnableMovesWithTheFirstShard has what Add was given begin with whoever gets the shard, end with
// the context's error, as runnables do, and begin again.
func TestRunnableMovesWithTheFirstShard(t *testing.T) {
	inShards(t, func(r *replicas) {
		var mu sync.Mutex
		runs := map[string]int{}
		of := func(name string) controller.Runnable {
			return controller.RunnableFunc(func(ctx context.Context) error {
				mu.Lock()
				runs[name]++
				mu.Unlock()
				<-ctx.Done()
				return ctx.Err()
			})
		}
		r.must(r.mgr.Add(of("early")))
		r.join("one")
		r.must(r.mgr.Add(of("late")))
		var rival string
		for i := 0; rival == ""; i++ { // find one that wins the first shard
			name := fmt.Sprint("rival", i)
			r.join(name)
			if slices.Contains(r.managers[name].Queues()[0].Shards, 0) {
				rival = name
			}
		}
		r.must(r.stops[rival]())
		r.pass(time.Minute)
		if !slices.Contains(r.mgr.Queues()[0].Shards, 0) {
			r.Fatalf("one has the shards %v", r.mgr.Queues()[0].Shards)
		}
		mu.Lock()
		defer mu.Unlock()
		if diff := cmp.Diff(map[string]int{"early": 2, "late": 2}, runs); diff != "" {
			r.Errorf("runs (-want +got):\n%s", diff)
		}
	})
}
