// Package etcd is a store on an etcd cluster. Several processes may be stores on one cluster: they
// see each other's commits, and a read sees every commit that any of them acknowledged before.
//
//	s, err := etcd.Open(ctx, etcd.Options{Endpoints: []string{"10.0.0.1:2379"}, Prefix: "/setpoint"})
//
// The current state and the recent history are in memory, as in the other engines; an etcd watch
// keeps them up to date, and snapshots and watches are served from there. A commit is one
// transaction of etcd that holds only if every key it names is as it was seen; it returns when it
// has come back through the watch. If etcd does not answer, another epoch is begun, in which no
// transaction of an earlier one goes through any more: then it is known what has become of it.
//
// A read asks etcd for the number of the newest commit, together with all other reads that wait, and
// answers when memory has got there. So a process that was stopped, or is cut off, answers late or
// not at all, and never with what is out of date.
//
// Commits that wait, and touch no key of each other, share a transaction: a revision is etcd's, counted
// from where the store began, times 128, and the commit's place in the transaction. What is between
// leaves gaps, as does what else is written to the cluster. Below its prefix, which is nobody else's, a
// store has
//
//	head                 rewritten by every transaction: whose it is, its commits, and what was deleted
//	epoch                rewritten to end what is under way; not there before the first time
//	compacted            up to where the past was given up by Compact
//	quiet                which process has asked the others to wait for a large commit
//	o/RESOURCE/PATH      an object
//
// The head is what makes reads cheap and exact: its revision is that of the newest commits. It
// carries what etcd does not keep of a deletion, the last state that watchers are shown, and by it
// a process knows its own commits when they come back: also those for which it got no answer.
package etcd

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"

	"github.com/setpoint-dev/setpoint/store"
	"github.com/setpoint-dev/setpoint/store/internal/core"
)

// Options say where the cluster is. Endpoints must be set; zero values of the rest are good ones.
type Options struct {
	// Endpoints are the members' client addresses, as host:port or as URLs.
	Endpoints []string
	// Prefix is below which keys are kept: "/setpoint" unless set. Stores with different prefixes
	// know nothing of each other.
	Prefix string
	// TLS, if not nil, is how to speak to the members.
	TLS *tls.Config
	// Username and Password are for a cluster with authentication.
	Username, Password string
	// Timeout is how long commits and reads wait for a cluster that does not answer, beside their
	// contexts: 10 s unless set, in which a cluster elects a leader several times over.
	Timeout time.Duration
	// HistoryAge and HistoryBytes bound how much of the past can be read and watched, by its age
	// and by the memory it keeps alive: nine minutes and 128 MB unless set. Etcd is compacted to it,
	// once a minute, so that a restart finds as much.
	HistoryAge   time.Duration
	HistoryBytes int64
	// Logger is told of the connection's troubles; nothing is logged unless it is set.
	Logger *slog.Logger
}

const (
	defaultPrefix  = "/setpoint"
	defaultTimeout = 10 * time.Second
	// attemptTimeout is after how long a request is sent again, to another member where there is
	// one. A healthy member answers in milliseconds.
	attemptTimeout = 2 * time.Second
	// lateAfter is how long a revision that etcd has may take to arrive before another member is
	// asked for it: one may hear its leader, and yet learn nothing new.
	lateAfter = 2 * time.Second
	// pingEvery and pingTimeout bound how long a dead connection is held for a living one.
	pingEvery, pingTimeout = 5 * time.Second, 2 * time.Second
	// retryAfter is the pause after a request that failed: a cluster that elects takes a second.
	retryAfter = 100 * time.Millisecond
	// compactEvery is how often etcd is told what is not needed any more.
	compactEvery = time.Minute
)

