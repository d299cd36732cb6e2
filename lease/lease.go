// Package lease elects one of several processes by a Lease object of the API server.
//
// The record is client-go's, so that both kinds of candidates can stand for one lease. Beyond that:
//   - Each term has an epoch, the lease's leaseTransitions, larger than that of any term before it,
//     also when the same holder follows itself. It is the fence of everything done in the term: who
//     is written to can refuse what carries an older epoch.
//   - A holder stops acting after RenewDeadline without a renewal, counted from when the renewal was
//     begun; others take over after Duration, by their own clocks. An answer that comes later than
//     that, or to a request that was given up, changes nothing.
//   - The lease is renewed until the work has ended, and only then given back.
//
// Shards are leases, too: see RunShards.
//
// A lease alone excludes nobody: a process that is stopped between looking at its clock and writing
// can write late. Only the fence makes such a write fail.
package lease

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Options are the settings of an election.
type Options struct {
	// Client reads and writes the lease; it must not read from a cache.
	Client client.Client
	// Namespace and Name are those of the Lease object.
	Namespace, Name string
	// Holder is this candidate's identity; no two candidates share one.
	Holder string
	// Duration is after how long without a renewal others may take the lease; whole seconds, zero
	// means 15 s. RenewDeadline is after how long the holder stops, less than Duration; zero means
	// 10 s. RetryPeriod is how often it is renewed, and about how often others look; zero means 2 s.
	Duration, RenewDeadline, RetryPeriod time.Duration
	// ReleaseTimeout bounds giving the lease back, and what RunShards asks of the server; zero means
	// 5 s. If the lease is not given back it runs out.
	ReleaseTimeout time.Duration
	// Clock is what time is read from; nil is the machine's.
	Clock clock.WithTicker
	// Random returns numbers from 0 to below 1, by which candidates are spread; it may be called
	// concurrently. Nil is math/rand/v2's.
	Random func() float64
	// Logger is told of terms that begin and end; nil is slog.Default().
	Logger *slog.Logger
}

// Term is the time in which one candidate holds a lease. UID and Epoch together are its fence.
type Term struct {
	Lease  types.NamespacedName
	UID    types.UID // of the Lease object: a new object counts its epochs anew
	Holder string
	Epoch  int64
}

func (t Term) String() string { return fmt.Sprintf("%s@%d", t.Lease, t.Epoch) }

// ErrLost says that a term ended before its work did.
var ErrLost = errors.New("lease: the lease was lost")

type termKey struct{}

// TermFrom returns the term in whose work the context was made.
func TermFrom(ctx context.Context) (Term, bool) {
	t, ok := ctx.Value(termKey{}).(Term)
	return t, ok
}

// Run waits for the lease, does the work while it holds it, and returns when the work has ended and
// the lease is given back. The context of the work ends with Run's context, and when the lease is
// lost; the work must then end soon.
// Possible errors: ErrLost, the work's own, and mistakes in the options. If the context ends before
// there is a term, the result is nil.
func Run(ctx context.Context, opts Options, work func(context.Context, Term) error) error {
	if err := opts.fill(); err != nil {
		return err
	}
	r := &runner{elector: elector{opts: opts}, log: opts.Logger.With("lease", opts.Name, "holder", opts.Holder)}
	if !r.acquire(ctx) {
		return nil
	}
	return r.work(ctx, work)
}

