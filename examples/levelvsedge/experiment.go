// Package levelvsedge is an experiment: what becomes of eight applications whose pods die, when a
// third of the news about it is lost and a tenth of the attempts to act fail.
//
// A level-triggered loop is told which application to look at, looks, and does what is missing. An
// edge-triggered one is told what happened, and does the opposite. The first ends as desired each
// time; the second drifts. docs/why-level-triggered.md tells the story, and shows the figures.
//
// The loop stands on the queue and the store that every controller of Setpoint stands on. Nothing
// but the seed decides what happens: the clock counts ticks, and one goroutine does it all.
package levelvsedge

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	clocktesting "k8s.io/utils/clock/testing"

	"github.com/setpoint-dev/setpoint/store"
	"github.com/setpoint-dev/setpoint/store/memory"
	"github.com/setpoint-dev/setpoint/workqueue"
)

const (
	apps       = 8
	ticks      = 300
	trouble    = 200 // ticks in which pods die; the rest is for settling
	tick       = time.Second
	workMax    = 4 // keys that are worked on in a tick
	backoffMax = 5 // doublings of the first delay, which is one tick
)

// Config says how the loop works. Level, Deduplicate and SkipUnchanged together are what a
// controller should be.
type Config struct {
	// Level has events name an application; otherwise they say by how much its pods have changed, and
	// the loop adds that.
	Level bool
	// Deduplicate keeps an application once in the queue however often it is added.
	Deduplicate bool
	// SkipUnchanged writes a status that is a function of what is observed, so that one which says
	// nothing new is no write; otherwise it carries the time.
	SkipUnchanged bool
	// Resync is how many ticks pass until all applications are looked at unasked.
	Resync int
}

// Controller is the configuration of a well-made level-triggered loop.
var Controller = Config{Level: true, Deduplicate: true, SkipUnchanged: true, Resync: 20}

// Outcome is what a run came to.
type Outcome struct {
	Converged  bool // each application has the pods it should have
	Reconciles int
	Writes     int // revisions of the store
	// Distance is, for each tick, by how many pods the applications are away from what they should
	// be, all together.
	Distance []int
}

// spec and status are what is stored of an application.
type spec struct {
	Replicas   int `json:"replicas"`
	Generation int `json:"generation"`
	// Edited is the tick of the last edit: an edit is a write though it may ask for the same again.
	Edited int `json:"edited"`
}

type status struct {
	ObservedGeneration int `json:"observedGeneration"`
	Ready              int `json:"ready"`
	// Pass is the number of the pass that wrote it: the mistake that SkipUnchanged does not make.
	Pass int `json:"pass,omitempty"`
}

// event says that an application's pods are fewer, or should be more, by delta.
type event struct{ app, delta int }

type experiment struct {
	Config
	random random
	store  *memory.Store
	clock  *clocktesting.FakeClock
	now    int   // the tick
	world  []int // the pods that there are, by application

	queue    *workqueue.Queue[key]
	retries  *workqueue.Queue[retry]
	failures [apps]int // in a row
	serial   int       // makes keys and retries distinct

	reconciles int
}

// Run runs the experiment under a seed. An error is the store's.
func Run(config Config, seed uint64) (Outcome, error) {
	x := newExperiment(config, seed)
	defer x.close()
	for app := range apps {
		if err := x.putSpec(app, spec{Replicas: 3, Generation: 1, Edited: -1}, 0); err != nil {
			return Outcome{}, err
		}
		x.world[app] = 3
	}
	var out Outcome
	for x.now = range ticks {
		if err := x.step(); err != nil {
			return Outcome{}, err
		}
		distance, err := x.distance()
		if err != nil {
			return Outcome{}, err
		}
		out.Distance = append(out.Distance, distance)
	}
	out.Converged = out.Distance[ticks-1] == 0
	out.Reconciles, out.Writes = x.reconciles, int(x.store.Revision())
	return out, nil
}

func newExperiment(config Config, seed uint64) *experiment {
	clock := clocktesting.NewFakeClock(time.Unix(0, 0))
	return &experiment{
		Config: config, random: random(seed), store: memory.New(memory.Options{}), clock: clock,
		world:   make([]int, apps),
		queue:   workqueue.New(workqueue.Options[key]{Clock: clock}),
		retries: workqueue.New(workqueue.Options[retry]{Clock: clock}),
	}
}

func (x *experiment) close() {
	x.queue.ShutDown()
	x.retries.ShutDown()
	_ = x.store.Close()
}

// step is one tick: the world moves, news of it arrives or is lost, and the loop works.
func (x *experiment) step() error {
	events, err := x.happen()
	if err != nil {
		return err
	}
	for _, e := range events {
		if x.random.percent(30) {
			continue // lost
		}
		if x.Level {
			x.add(e.app)
		} else {
			x.world[e.app] = max(x.world[e.app]+e.delta, 0)
		}
	}
	if !x.Level {
		return nil
	}
	if x.now%x.Resync == 0 {
		for app := range apps {
			x.add(app)
		}
	}
	x.addRetries()
	for range workMax {
		key, _, ok := x.queue.TryGet()
		if !ok {
			break
		}
		if err := x.work(key.app); err != nil {
			return err
		}
		x.queue.Done(key)
	}
	x.clock.Step(tick)
	return nil
}

