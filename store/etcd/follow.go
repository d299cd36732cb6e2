package etcd

import (
	"context"
	"errors"
	"log/slog"
	"strconv"
	"sync/atomic"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"

	"github.com/setpoint-dev/setpoint/store"
	"github.com/setpoint-dev/setpoint/store/internal/core"
)

// follow keeps memory up to date until the store is closed. Memory is only ever brought from one
// revision to the next: whatever goes wrong, it is behind, and never wrong.
func (s *Store) follow() {
	for s.ctx.Err() == nil {
		if err := s.watch(); err != nil && s.ctx.Err() == nil {
			s.note(s.ctx, err)
			s.options.Logger.Warn("store: following etcd", slog.Any("error", err))
			_ = pause(s.ctx)
		}
	}
}

// once is one stream of watching. When it breaks, etcd's client would open another by itself, and
// nobody would look whether etcd is still what it was.
type once struct {
	pb.WatchClient
	used atomic.Bool
}

var errBroken = errors.New("the connection has ended")

func (o *once) Watch(ctx context.Context, opts ...grpc.CallOption) (pb.Watch_WatchClient, error) {
	if o.used.Swap(true) {
		return nil, errBroken
	}
	return o.WatchClient.Watch(ctx, opts...)
}

// watch publishes what etcd says until it says no more.
func (s *Store) watch() error {
	ctx, cancel := context.WithCancel(clientv3.WithRequireLeader(s.ctx))
	defer cancel()
	s.mu.Lock()
	s.unwatch = cancel
	next, head := s.reached+1, s.head
	s.mu.Unlock()
	stream := &once{WatchClient: pb.NewWatchClient(s.client.ActiveConnection())}
	watcher := clientv3.NewWatchFromWatchClient(stream, s.client)
	defer watcher.Close()
	answers := watcher.Watch(ctx, s.keys.prefix, clientv3.WithPrefix(), clientv3.WithRev(next), clientv3.WithFragment())
	if err := s.verify(ctx, head); err != nil { // the stream is open: nothing can change behind it
		return err
	}
	for answer := range answers {
		if answer.CompactRevision != 0 {
			return s.reload(ctx, answer.CompactRevision)
		}
		if err := answer.Err(); err != nil {
			return err
		}
		if err := s.publish(answer.Events); err != nil {
			return err
		}
	}
	return errBroken
}

// verify fails the store if etcd does not have the commit that was followed last.
func (s *Store) verify(ctx context.Context, head place) error {
	if head.token == (token{}) {
		return nil
	}
	call, cancel := context.WithTimeout(ctx, attemptTimeout)
	defer cancel()
	answer, err := s.client.Get(call, s.keys.head, clientv3.WithRev(head.revision))
	switch {
	case errors.Is(err, rpctypes.ErrFutureRev):
		return s.behind(s.base, head.revision)
	case errors.Is(err, rpctypes.ErrCompacted): // the watch is told so, too
		return nil
	case err != nil:
		return err
	}
	if len(answer.Kvs) == 0 || answer.Kvs[0].CreateRevision != s.base {
		return errNoHead
	}
	if t, _ := parseHead(answer.Kvs[0].Value); answer.Kvs[0].ModRevision != head.revision || t != head.token {
		s.fail(ErrRolledBack)
		return ErrRolledBack
	}
	return nil
}

// rewatch has etcd followed anew, by another member where there is one.
func (s *Store) rewatch() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.unwatch()
}

// news is what an answer of etcd says beside the commits themselves.
type news struct {
	head      place
	epoch     int64
	compacted store.Revision
	quiet     quiet
	came      []*batch // of this process
	outcomes  []outcome
}

// publish shows what some commits did, all at once, and answers those of this process. An answer of
// etcd has only whole transactions.
func (s *Store) publish(events []*clientv3.Event) error {
	if len(events) == 0 {
		return nil
	}
	bytes := 0
	for _, e := range events {
		bytes += len(e.Kv.Key) + len(e.Kv.Value)
	}
	s.room.spend(bytes)
	s.mu.Lock()
	defer s.mu.Unlock()
	n := news{head: s.head, epoch: s.epoch, quiet: s.quiet}
	for rest := events; len(rest) > 0; {
		same := 1
		for same < len(rest) && rest[same].Kv.ModRevision == rest[0].Kv.ModRevision {
			same++
		}
		if err := s.take(&n, rest[:same]); err != nil {
			s.core.Rollback()
			return err
		}
		rest = rest[same:]
	}
	s.core.Publish(time.Now())
	s.head, s.epoch, s.quiet, s.reached = n.head, n.epoch, n.quiet, events[len(events)-1].Kv.ModRevision
	if n.compacted > s.Compacted() {
		if err := s.core.Compact(min(n.compacted, s.Revision())); err != nil {
			return err
		}
	}
	outcomes := n.outcomes
	for _, b := range n.came {
		for i, c := range b.commits {
			c.answer(outcomes[i])
		}
		outcomes = outcomes[len(b.commits):]
		b.came, s.sure = true, max(s.sure, b.sent)
	}
	s.wake()
	return nil
}

// take takes in what happened in a revision of etcd.
func (s *Store) take(n *news, events []*clientv3.Event) error {
	last := events[len(events)-1]
	if last.Type != mvccpb.PUT {
		return errForeign
	}
	switch key := string(last.Kv.Key); {
	case key == s.keys.head:
		t, h := parseHead(last.Kv.Value)
		n.head = place{revision: last.Kv.ModRevision, token: t, commits: h.commits}
		if n.quiet.process == t.process() {
			n.quiet = quiet{} // it is through
		}
		return s.adopt(n, events[:len(events)-1], h)
	case len(events) > 1:
		return errForeign
	case key == s.keys.epoch:
		n.epoch = last.Kv.ModRevision
		return nil
	case key == s.keys.compacted:
		to, err := strconv.ParseInt(string(last.Kv.Value), 10, 64)
		n.compacted = max(n.compacted, store.Revision(to))
		return err
	case key == s.keys.quiet && len(last.Kv.Value) == len(process{}):
		n.quiet = quiet{process(last.Kv.Value), time.Now().Add(quietFor)}
		return nil
	}
	return errForeign
}