func (o *Options) fill() error {
	o.Duration = cmp.Or(o.Duration, 15*time.Second)
	o.RenewDeadline = cmp.Or(o.RenewDeadline, 10*time.Second)
	o.RetryPeriod = cmp.Or(o.RetryPeriod, 2*time.Second)
	o.ReleaseTimeout = cmp.Or(o.ReleaseTimeout, 5*time.Second)
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	if o.Random == nil {
		o.Random = rand.Float64
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	switch {
	case o.Client == nil, o.Namespace == "", o.Name == "", o.Holder == "":
		return fmt.Errorf("lease: Client, Namespace, Name and Holder must be set; found namespace %q, name %q, holder %q",
			o.Namespace, o.Name, o.Holder)
	case o.Duration%time.Second != 0, o.RenewDeadline >= o.Duration, o.RetryPeriod >= o.RenewDeadline:
		return fmt.Errorf("lease: RetryPeriod %v < RenewDeadline %v < Duration %v, in whole seconds, must hold",
			o.RetryPeriod, o.RenewDeadline, o.Duration)
	}
	return nil
}

// runner steps an elector by the clock, and does its reads and writes.
type runner struct {
	elector
	log *slog.Logger
}

// acquire tries until it holds the lease; false if the context ended first.
func (r *runner) acquire(ctx context.Context) bool {
	for ctx.Err() == nil {
		if err := r.read(ctx); err != nil {
			r.log.Warn("cannot read the lease", "err", err)
		} else if err := r.write(ctx, r.next); err != nil {
			r.log.Info("cannot take the lease", "err", err)
		}
		if r.leads(r.now()) {
			return true
		}
		// Candidates that wait for one lease don't try in step.
		spread := time.Duration(r.opts.Random() * float64(r.opts.RetryPeriod))
		sleep(ctx, r.opts.Clock, r.opts.RetryPeriod+spread)
	}
	return false
}

func (r *runner) work(ctx context.Context, work func(context.Context, Term) error) error {
	term := Term{
		Lease: types.NamespacedName{Namespace: r.opts.Namespace, Name: r.opts.Name},
		UID:   r.seen.UID, Holder: r.opts.Holder, Epoch: r.term,
	}
	r.log.Info("holds the lease", "epoch", term.Epoch)
	workCtx, cancel := context.WithCancelCause(context.WithValue(ctx, termKey{}, term))
	defer cancel(nil)
	ended := make(chan error, 1)
	go func() { ended <- work(workCtx, term) }()

	done, err := r.hold(ctx, ended)
	if !done {
		r.log.Error("lost the lease", "epoch", term.Epoch)
		cancel(ErrLost)
		return errors.Join(ErrLost, <-ended)
	}
	if r.leads(r.now()) {
		r.giveBack(ctx)
		r.log.Info("gave back the lease", "epoch", term.Epoch)
	}
	return err
}

// hold renews the lease until the work is done, and returns how it ended, or until the lease is
// lost.
func (r *runner) hold(ctx context.Context, ended <-chan error) (done bool, err error) {
	ctx = context.WithoutCancel(ctx) // the work needs the lease until it has ended
	timer := r.opts.Clock.NewTimer(r.opts.RetryPeriod)
	defer timer.Stop()
	for {
		select {
		case err := <-ended:
			return true, err
		case <-timer.C():
		}
		if err := r.write(ctx, r.extend); err != nil {
			r.log.Warn("cannot renew the lease", "err", err)
			if err := r.read(ctx); err != nil {
				r.log.Warn("cannot read the lease", "err", err)
			}
		}
		now := r.now()
		if !r.leads(now) {
			return false, nil
		}
		timer.Reset(min(r.opts.RetryPeriod, r.until().Sub(now)))
	}
}

// giveBack lets others have the lease at once. What somebody else has written to the object meanwhile, a
// label for one, is kept.
func (r *runner) giveBack(ctx context.Context) {
	ctx = context.WithoutCancel(ctx)
	update := func(ctx context.Context) error { return r.opts.Client.Update(ctx, r.release(r.now())) }
	_, err := within(ctx, r.opts.Clock, r.opts.ReleaseTimeout, func(ctx context.Context) (struct{}, error) {
		err := update(ctx)
		if apierrors.IsConflict(err) && r.read(ctx) == nil && r.leads(r.now()) {
			err = update(ctx)
		}
		return struct{}{}, err
	})
	if err != nil {
		r.log.Warn("cannot give back the lease; it will run out", "err", err)
	}
}

// read asks the server for the lease.
func (r *runner) read(ctx context.Context) error {
	key := client.ObjectKey{Namespace: r.opts.Namespace, Name: r.opts.Name}
	l, err := within(ctx, r.opts.Clock, r.patience(), func(ctx context.Context) (*coordinationv1.Lease, error) {
		l := &coordinationv1.Lease{}
		return l, r.opts.Client.Get(ctx, key, l)
	})
	switch {
	case err == nil:
		r.see(r.now(), l)
	case apierrors.IsNotFound(err):
		r.see(r.now(), nil)
	default:
		return err
	}
	return nil
}

// write writes the lease that it is given to write, if any. The server takes it only if the lease is still as it was seen.
func (r *runner) write(ctx context.Context, what func(time.Time) *coordinationv1.Lease) error {
	began := r.now()
	l := what(began)
	if l == nil {
		return nil
	}
	written, err := within(ctx, r.opts.Clock, r.patience(), func(ctx context.Context) (*coordinationv1.Lease, error) {
		if l.ResourceVersion == "" {
			return l, r.opts.Client.Create(ctx, l)
		}
		return l, r.opts.Client.Update(ctx, l)
	})
	if err != nil {
		return err
	}
	r.wrote(began, r.now(), written)
	return nil
}

// patience is how long a request may take: for a holder, until it must stop acting.
func (r *runner) patience() time.Duration {
	if now := r.now(); r.leads(now) {
		return r.until().Sub(now)
	}
	return r.opts.RenewDeadline
}

func (r *runner) now() time.Time { return r.opts.Clock.Now() }

func sleep(ctx context.Context, c clock.WithTicker, d time.Duration) {
	timer := c.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C():
	}
}

// within calls fn and returns what it returns, or gives up in time. What a call that was given up
// returns later is dropped.
func within[T any](ctx context.Context, c clock.WithTicker, limit time.Duration, fn func(context.Context) (T, error)) (T, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	type result struct {
		value T
		err   error
	}
	results := make(chan result, 1)
	go func() {
		v, err := fn(ctx)
		results <- result{v, err}
	}()
	timer := c.NewTimer(limit)
	defer timer.Stop()
	var none T
	select {
	case r := <-results:
		return r.value, r.err
	case <-ctx.Done():
		return none, ctx.Err()
	case <-timer.C():
		return none, fmt.Errorf("no answer within %v", limit)
	}
}
