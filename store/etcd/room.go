package etcd

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/setpoint-dev/setpoint/store"
)

// Etcd has a quota. When the file of a member reaches it, the cluster takes nothing any more, not even
// deletions, until somebody has defragmented it and disarmed its alarm. A store does not let it come to
// that: when room becomes scarce it refuses what would take more, gives up etcd's history at once,
// defragments the file if it is large for what is in it, and goes on with what makes room. When there is room again, so does everything.

// room is what the quota leaves.
type room struct {
	scarcity atomic.Pointer[scarcity] // nil: there is enough
	written  atomic.Int64             // since it was measured, by whomever
	budget   atomic.Int64             // how much that may be before it is measured again
	spent    chan struct{}            // has an element when it is more
	mu       sync.Mutex               // held while it is measured; guards unseen
	unseen   unseen
}

// scarcity is why commits are refused.
type scarcity struct {
	// severe says that replacements are refused, too, that are no larger than what they replace.
	severe bool
	why    string
}

const (
	// Room is scarce when less than a tenth of the quota is left, and severely so at half of that. What
	// is left, two hundred megabytes of etcd's default of 2 GB, must hold what is deleted, renewed and
	// in flight until the history is compacted.
	scarceAt, severeAt = 10, 20
	// measureEvery is how often the members are asked, beside when much was written: others may write
	// to the cluster, too. While room is scarce somebody waits for more.
	measureEvery, measureOften = 10 * time.Second, time.Second
	// defragmentMax bounds how long a member may take to rewrite its file, gigabytes at most.
	defragmentMax = time.Minute
)

// measure keeps the store aware of the room there is.
func (s *Store) measure() {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		s.measureOnce()
		timer.Reset(measureEvery)
		if s.room.scarcity.Load() != nil {
			timer.Reset(measureOften)
		}
		select {
		case <-timer.C:
		case <-s.room.spent:
		case <-s.ctx.Done():
			return
		}
	}
}

func (s *Store) measureOnce() {
	s.room.mu.Lock()
	defer s.room.mu.Unlock()
	s.room.unseen.wrote(s.room.written.Swap(0), time.Now())
	tightest := measured{}
	for _, member := range s.client.Endpoints() {
		ctx, cancel := context.WithTimeout(s.ctx, attemptTimeout)
		status, err := s.client.Status(ctx, member)
		cancel()
		if err != nil || status.DbSizeQuota <= 0 {
			continue // it does not answer, or is too old to say
		}
		m := measured{member, status.DbSizeQuota, status.DbSize, status.DbSizeInUse}
		if tightest.quota == 0 || m.left() < tightest.left() {
			tightest = m
		}
	}
	if tightest.quota == 0 {
		return
	}
	m := s.room.unseen.added(tightest)
	now, left := m.scarcity(), m.left()
	s.room.budget.Store(left / 4)
	before := s.room.scarcity.Swap(now)
	if (before == nil) != (now == nil) {
		why := "there is room again"
		if now != nil {
			why = now.why
		}
		s.options.Logger.Warn("store: etcd's quota", slog.String("now", why))
	}
	if now != nil {
		s.forgetInEtcd(s.Revision())
		if m.fragmented() {
			s.defragment(m.member)
		}
	}
}

// defragment makes the file of a member small that was fuller once. The member does nothing else
// meanwhile, which costs less than what is refused.
func (s *Store) defragment(member string) {
	ctx, cancel := context.WithTimeout(s.ctx, defragmentMax)
	defer cancel()
	if _, err := s.client.Defragment(ctx, member); err != nil {
		s.options.Logger.Warn("store: defragmenting etcd", slog.String("member", member), slog.Any("error", err))
	}
}

// measured is what a member says of its file: its bytes, and those that are not free for use in it.
type measured struct {
	member            string
	quota, size, used int64
}

// unseen is what was written, and may not be in what members say yet: they say what was on their disks
// when they synced last, which takes them a tenth of a second, or more where the disk is slow.
type unseen struct {
	said  measured
	bytes int64     // since that was said first, and in the interval before
	last  int64     // in the last interval
	at    time.Time // when something was written last
}

// syncedAfter is when members know what was written last, however slow they are.
const syncedAfter = 5 * time.Second

func (u *unseen) wrote(bytes int64, now time.Time) {
	if bytes > 0 {
		u.at = now
	} else if now.Sub(u.at) > syncedAfter {
		u.bytes = 0
	}
	u.bytes, u.last = u.bytes+bytes, bytes
}

// added is what a member says, and what it may not know yet.
func (u *unseen) added(m measured) measured {
	if m != u.said {
		u.said, u.bytes = m, u.last
	}
	m.size, m.used = m.size+u.bytes, m.used+u.bytes
	return m
}

// left is how much can be written. A file that is large because it was fuller once can be written to,
// but it must not grow to the quota, either: the least addition would raise the alarm then.
func (m measured) left() int64 { return min(m.quota-m.used, 2*(m.quota-m.size)) }

// fragmented says that what is scarce is room for the file, not in it.
func (m measured) fragmented() bool { return m.quota-m.used >= m.quota/scarceAt }

func (m measured) scarcity() *scarcity {
	if m.left() >= m.quota/scarceAt {
		return nil
	}
	const mb = 1 << 20
	why := fmt.Sprintf("etcd at %s uses %d MB of its quota of %d MB: delete something, or raise its --quota-backend-bytes",
		m.member, m.used/mb, m.quota/mb)
	if m.fragmented() {
		why = fmt.Sprintf("the file of etcd at %s has %d MB of its quota of %d MB, of which it uses %d MB: defragment it",
			m.member, m.size/mb, m.quota/mb, m.used/mb)
	}
	return &scarcity{severe: m.left() < m.quota/severeAt, why: why}
}

// spend notes what was written to the cluster, by whomever.
func (r *room) spend(bytes int) {
	if r.written.Add(int64(bytes)) <= r.budget.Load() {
		return
	}
	select {
	case r.spent <- struct{}{}:
	default:
	}
}

// refuse returns store.ErrNoSpace for a change that takes room which is scarce.
func (r *room) refuse(op *store.Op, found *store.Entry) error {
	now := r.scarcity.Load()
	if now == nil || op.Type == store.Delete || op.Frees {
		return nil
	}
	// A revision's digits are in what was found only. So a leader can renew its lease, and go on
	// deleting what nobody needs.
	if found != nil && len(op.Value) <= len(found.Value) && !now.severe {
		return nil
	}
	return fmt.Errorf("%w: %s", store.ErrNoSpace, now.why)
}
