package core

import (
	"context"
	"sync"

	"github.com/setpoint-dev/setpoint/store"
)

// past keeps the last few old revisions that were read. The pages of a list all name the same
// one, and each would undo the same events again.
type past struct {
	mu        sync.Mutex
	snapshots []*pastSnapshot // least recently used first
}

// pastMax is how many lists that are being paged through find their state at once.
const pastMax = 16

// pastSnapshot is the state as of a revision, made from a later one by undoing the events between
// them, for each resource when it is first asked for.
type pastSnapshot struct {
	reader   *Reader
	revision store.Revision
	later    *state
	logs     map[string]*eventLog // as they were when the snapshot was made; never compacted

	mu    sync.Mutex
	trees map[string]*tree
}

// SnapshotAt returns the state as of a revision.
func (r *Reader) SnapshotAt(ctx context.Context, at store.Revision) (store.Snapshot, error) {
	if r.closed.Load() {
		return nil, store.ErrClosed
	}
	now := r.state.Load()
	switch {
	case at > now.revision:
		return nil, store.ErrFuture
	case at < r.Compacted():
		return nil, store.ErrCompacted
	case at == now.revision:
		return &snapshot{reader: r, state: now}, nil
	}
	if s := r.past.find(at); s != nil {
		return s, nil
	}
	r.between()
	s := &pastSnapshot{reader: r, revision: at, later: now, trees: map[string]*tree{}}
	s.logs = make(map[string]*eventLog)
	for name, res := range *r.resources.Load() {
		s.logs[name] = res.log.Load()
	}
	// Had a compaction begun before the logs were loaded, it would show by now.
	if at < r.Compacted() {
		return nil, store.ErrCompacted
	}
	r.past.add(s)
	return s, nil
}

func (p *past) find(at store.Revision) *pastSnapshot {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, s := range p.snapshots {
		if s.revision == at {
			p.snapshots = append(append(p.snapshots[:i], p.snapshots[i+1:]...), s)
			return s
		}
	}
	return nil
}

func (p *past) add(s *pastSnapshot) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.snapshots) == pastMax {
		p.snapshots = append(p.snapshots[:0], p.snapshots[1:]...)
	}
	p.snapshots = append(p.snapshots, s)
}

// compact forgets what is older than the revision.
func (p *past) compact(to store.Revision) {
	p.mu.Lock()
	defer p.mu.Unlock()
	kept := p.snapshots[:0]
	for _, s := range p.snapshots {
		if s.revision >= to {
			kept = append(kept, s)
		}
	}
	clear(p.snapshots[len(kept):])
	p.snapshots = kept
}

func (s *pastSnapshot) Revision() store.Revision { return s.revision }

func (s *pastSnapshot) Get(key store.Key) *store.Entry { return get(s.tree(key.Resource), key.Path) }

func (s *pastSnapshot) List(resource string, opts store.ListOptions) ([]*store.Entry, bool) {
	return list(s.tree(resource), opts)
}

func (s *pastSnapshot) Count(resource string, opts store.ListOptions) int {
	return count(s.tree(resource), opts)
}

func (s *pastSnapshot) tree(resource string) *tree {
	s.mu.Lock()
	defer s.mu.Unlock()
	if t := s.trees[resource]; t != nil {
		return t
	}
	t := (&snapshot{reader: s.reader, state: s.later}).tree(resource).Clone()
	if log := s.logs[resource]; log != nil {
		undo(&t, log, s.later.revision, s.revision)
	}
	s.trees[resource] = &t
	return &t
}

// undo takes a tree back from one revision to an older one.
func undo(t *tree, log *eventLog, from, to store.Revision) {
	oldest := log.after(to)
	for seq := log.after(from); seq > oldest; seq-- {
		e := log.at(seq - 1)
		if e.Prev == nil {
			t.Delete(e.Entry.Key.Path)
		} else {
			t.Set(e.Entry.Key.Path, e.Prev)
		}
	}
}
