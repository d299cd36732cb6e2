// Package checker runs random concurrent traffic against a store.Store and judges whether what came
// back keeps the store's promises.
//
//	if err := checker.Check(ctx, s, checker.Options{Seed: seed}); err != nil { t.Error(err) }
//
// Clients commit, read the newest state and read the past; watchers follow, stall, resume and start
// anew; somebody compacts. Everything is recorded, and judged when all have ended, by pure functions
// over the record:
//
//   - commits and reads are linearizable, by porcupine's search for an order that explains them;
//   - every state at a revision, and every event, is what the commits up to it made of it;
//   - a watch is ordered, unique, gap-free and whole per revision, resumes where it was, shows its
//     prefix alone, and never says that it has come further than it has.
//
// What a commit's answer was lost for may have happened or not; the judge finds out by its values,
// each of which is written once.
package checker

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/setpoint-dev/setpoint/store"
)

// Options say how much traffic there is. The zero Options take a fraction of a second on an engine
// in memory.
type Options struct {
	// Seed of what the clients do. What the scheduler of goroutines makes of it differs.
	Seed uint64
	// Clients that commit and read: six unless set. The search for an order becomes slow with many.
	Clients int
	// Steps of each client: 150 unless set.
	Steps int
	// Watchers that follow: eight unless set.
	Watchers int
	// Patience is how long a watcher may wait for an event that must come: ten seconds unless set.
	Patience time.Duration
	// Faults says that calls may fail for reasons of the engine's own: then it is not known whether
	// commits happened.
	Faults bool
	// Pace, if not nil, is called before each step of a client, and may hold it up.
	Pace func(context.Context)
	// Calm, if not nil, is called when the clients have ended, and ends the faults: what is committed
	// after it must go through.
	Calm func(context.Context) error
}

// A Violation is a promise that was broken.
type Violation struct {
	Property string // in a word or two, as docs/guarantees.md lists them
	Found    string
}

func (v *Violation) Error() string { return v.Property + ": " + v.Found }

func violation(property, format string, args ...any) error {
	return &Violation{property, fmt.Sprintf(format, args...)}
}

// Check runs the traffic on an empty store and judges it. It returns nil, a *Violation, or what kept
// it from finding out.
func Check(ctx context.Context, s store.Store, opts Options) error {
	if opts.Clients == 0 {
		opts.Clients = 6
	}
	if opts.Steps == 0 {
		opts.Steps = 150
	}
	if opts.Watchers == 0 {
		opts.Watchers = 8
	}
	if opts.Patience == 0 {
		opts.Patience = 10 * time.Second
	}
	r := &run{store: s, opts: opts, finished: make(chan struct{})}
	record, err := r.traffic(ctx)
	var found *Violation
	if err != nil && (!errors.As(err, &found) || found.Property != "woken") {
		return err
	}
	// Who waits in vain may have been shown something wrong before, which says more.
	return first(judge(record), err)
}

// run is the traffic while it lasts.
type run struct {
	store store.Store
	opts  Options

	clock     atomic.Int64                 // orders calls and returns
	compacted atomic.Int64                 // the largest revision that anybody has asked to compact to
	witnessed [len(resources)]atomic.Int64 // compaction stays below what the witnesses have seen, each of a resource

	finished chan struct{} // closed when last is set
	last     store.Revision
}

// record is what there is to judge.
type record struct {
	operations []operation
	watches    []watchRecord
}

func (r *run) traffic(ctx context.Context) (*record, error) {
	clients := make([]client, r.opts.Clients)
	var writing, watching sync.WaitGroup
	for i := range clients {
		clients[i] = r.newClient(i)
		writing.Go(func() { clients[i].work(ctx) })
	}
	watchers := make([]watcher, r.opts.Watchers)
	for i := range watchers {
		watchers[i] = r.newWatcher(i)
		watching.Go(func() { watchers[i].work(ctx) })
	}
	writing.Wait()
	end := r.newClient(r.opts.Clients)
	var err error
	if r.opts.Calm != nil {
		err = r.opts.Calm(ctx)
	}
	err = first(err, r.finish(ctx, &end))
	watching.Wait()
	rec := &record{operations: end.done}
	for i := range clients {
		rec.operations = append(rec.operations, clients[i].done...)
		err = first(err, clients[i].err)
	}
	for i := range watchers {
		rec.watches = append(rec.watches, watchers[i].done...)
		err = first(err, watchers[i].err)
	}
	return rec, err
}

// finish commits what every watcher waits for: an event in each part of each resource.
func (r *run) finish(ctx context.Context, end *client) error {
	defer close(r.finished)
	end.commit(ctx, []store.Op{end.put(0, store.Any), end.put(keysOfA, store.Any), end.put(keyCount-1, store.Any)})
	if end.err != nil {
		return end.err
	}
	if err := end.done[0].err; err != nil {
		return fmt.Errorf("the last commit: %w", err)
	}
	r.last = end.done[0].result.Revision
	return nil
}

func first(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}
