package etcd_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/setpoint-dev/setpoint/store"
	"github.com/setpoint-dev/setpoint/store/etcd"
	"github.com/setpoint-dev/setpoint/store/etcd/etcdtest"
	"github.com/setpoint-dev/setpoint/store/storetest"
	"github.com/setpoint-dev/setpoint/store/storetest/checker"
)

// fleet is several stores on one cluster, as one: each call goes to the next of them.
type fleet struct {
	stores []*etcd.Store
	calls  atomic.Int64
}

func (f *fleet) next() *etcd.Store { return f.stores[f.calls.Add(1)%int64(len(f.stores))] }

func (f *fleet) Commit(ctx context.Context, ops ...store.Op) (store.Result, error) {
	return f.next().Commit(ctx, ops...)
}

func (f *fleet) Snapshot(ctx context.Context) (store.Snapshot, error) { return f.next().Snapshot(ctx) }

func (f *fleet) SnapshotAt(ctx context.Context, at store.Revision) (store.Snapshot, error) {
	return f.next().SnapshotAt(ctx, at)
}

func (f *fleet) Watch(resource, prefix string, after store.Revision) (store.Watch, error) {
	return f.next().Watch(resource, prefix, after)
}

func (f *fleet) Compact(ctx context.Context, before store.Revision) error {
	return f.next().Compact(ctx, before)
}

func (f *fleet) Revision() store.Revision  { return f.next().Revision() }
func (f *fleet) Compacted() store.Revision { return f.next().Compacted() }
func (f *fleet) Close() error              { return nil }

// The checker judges three stores on one cluster as one.
func TestCheckerOnSeveralStores(t *testing.T) {
	f, address, prefix := &fleet{}, etcdtest.Start(t), space()
	for range 3 {
		options := etcd.Options{Endpoints: []string{address}, Prefix: prefix, Timeout: patience}
		f.stores = append(f.stores, open(t, options))
	}
	seed := storetest.Seed(t)
	if err := checker.Check(t.Context(), f, checker.Options{Seed: seed, Patience: patience}); err != nil {
		t.Fatalf("seed %d: %v", seed, err)
	}
}

// fault is something that goes wrong with a cluster, and ends.
type fault struct {
	name string
	do   func(c *cluster, leader int, r *rand.Rand) (undo func())
}

var faults = []fault{
	{"the leader is killed", func(c *cluster, leader int, _ *rand.Rand) func() { return c.killed(leader) }},
	{"a follower is killed", func(c *cluster, leader int, _ *rand.Rand) func() { return c.killed((leader + 1) % members) }},
	{"the leader is cut off from the others", func(c *cluster, leader int, r *rand.Rand) func() {
		return c.apart(r, leader, func(from, to int) bool { return from == leader || to == leader })
	}},
	{"the leader is not heard", func(c *cluster, leader int, r *rand.Rand) func() {
		return c.apart(r, leader, func(from, to int) bool { return from == leader && to < members })
	}},
	{"the leader does not hear", func(c *cluster, leader int, r *rand.Rand) func() {
		return c.apart(r, leader, func(from, to int) bool { return to == leader && from < members })
	}},
	{"a follower is cut off from the others", func(c *cluster, leader int, r *rand.Rand) func() {
		follower := (leader + 1 + r.IntN(2)) % members
		return c.apart(r, follower, func(from, to int) bool {
			return from < members && to < members && (from == follower || to == follower)
		})
	}},
	{"a server does not hear the leader", func(c *cluster, leader int, r *rand.Rand) func() {
		return c.apart(r, leader, func(from, to int) bool { return from == leader && to == members })
	}},
	{"a server is cut off from two members", func(c *cluster, leader int, r *rand.Rand) func() {
		reached := r.IntN(members)
		return c.apart(r, leader, func(from, to int) bool {
			return from == members && to != reached || to == members && from != reached
		})
	}},
	{"the leader is paused", func(c *cluster, leader int, _ *rand.Rand) func() {
		c.process(leader).pause()
		return c.process(leader).resume
	}},
	{"two members are killed", func(c *cluster, leader int, _ *rand.Rand) func() {
		one, other := c.killed(leader), c.killed((leader+1)%members)
		return func() { one(); other() }
	}},
}