// happen lets pods die, and now and then somebody edit a spec.
func (x *experiment) happen() (events []event, err error) {
	if x.now >= trouble {
		return nil, nil
	}
	for range 3 {
		app := x.random.below(apps)
		if x.world[app] > 0 {
			x.world[app]--
			events = append(events, event{app, +1})
		}
	}
	if x.now%25 != 0 {
		return events, nil
	}
	app := x.random.below(apps)
	old, revision, err := x.spec(app)
	if err != nil {
		return nil, err
	}
	edited := spec{Replicas: 1 + x.random.below(5), Generation: old.Generation, Edited: x.now}
	if edited.Replicas != old.Replicas {
		edited.Generation++
	}
	events = append(events, event{app, edited.Replicas - old.Replicas})
	return events, x.putSpec(app, edited, revision)
}

// work is one pass over an application, which may fail.
func (x *experiment) work(app int) error {
	x.reconciles++
	if x.random.percent(10) {
		x.retry(app)
		return nil
	}
	x.failures[app] = 0
	return x.reconcile(app)
}

// reconcile reads what is desired, makes it so, and writes down what it saw. It does not ask why it
// was called.
func (x *experiment) reconcile(app int) error {
	desired, _, err := x.spec(app)
	if err != nil {
		return err
	}
	x.world[app] = desired.Replicas // makes what is missing, removes what is too much
	seen := status{ObservedGeneration: desired.Generation, Ready: x.world[app]}
	if !x.SkipUnchanged {
		seen.Pass = x.reconciles
	}
	return x.put(store.Op{Key: statusKey(app), Expect: store.Any}, seen)
}

// distance is by how many pods the world is away from the specs.
func (x *experiment) distance() (sum int, err error) {
	for app, have := range x.world {
		desired, _, err := x.spec(app)
		if err != nil {
			return 0, err
		}
		sum += max(desired.Replicas-have, have-desired.Replicas)
	}
	return sum, nil
}

func specKey(app int) store.Key   { return store.Key{Resource: "apps", Path: fmt.Sprintf("app%d", app)} }
func statusKey(app int) store.Key { return store.Key{Resource: "apps/status", Path: specKey(app).Path} }

// spec reads a spec and the revision of its last write.
func (x *experiment) spec(app int) (s spec, at store.Revision, err error) {
	snapshot, err := x.store.Snapshot(context.Background())
	if err != nil {
		return spec{}, 0, err
	}
	entry := snapshot.Get(specKey(app))
	return s, entry.Revision, json.Unmarshal(entry.Value, &s)
}

// putSpec writes a spec over the state that was read at a revision, or fails.
func (x *experiment) putSpec(app int, s spec, read store.Revision) error {
	return x.put(store.Op{Key: specKey(app), Expect: read}, s)
}

func (x *experiment) put(op store.Op, value any) (err error) {
	op.Type, op.RevisionAt = store.Put, -1
	if op.Value, err = json.Marshal(value); err != nil {
		return err
	}
	_, err = x.store.Commit(context.Background(), op)
	return err
}

// key is an application in the queue. Without deduplication each has a serial number, and no two
// are equal.
type key struct{ app, serial int }

func (x *experiment) add(app int) {
	k := key{app: app}
	if !x.Deduplicate {
		x.serial++
		k.serial = x.serial
	}
	x.queue.Add(k)
}

// retry is an attempt that failed and waits for its time.
//
// A controller of Setpoint has retries wait in the queue itself, where an event that makes the key
// ready earlier takes the place of its retry. The published figures are of a queue in which both
// stay, so here the retries wait beside it.
type retry struct{ serial, app int }

func (x *experiment) retry(app int) {
	delay := tick << min(x.failures[app], backoffMax)
	x.failures[app]++
	x.serial++
	x.retries.AddAfter(retry{x.serial, app}, delay)
}

// addRetries adds those whose time has come, in the order in which they failed.
func (x *experiment) addRetries() {
	var due []retry
	for {
		r, _, ok := x.retries.TryGet()
		if !ok {
			break
		}
		x.retries.Done(r)
		due = append(due, r)
	}
	slices.SortFunc(due, func(a, b retry) int { return cmp.Compare(a.serial, b.serial) })
	for _, r := range due {
		x.add(r.app)
	}
}

// random is a xorshift generator; it must not be zero.
type random uint64

func (r *random) next() uint64 {
	*r ^= *r << 13
	*r ^= *r >> 7
	*r ^= *r << 17
	return uint64(*r)
}

// percent is true in p of a hundred cases.
func (r *random) percent(p uint64) bool { return r.next()%100 < p }

// below returns a number from 0 up to n, n excluded.
func (r *random) below(n int) int { return int(r.next() % uint64(n)) }