// Store is a store.Store on an etcd cluster.
type Store struct {
	*core.Reader

	options Options
	client  *clientv3.Client
	keys    keys
	base    int64 // etcd's revision at which the store began: its own revision zero
	process process

	ctx     context.Context // ends with the store
	cancel  context.CancelCauseFunc
	running sync.WaitGroup
	ended   sync.Once

	heads  *barrier // of the newest commit
	epochs *barrier // of an epoch that has just begun
	room   room

	mu      sync.Mutex // guards what follows, and makes publishing and telling who waits one step
	core    *core.Core
	reached int64            // etcd's revision that memory has got to
	epoch   int64            // where the epoch began, as of there
	head    place            // of the newest commits, as of there
	waiters []waiter         // for revisions that are not reached yet
	serial  uint64           // of the last token
	trouble error            // why following the cluster failed last
	unwatch func()           // ends the watch that there is
	batches map[token]*batch // under way
	sure    uint64           // the last commit that memory is known to be newer than, as asked counts
	quiet   quiet

	// For the sender, with the lock, too; it is woken when there is something.
	woken    chan struct{}
	asked    uint64    // counts commits
	queue    []*commit // new
	again    []*commit // that were sent in vain
	released []*batch  // whose turns are over
	answered []*batch  // of which it is known what has become
	looked   *look
}

// quiet is when nothing is to be sent, so that a large commit of another process comes through.
type quiet struct {
	process process
	until   time.Time
}

// place is where commits are in etcd, and which ones they are; the zero token if that is not known.
type place struct {
	revision int64
	token    token
	commits  int
}

var _ store.Store = (*Store)(nil)