func (c *cluster) killed(i int) (undo func()) {
	c.process(i).kill()
	return func() { c.start(i) }
}

// apart holds back what parties say to each other. In the end it arrives late, or is lost.
func (c *cluster) apart(r *rand.Rand, member int, held func(from, to int) bool) (undo func()) {
	for from := range c.lines {
		for to := range c.lines {
			if from != to && held(from, to) {
				c.lines[from][to].hold()
			}
		}
	}
	lost := r.IntN(2) == 0
	return func() {
		for i := range members {
			if lost {
				c.peers[i].cut(func(caller int) bool { return caller == member || i == member })
			}
		}
		c.heal()
	}
}

// havoc lets one fault follow another until it is stopped. Traffic goes on at its pace: during each
// fault clients take some more steps than there are clients, and some after it.
type havoc struct {
	*cluster
	rand    *rand.Rand
	clients int
	steps   chan struct{} // one for each that may be taken
	done    []string
	stopped context.Context
	stop    context.CancelFunc
	running sync.WaitGroup
}

// patience is how long anything may take that has to happen.
const patience = 2 * time.Minute

func (h *havoc) begin(ctx context.Context) {
	ctx, h.stop = context.WithCancel(ctx)
	h.stopped = ctx
	h.running.Go(func() {
		for n := h.rand.IntN(len(faults)); ctx.Err() == nil; n++ {
			f := faults[n%len(faults)]
			undo := f.do(h.cluster, h.leader(ctx), h.rand)
			h.let(h.clients + h.rand.IntN(h.clients))
			undo()
			h.let(h.rand.IntN(h.clients))
			h.done = append(h.done, f.name)
		}
	})
}

// let returns when so many steps more have begun.
func (h *havoc) let(count int) {
	for range count {
		select {
		case h.steps <- struct{}{}:
		case <-h.stopped.Done():
			return
		}
	}
}

// pace waits until a step may be taken.
func (h *havoc) pace(context.Context) {
	select {
	case <-h.steps:
	case <-h.stopped.Done():
	}
}

func (h *havoc) end() {
	h.stop()
	h.running.Wait()
}

// The checker judges two stores on one cluster while its members are killed, paused and cut off from
// each other and from the stores.
func TestCheckerOnAClusterThatFails(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds of elections")
	}
	rounds, steps := 1, 14
	if storetest.Tortured(t) {
		rounds, steps = max(storetest.Rounds(t, 1)/1000, 1), 300
	}
	c := newCluster(t)
	users := [][]string{c.user(0), c.user(1)}
	first := storetest.Seed(t)
	for round := range rounds {
		seed := first + uint64(round)
		h := &havoc{cluster: c, rand: rand.New(rand.NewPCG(seed, 0)), clients: 6, steps: make(chan struct{})}
		f := &fleet{}
		prefix := space()
		for _, endpoints := range users {
			f.stores = append(f.stores, open(t, etcd.Options{Endpoints: endpoints, Prefix: prefix, Timeout: 5 * time.Second}))
		}
		h.begin(t.Context())
		err := checker.Check(t.Context(), f, checker.Options{
			Seed: seed, Clients: h.clients, Steps: steps, Patience: patience, Faults: true, Pace: h.pace,
			Calm: func(ctx context.Context) error {
				h.end()
				return calm(ctx, f.stores)
			},
		})
		h.end()
		t.Logf("round %d, seed %d, revision %d: %q", round, seed, f.Revision(), h.done)
		if err != nil {
			t.Fatal(err)
		}
		if len(h.done) == 0 {
			t.Error("nothing went wrong while the traffic lasted")
		}
	}
}

// calm returns when all stores answer again.
func calm(ctx context.Context, stores []*etcd.Store) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for _, s := range stores {
		for {
			_, err := s.Snapshot(ctx)
			if err == nil {
				break
			}
			if ctx.Err() != nil {
				return fmt.Errorf("the cluster does not come back: %w", err)
			}
		}
	}
	return nil
}