// adopt takes the commits of a transaction into the core.
func (s *Store) adopt(n *news, events []*clientv3.Event, h head) error {
	own := s.batches[n.head.token]
	if own != nil && len(own.commits) == h.commits {
		n.came = append(n.came, own)
	}
	for step := range h.commits {
		changes := events[:h.count(len(events))]
		events = events[len(changes):]
		var c *commit
		if own != nil {
			c = own.commits[step]
		}
		result, err := s.adoptOne(s.revision(n.head.revision, step), changes, &h, c)
		if err != nil {
			return err
		}
		if c != nil {
			n.outcomes = append(n.outcomes, outcome{result: result})
		}
	}
	if h.err == nil && len(events) > 0 {
		return errForeign
	}
	return h.err
}

// adoptOne takes the changes of one commit into the core, and says what to answer if somebody waits
// for it.
func (s *Store) adoptOne(
	revision store.Revision, changes []*clientv3.Event, h *head, c *commit,
) (store.Result, error) {
	result := store.Result{Revision: revision, Changed: true}
	var ops []store.Op
	if c != nil {
		ops, result.Entries = c.ops, make([]*store.Entry, len(c.ops))
	}
	next := 0
	for _, e := range changes {
		change, revisionAt, err := s.change(e, h)
		if err != nil {
			return result, err
		}
		change.Revision = revision
		entry, err := s.core.Adopt(change, revisionAt)
		if err != nil {
			return result, err
		}
		for ; next < len(ops); next++ { // changes come in the order of the ops
			if op := &ops[next]; op.Key == entry.Key {
				if result.Entries[next] = entry; op.Memo != nil {
					entry.Memo.Store(op.Memo)
				}
				break
			}
		}
	}
	for i := range ops {
		if result.Entries[i] == nil {
			result.Entries[i] = s.core.Lookup(ops[i].Key)
		}
	}
	return result, h.err
}

// change reads an event, and what the head has on it.
func (s *Store) change(e *clientv3.Event, h *head) (ch core.Change, revisionAt int, err error) {
	if ch.Key, err = s.keys.parse(e.Kv.Key); err != nil {
		return ch, 0, err
	}
	ch.Origin = h.origin()
	if e.Type == mvccpb.DELETE {
		ch.Type = store.Delete
		ch.Value, revisionAt = h.last()
		return ch, revisionAt, h.err
	}
	ch.Type = store.Put
	v, err := parseStored(e.Kv.Value)
	ch.Value = v.value
	return ch, v.revisionAt, errors.Join(err, h.err)
}

// pageKeys is how many objects are read at once when all are.
const pageKeys = 500

// reload replaces what is in memory by the oldest state that etcd still has. What comes after it is
// then watched as usual, so that there is as much history as etcd keeps.
func (s *Store) reload(ctx context.Context, at int64) error {
	marks, err := s.client.Txn(ctx).Then(
		clientv3.OpGet(s.keys.head, clientv3.WithRev(at)), clientv3.OpGet(s.keys.epoch, clientv3.WithRev(at)),
	).Commit()
	if err != nil {
		return err
	}
	head, epoch := marks.Responses[0].GetResponseRange().Kvs, marks.Responses[1].GetResponseRange().Kvs
	if len(head) == 0 || head[0].CreateRevision != s.base {
		return errNoHead
	}
	t, h := parseHead(head[0].Value)
	if h.err != nil {
		return h.err
	}
	newest := place{revision: head[0].ModRevision, token: t, commits: h.commits}
	if newest.revision < s.head.revision {
		s.fail(ErrRolledBack)
		return ErrRolledBack
	}
	var entries []*store.Entry
	if newest.revision > s.head.revision {
		if entries, err = s.readAll(ctx, at); err != nil {
			return err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if newest.revision > s.head.revision {
		s.core.Reset(s.revision(newest.revision, newest.commits-1), entries)
	}
	s.head, s.reached = newest, at
	if len(epoch) > 0 {
		s.epoch = epoch[0].ModRevision
	}
	s.wake()
	return nil
}

// readAll reads all objects as of a revision of etcd's, page by page.
func (s *Store) readAll(ctx context.Context, at int64) (entries []*store.Entry, err error) {
	end := clientv3.GetPrefixRangeEnd(s.keys.objects)
	for from := s.keys.objects; from != ""; {
		page, err := s.client.Get(ctx, from, clientv3.WithRange(end), clientv3.WithRev(at), clientv3.WithLimit(pageKeys))
		if err != nil {
			return nil, err
		}
		for _, kv := range page.Kvs {
			entry, err := s.entry(kv)
			if err != nil {
				return nil, err
			}
			entries = append(entries, entry)
		}
		if from = ""; page.More {
			from = string(page.Kvs[len(page.Kvs)-1].Key) + "\x00"
		}
	}
	return entries, nil
}

func (s *Store) entry(kv *mvccpb.KeyValue) (*store.Entry, error) {
	key, err := s.keys.parse(kv.Key)
	if err != nil {
		return nil, err
	}
	v, err := parseStored(kv.Value)
	if err != nil {
		return nil, err
	}
	return core.Stored(key, v.value, v.revisionAt, s.revision(kv.ModRevision, v.written),
		s.revision(kv.CreateRevision, v.made)), nil
}
