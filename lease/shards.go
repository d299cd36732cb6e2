package lease

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// ShardsLabel is on the leases by which replicas tell each other that they are there; its value is
// the name in their Options.
const ShardsLabel = "setpoint.dev/shards"

// RunShards shares work among replicas that run it with the same Name and number of shards: each
// shard has a lease of its own, Name-0 and so on, and the work on it is as in Run, with a term of that
// lease. Every replica wants the shards that it wins by rendezvous hashing over those that are there:
// when one joins or leaves, only the shards that it takes or had move.
//
// A shard that another should have is given up in order: the context of its work ends, the lease is
// kept until the work has ended, and only then can the other begin. If this replica is stopped
// meanwhile, the lease runs out, and what it still writes in its term is refused by its fence.
//
// It returns when the context has ended and all work with it, or when some work has failed; work that
// ends before its context does has.
func RunShards(
	ctx context.Context, opts Options, shards int, work func(context.Context, int, Term) error,
) error {
	if err := opts.fill(); err != nil {
		return err
	}
	if shards < 1 {
		return fmt.Errorf("lease: found %d shards, at least one is needed", shards)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	s := &sharer{
		opts: opts, log: opts.Logger.With("shards", opts.Name, "holder", opts.Holder),
		work: work, fail: cancel, standing: make([]*candidacy, shards),
	}
	parent, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	for ctx.Err() == nil {
		if err := s.look(ctx); err != nil && ctx.Err() == nil {
			s.log.Warn("cannot tell which replicas are there", "err", err)
		}
		s.follow(parent)
		sleep(ctx, opts.Clock, opts.RetryPeriod)
	}
	s.leave(parent) // first, so that others stand for the shards as they are given back
	stop()
	s.running.Wait()
	if err := context.Cause(ctx); !errors.Is(err, context.Canceled) && !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return nil
}

// sharer is one replica.
type sharer struct {
	opts    Options
	log     *slog.Logger
	members members
	own     *coordinationv1.Lease // as the server last had it; nil if that is not known
	work    func(context.Context, int, Term) error
	fail    context.CancelCauseFunc

	standing []*candidacy // by shard; nil where this replica never stood
	running  sync.WaitGroup
}

// candidacy is the time in which a replica wants a shard, and until it has given it back.
type candidacy struct {
	cancel context.CancelFunc
	wanted bool
	ended  chan struct{}
}

// look says that this replica is there, and finds out who else is.
func (s *sharer) look(ctx context.Context) error {
	if err := s.beat(ctx); err != nil {
		return err
	}
	of := []client.ListOption{
		client.InNamespace(s.opts.Namespace), client.MatchingLabels{ShardsLabel: s.opts.Name},
	}
	list, err := ask(ctx, s, func(ctx context.Context) (*coordinationv1.LeaseList, error) {
		list := &coordinationv1.LeaseList{}
		return list, s.opts.Client.List(ctx, list, of...)
	})
	if err != nil {
		return err
	}
	s.members.see(s.opts.Clock.Now(), list.Items)
	return nil
}

// beat renews the lease of this replica, or makes it.
func (s *sharer) beat(ctx context.Context) error {
	l := s.own
	if l == nil {
		l = &coordinationv1.Lease{}
		l.Namespace, l.Name = s.opts.Namespace, s.ownName()
		l.Labels = map[string]string{ShardsLabel: s.opts.Name}
		l.Spec.HolderIdentity = ptr.To(s.opts.Holder)
		l.Spec.LeaseDurationSeconds = ptr.To(int32(s.opts.Duration / time.Second))
	}
	written, err := ask(ctx, s, func(ctx context.Context) (*coordinationv1.Lease, error) {
		l := l.DeepCopy()
		l.Spec.RenewTime = ptr.To(metav1.NewMicroTime(s.opts.Clock.Now()))
		if l.ResourceVersion != "" {
			return l, s.opts.Client.Update(ctx, l)
		}
		if err := s.opts.Client.Create(ctx, l); !apierrors.IsAlreadyExists(err) {
			return l, err
		}
		return l, s.opts.Client.Get(ctx, client.ObjectKeyFromObject(l), l) // left by an answer that was lost
	})
	if err != nil {
		written = nil // whatever it is now, it is found or made the next time
	}
	s.own = written
	return err
}

func (s *sharer) ownName() string {
	return s.opts.Name + "-replica-" + strconv.FormatUint(hash(s.opts.Holder), 36)
}

// follow stands for the shards that this replica should have, and gives up the others.
func (s *sharer) follow(ctx context.Context) {
	live, gone := s.members.split(s.opts.Clock.Now())
	for _, l := range gone {
		s.remove(ctx, l)
	}
	for shard, c := range s.standing {
		wants := ownerOf(shard, live) == s.opts.Holder
		switch {
		case wants && (c == nil || !c.wanted):
			s.standing[shard] = s.stand(ctx, shard, c)
		case !wants && c != nil && c.wanted:
			c.wanted = false
			c.cancel()
		}
	}
}

// stand tries to get a shard and does its work, again and again until it is told to end; but only
// after what it did before has ended.
func (s *sharer) stand(ctx context.Context, shard int, before *candidacy) *candidacy {
	ctx, cancel := context.WithCancel(ctx)
	c := &candidacy{cancel: cancel, wanted: true, ended: make(chan struct{})}
	opts := s.opts
	opts.Name = fmt.Sprintf("%s-%d", s.opts.Name, shard)
	s.running.Go(func() {
		defer close(c.ended)
		defer cancel()
		if before != nil {
			<-before.ended
		}
		for ctx.Err() == nil {
			err := Run(ctx, opts, func(ctx context.Context, t Term) error { return s.work(ctx, shard, t) })
			if ctx.Err() != nil && errors.Is(err, context.Canceled) {
				return // it says that it was told to end
			}
			if err == nil && ctx.Err() == nil {
				err = errors.New("its work ended before it was told to")
			}
			if err != nil && !errors.Is(err, ErrLost) {
				s.fail(fmt.Errorf("shard %d: %w", shard, err))
				return
			}
		}
	})
	return c
}

// leave says that this replica is not there any more.
func (s *sharer) leave(ctx context.Context) {
	if s.own != nil {
		s.remove(ctx, s.own)
	}
}

// remove deletes the lease of a replica, unless it has been renewed.
func (s *sharer) remove(ctx context.Context, l *coordinationv1.Lease) {
	unchanged := client.Preconditions{UID: &l.UID, ResourceVersion: &l.ResourceVersion}
	_, err := ask(ctx, s, func(ctx context.Context) (struct{}, error) {
		return struct{}{}, s.opts.Client.Delete(ctx, l, unchanged)
	})
	if client.IgnoreNotFound(err) != nil {
		s.log.Info("cannot remove the lease of a replica that is gone", "lease", l.Name, "err", err)
	}
}

// ask waits for an answer of the server, but not for long.
func ask[T any](ctx context.Context, s *sharer, fn func(context.Context) (T, error)) (T, error) {
	return within(ctx, s.opts.Clock, s.opts.ReleaseTimeout, fn)
}
