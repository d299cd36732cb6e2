package etcd

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/status"

	"github.com/setpoint-dev/setpoint/store"
)

// ErrRolledBack says that the cluster has lost commits that this process has seen, as one has that
// was restored from an old backup. What the process knows is not true any more: it serves nothing,
// until it is started anew.
var ErrRolledBack = errors.New("store: etcd has lost commits that this process has seen: " +
	"was it restored from a backup? Start the process anew to go on with what etcd has")

var (
	errNoHead  = errors.New("store: the store's keys have been deleted from etcd")
	errTimeout = fmt.Errorf("%w from etcd", store.ErrNoAnswer)
	errForeign = errors.New("store: below the store's prefix in etcd somebody else has written")
)

// behind is the trouble with a cluster that says that it is not as far as it was. If it stays so,
// ErrRolledBack is what everybody is told.
func (s *Store) behind(is, was int64) error {
	return fmt.Errorf("%w (it is at revision %d, and was at %d)", ErrRolledBack, s.revision(is, 0), s.revision(was, 0))
}

// fail ends the store for good.
func (s *Store) fail(err error) {
	s.options.Logger.Error(err.Error())
	s.cancel(err)
	s.Reader.Close()
}

// persist tries a request that may be done twice until it is answered or the context ends.
func (s *Store) persist(ctx context.Context, try func(context.Context) error) error {
	for {
		call, cancel := context.WithTimeout(clientv3.WithRequireLeader(ctx), attemptTimeout)
		err := try(call)
		cancel()
		if err == nil {
			s.note(ctx, nil)
			return nil
		}
		if errors.Is(err, errNoHead) {
			return err
		}
		if refused := refusal(err); refused != nil {
			return refused
		}
		s.note(ctx, err)
		if err := pause(ctx); err != nil {
			return err
		}
	}
}

// refusal returns what somebody is told whose request etcd will never do as it is, or nil.
func refusal(err error) error {
	err = rpctypes.Error(err)
	switch {
	case errors.Is(err, rpctypes.ErrNoSpace):
		return fmt.Errorf("%w: etcd has reached its quota", store.ErrNoSpace)
	case errors.Is(err, rpctypes.ErrRequestTooLarge), errors.Is(err, rpctypes.ErrTooManyOps),
		strings.Contains(err.Error(), "message larger than max"): // so says gRPC, in words only
		return fmt.Errorf("%w: %w", store.ErrTooLarge, err)
	case errors.Is(err, rpctypes.ErrPermissionDenied), errors.Is(err, rpctypes.ErrAuthFailed),
		errors.Is(err, rpctypes.ErrUserEmpty), errors.Is(err, rpctypes.ErrAuthNotEnabled):
		return fmt.Errorf("store: etcd does not let the server in: %w", err)
	}
	return nil
}

// pause waits before the next attempt.
func pause(ctx context.Context) error {
	timer := time.NewTimer(retryAfter)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// during returns a context that ends with the store, too, and in time.
func (s *Store) during(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithTimeoutCause(ctx, s.options.Timeout, errTimeout)
	stop := context.AfterFunc(s.ctx, cancel)
	return ctx, func() { stop(); cancel() }
}

// explain returns the error that a caller is told: why the context of during ended, where that is
// what went wrong.
func (s *Store) explain(ctx context.Context, err error) error {
	var conflict *store.ConflictError
	switch {
	case err == nil, errors.As(err, &conflict):
		return err
	case s.ctx.Err() != nil:
		return context.Cause(s.ctx)
	case ctx.Err() == nil:
		return err
	}
	cause := context.Cause(ctx)
	if !errors.Is(cause, errTimeout) {
		return cause
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.trouble == nil:
		return fmt.Errorf("%w for %v, at %s", errTimeout, s.options.Timeout, s.hosts())
	case errors.Is(s.trouble, ErrRolledBack):
		return s.trouble
	}
	return fmt.Errorf("%w for %v, at %s: %w", errTimeout, s.options.Timeout, s.hosts(), s.trouble)
}

func (s *Store) hosts() string { return strings.Join(s.options.Endpoints, ", ") }

// note keeps what went wrong with the cluster last, nil if it is well again, unless what went wrong
// is that nobody waits any more, or waited for long.
func (s *Store) note(ctx context.Context, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	late := errors.Is(err, context.DeadlineExceeded) && s.trouble != nil
	if ctx.Err() == nil && !late {
		s.trouble = err
	}
}

// overhear notes why members cannot be reached, before etcd's client makes a mere timeout of it.
func (s *Store) overhear(
	ctx context.Context, method string, req, reply any, conn *grpc.ClientConn,
	next grpc.UnaryInvoker, opts ...grpc.CallOption,
) error {
	err := next(ctx, method, req, reply, conn, opts...)
	if why := status.Convert(err).Message(); strings.Contains(why, "connection error") {
		s.note(context.Background(), errors.New(why))
	}
	return err
}
