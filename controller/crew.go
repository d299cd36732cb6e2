package controller

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sync/errgroup"

	"github.com/setpoint-dev/setpoint/lease"
)

// Runnable is something that runs until its context ends. Start blocks. One that has a method
// NeedLeaderElection, as controller-runtime's may have, runs on every replica if that returns false.
type Runnable interface {
	Start(ctx context.Context) error
}

// RunnableFunc is a function as a Runnable.
type RunnableFunc func(context.Context) error

// Start calls the function.
func (f RunnableFunc) Start(ctx context.Context) error { return f(ctx) }

// crew is what runs, and ends, together. The manager's lock guards it.
type crew struct {
	all   []Runnable
	start func(Runnable) // nil while it does not run
}

// Add has the manager run something besides controllers: once its caches have synced and, if it has a
// lease and the runnable does not say that it needs none, while it holds that. What is added to a
// running manager is run at once; one that has been told to stop takes no more.
func (m *Manager) Add(r Runnable) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.over != nil && isClosed(m.over) {
		return errors.New("controller: the manager has been told to stop, and runs nothing more")
	}
	c := &m.led
	if e, ok := r.(interface{ NeedLeaderElection() bool }); ok && !e.NeedLeaderElection() {
		c = &m.everywhere
	}
	c.all = append(c.all, r)
	if c.start != nil {
		c.start(r)
	}
	return nil
}

func isClosed(ch <-chan struct{}) bool {
	select {
	case <-ch:
		return true
	default:
		return false
	}
}

// staff puts controllers where they run. Those that share their keys with other replicas run on each.
func (m *Manager) staff(loops []*loop) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, l := range loops {
		c := &m.led
		if l.opts.AnyReplica || l.sharded() {
			c = &m.everywhere
		}
		c.all = append(c.all, l)
	}
}

// run works until the context ends or something fails, and then until everything has ended.
func (m *Manager) run(ctx context.Context, loops []*loop) error {
	m.staff(loops)
	led := func(ctx context.Context) error { return m.work(ctx, &m.led) }
	if m.opts.Lease != nil {
		led = m.elected(m.leaseOptions(), loops)
	}
	return m.together(ctx,
		func(ctx context.Context) error { return m.work(ctx, &m.everywhere) },
		led,
	)
}

func (m *Manager) leaseOptions() lease.Options {
	options := *m.opts.Lease
	if options.Client == nil {
		options.Client = m.client.Client
	}
	if options.Clock == nil {
		options.Clock = m.opts.Clock
	}
	if options.Random == nil {
		options.Random = m.opts.Random
	}
	if options.Logger == nil {
		options.Logger = m.opts.Logger
	}
	return options
}

// elected returns what works while the lease, or that of a shard, is held.
func (m *Manager) elected(options lease.Options, loops []*loop) func(context.Context) error {
	if m.shards.count > 1 {
		return func(ctx context.Context) error { return m.runShards(ctx, loops, options) }
	}
	return func(ctx context.Context) error {
		return lease.Run(ctx, options, func(ctx context.Context, _ lease.Term) error {
			// Who has lost the lease waits for work in hand no longer than who was told to stop.
			stop := context.AfterFunc(ctx, func() { m.end(context.Cause(ctx)) })
			defer stop()
			return m.work(ctx, &m.led)
		})
	}
}

// together does all until the context ends or one fails, and then waits for them, but not for ever.
func (m *Manager) together(ctx context.Context, all ...func(context.Context) error) error {
	group, ctx := errgroup.WithContext(ctx)
	for _, do := range all {
		group.Go(func() error { return do(ctx) })
	}
	ended := make(chan error, 1)
	go func() { ended <- group.Wait() }()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
	}
	timer := m.opts.Clock.NewTimer(m.opts.StopTimeout)
	defer timer.Stop()
	select {
	case err := <-ended:
		return err
	case <-timer.C():
		late := fmt.Errorf("controller: not everything ended within %v of being told to", m.opts.StopTimeout)
		if why := context.Cause(ctx); !isCanceled(why) {
			return errors.Join(why, late)
		}
		return late
	}
}

// work runs a crew, and who joins it, until the context ends or one of it fails. Then all of the
// manager is to end.
func (m *Manager) work(ctx context.Context, c *crew) error {
	group, ctx := errgroup.WithContext(ctx)
	start := func(r Runnable) {
		group.Go(func() error {
			err := r.Start(ctx)
			switch {
			case err == nil:
			case ctx.Err() == nil:
				m.end(err)
			case isCanceled(err):
				return nil // it says that it was told to end
			}
			return err
		})
	}
	m.mu.Lock()
	for _, r := range c.all {
		start(r)
	}
	c.start = start
	m.mu.Unlock()
	group.Go(func() error {
		<-ctx.Done()
		m.mu.Lock()
		defer m.mu.Unlock()
		c.start = nil
		return nil
	})
	return group.Wait()
}