// Open connects to the cluster, and returns when the store's state has been read. It waits for a
// cluster that is not there yet, no longer than the Timeout.
func Open(ctx context.Context, options Options) (*Store, error) {
	options.fill()
	s := &Store{
		options: options, keys: newKeys(options.Prefix), process: newProcess(),
		core:    core.New(core.Options{HistoryAge: options.HistoryAge, HistoryBytes: options.HistoryBytes}, 0),
		batches: map[token]*batch{}, woken: make(chan struct{}, 1), unwatch: func() {},
		room: room{spent: make(chan struct{}, 1)},
	}
	s.Reader = s.core.Reader()
	s.heads, s.epochs = newBarrier(s.askHead), newBarrier(s.askEpoch)
	s.ctx, s.cancel = context.WithCancelCause(context.Background())
	var err error
	s.client, err = clientv3.New(clientv3.Config{
		Endpoints: options.Endpoints, TLS: options.TLS,
		Username: options.Username, Password: options.Password,
		DialTimeout: options.Timeout, DialKeepAliveTime: pingEvery, DialKeepAliveTimeout: pingTimeout,
		DialOptions: []grpc.DialOption{grpc.WithChainUnaryInterceptor(s.overhear)},
		Logger:      zap.NewNop(),
	})
	if err != nil {
		if refused := refusal(err); refused != nil {
			return nil, refused
		}
		return nil, fmt.Errorf("store: etcd: %w", err)
	}
	if err := s.start(ctx); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

func (o *Options) fill() {
	if o.Prefix == "" {
		o.Prefix = defaultPrefix
	}
	o.Prefix = strings.TrimSuffix(o.Prefix, "/")
	if o.Timeout == 0 {
		o.Timeout = defaultTimeout
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
}

func (s *Store) start(ctx context.Context) error {
	ctx, end := s.during(ctx)
	defer end()
	err := s.persist(ctx, func(ctx context.Context) (err error) {
		s.base, err = s.begin(ctx)
		return err
	})
	if err != nil {
		return s.explain(ctx, err)
	}
	s.reached, s.head.revision = s.base, s.base
	s.running.Go(s.follow)
	s.running.Go(s.send)
	s.running.Go(func() { s.serve(s.heads) })
	s.running.Go(func() { s.serve(s.epochs) })
	s.running.Go(s.compactEtcd)
	s.running.Go(s.measure)
	return s.explain(ctx, s.catchUp(ctx))
}

// begin returns where the store began, which is now if there is none.
func (s *Store) begin(ctx context.Context) (int64, error) {
	made, err := s.client.Txn(ctx).
		If(clientv3.Compare(clientv3.CreateRevision(s.keys.head), "=", 0)).
		Then(clientv3.OpPut(s.keys.head, string(appendHead(nil, s.newToken(), 0)))).
		Else(clientv3.OpGet(s.keys.head)).
		Commit()
	if err != nil {
		return 0, err
	}
	if made.Succeeded {
		return made.Header.Revision, nil
	}
	return made.Responses[0].GetResponseRange().Kvs[0].CreateRevision, nil
}

// Snapshot implements store.Store.
func (s *Store) Snapshot(ctx context.Context) (store.Snapshot, error) {
	if err := s.read(ctx); err != nil {
		return nil, err
	}
	return s.Reader.Snapshot(ctx)
}

// SnapshotAt implements store.Store.
func (s *Store) SnapshotAt(ctx context.Context, at store.Revision) (store.Snapshot, error) {
	if at > s.Revision() {
		if err := s.read(ctx); err != nil {
			return nil, err
		}
	}
	return s.Reader.SnapshotAt(ctx, at)
}

// Watch implements store.Store. It waits for a revision that another process has seen already.
func (s *Store) Watch(resource, prefix string, after store.Revision) (store.Watch, error) {
	if after > s.Revision() {
		if err := s.read(s.ctx); err != nil {
			return nil, err
		}
	}
	return s.Reader.Watch(resource, prefix, after)
}

// read waits until memory has every commit that was acknowledged before the call.
func (s *Store) read(ctx context.Context) error {
	ctx, end := s.during(ctx)
	defer end()
	return s.explain(ctx, s.catchUp(ctx))
}

// Compact implements store.Store, for all stores with the prefix on the cluster: when it returns,
// this one has forgotten, and the others do so as they hear of it. Etcd itself is compacted later.
func (s *Store) Compact(ctx context.Context, before store.Revision) error {
	ctx, end := s.during(ctx)
	defer end()
	return s.explain(ctx, s.compact(ctx, before))
}

func (s *Store) compact(ctx context.Context, before store.Revision) error {
	if before > s.Revision() {
		if err := s.catchUp(ctx); err != nil {
			return err
		}
	}
	switch {
	case before > s.Revision():
		return store.ErrFuture
	case before <= s.Compacted():
		return nil
	}
	return s.put(ctx, s.keys.compacted, strconv.FormatInt(int64(before), 10))
}

// put tells all stores something, and returns when this one has heard it.
func (s *Store) put(ctx context.Context, key, value string) error {
	var at int64
	err := s.persist(ctx, func(ctx context.Context) error {
		answer, err := s.client.Put(ctx, key, value)
		if err == nil {
			at = answer.Header.Revision
		}
		return err
	})
	if err != nil {
		return err
	}
	return s.await(ctx, at)
}

// compactEtcd lets etcd forget what nobody here can read any more.
func (s *Store) compactEtcd() {
	ticker := time.NewTicker(compactEvery)
	defer ticker.Stop()
	for done := store.Revision(0); ; {
		select {
		case <-ticker.C:
		case <-s.ctx.Done():
			return
		}
		s.mu.Lock()
		s.core.Age(time.Now())
		s.mu.Unlock()
		to := s.Compacted()
		if to == done {
			continue
		}
		done = to
		s.forgetInEtcd(to)
	}
}

// forgetInEtcd has etcd give up the history before a revision. Another process may have done so, and
// otherwise it is done with the next.
func (s *Store) forgetInEtcd(before store.Revision) {
	ctx, cancel := context.WithTimeout(s.ctx, attemptTimeout)
	defer cancel()
	at, _ := s.split(before)
	if _, err := s.client.Compact(ctx, at); err != nil {
		s.options.Logger.Debug("store: compacting etcd", slog.Any("error", err))
	}
}

// Close implements store.Store.
func (s *Store) Close() error {
	s.cancel(store.ErrClosed)
	s.running.Wait()
	s.Reader.Close()
	var err error
	s.ended.Do(func() { err = s.client.Close() })
	if err != nil && !errors.Is(err, context.Canceled) {
		return fmt.Errorf("store: etcd: %w", err)
	}
	return nil
}
