package etcd

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

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

// watch publishes what etcd says until it says no more. It returns nil if it can go on at once.
func (s *Store) watch() error {
	ctx, cancel := context.WithCancel(clientv3.WithRequireLeader(s.ctx))
	defer cancel()
	s.mu.Lock()
	s.unwatch = cancel
	s.mu.Unlock()
	next := s.base + int64(s.Revision()) + 1
	answers := s.client.Watch(ctx, s.keys.prefix, clientv3.WithPrefix(), clientv3.WithRev(next), clientv3.WithFragment())
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
	return errors.New("the watch has ended")
}

// rewatch has etcd followed anew, by another member where there is one.
func (s *Store) rewatch() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.unwatch()
}

// outcome is what a commit of this process did.
type outcome struct {
	commit *commit
	result store.Result
}

// publish shows what some commits did, all at once, and answers those of this process. An answer of
// etcd has only whole commits.
func (s *Store) publish(events []*clientv3.Event) (err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var outcomes []outcome
	for len(events) > 0 && err == nil {
		n := 1
		for n < len(events) && events[n].Kv.ModRevision == events[0].Kv.ModRevision {
			n++
		}
		var own outcome
		if own, err = s.adopt(events[:n]); own.commit != nil {
			outcomes = append(outcomes, own)
		}
		events = events[n:]
	}
	if err != nil {
		s.core.Rollback()
		return err
	}
	s.core.Publish(time.Now())
	for _, o := range outcomes {
		o.commit.done <- o.result
	}
	s.wake()
	return nil
}

// adopt takes the changes of one commit into the core. The head comes last.
func (s *Store) adopt(events []*clientv3.Event) (own outcome, err error) {
	last := events[len(events)-1]
	if string(last.Kv.Key) != s.keys.head || last.Type != mvccpb.PUT {
		return own, errors.New("store: below the store's prefix in etcd somebody else has written")
	}
	t, head := parseHead(last.Kv.Value)
	own.commit = s.commits[t]
	revision := store.Revision(last.Kv.ModRevision - s.base)
	for _, e := range events[:len(events)-1] {
		change, revisionAt, err := s.change(e, &head)
		if err != nil {
			return outcome{}, err
		}
		change.Revision = revision
		entry, err := s.core.Adopt(change, revisionAt)
		if err != nil {
			return outcome{}, err
		}
		own.took(entry)
	}
	if head.err != nil || own.commit == nil {
		return outcome{}, head.err
	}
	own.result.Revision, own.result.Changed = revision, true
	for i, op := range own.commit.ops {
		if own.result.Entries[i] == nil {
			own.result.Entries[i] = s.core.Lookup(op.Key)
		}
	}
	return own, nil
}

// took notes what became of one of the commit's ops.
func (o *outcome) took(entry *store.Entry) {
	if o.commit == nil {
		return
	}
	if o.result.Entries == nil {
		o.result.Entries = make([]*store.Entry, len(o.commit.ops))
	}
	for i := range o.commit.ops {
		if op := &o.commit.ops[i]; op.Key == entry.Key {
			if o.result.Entries[i] = entry; op.Memo != nil {
				entry.Memo.Store(op.Memo)
			}
		}
	}
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
	ch.Value, revisionAt, err = parseValue(e.Kv.Value)
	return ch, revisionAt, errors.Join(err, h.err)
}

// pageKeys is how many objects are read at once when all are.
const pageKeys = 500

// reload replaces what is in memory by the oldest state that etcd still has. What comes after it is
// then watched as usual, so that there is as much history as etcd keeps.
func (s *Store) reload(ctx context.Context, at int64) error {
	var entries []*store.Entry
	end := clientv3.GetPrefixRangeEnd(s.keys.objects)
	for from := s.keys.objects; from != ""; {
		page, err := s.client.Get(ctx, from, clientv3.WithRange(end), clientv3.WithRev(at), clientv3.WithLimit(pageKeys))
		if err != nil {
			return err
		}
		for _, kv := range page.Kvs {
			entry, err := s.entry(kv)
			if err != nil {
				return err
			}
			entries = append(entries, entry)
		}
		if from = ""; page.More {
			from = string(page.Kvs[len(page.Kvs)-1].Key) + "\x00"
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.core.Reset(store.Revision(at-s.base), entries)
	s.wake()
	return nil
}

func (s *Store) entry(kv *mvccpb.KeyValue) (*store.Entry, error) {
	key, err := s.keys.parse(kv.Key)
	if err != nil {
		return nil, err
	}
	value, revisionAt, err := parseValue(kv.Value)
	if err != nil {
		return nil, err
	}
	revision, created := store.Revision(kv.ModRevision-s.base), store.Revision(kv.CreateRevision-s.base)
	return core.Stored(key, value, revisionAt, revision, created), nil
}
