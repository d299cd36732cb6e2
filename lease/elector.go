package lease

import (
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// An elector decides, and does nothing: it is told what the server said and what time it is, and
// says what to write. Times of others' clocks are never compared with ours: another's lease counts
// as run out when it has not changed for its duration by our clock.
type elector struct {
	opts Options

	seen   *coordinationv1.Lease // as the server last had it; nil if it had none
	seenAt time.Time             // when we first saw its last change
	term   int64                 // our epoch; zero while we don't lead
	held   time.Time             // when we began to write the last renewal that went through
}

// see takes in what the server has; nil if there is no lease.
func (e *elector) see(now time.Time, l *coordinationv1.Lease) {
	if e.seen == nil || l == nil || e.seen.ResourceVersion != l.ResourceVersion {
		e.seenAt = now
	}
	e.seen = l
	if e.term != 0 && (l == nil || ptr.Deref(l.Spec.HolderIdentity, "") != e.opts.Holder || epochOf(l) != e.term) {
		e.term = 0 // somebody else has it, or had it
	}
}

// next returns the lease to write now, or nil if there is nothing to do but wait.
func (e *elector) next(now time.Time) *coordinationv1.Lease {
	switch {
	case e.leads(now):
		return e.renewal(now)
	case e.seen == nil:
		l := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{
			Namespace: e.opts.Namespace, Name: e.opts.Name,
		}}
		e.claim(now, l, 1)
		return l
	case e.free(now):
		l := e.seen.DeepCopy()
		e.claim(now, l, epochOf(l)+1)
		return l
	}
	return nil
}

// free says whether the lease can be taken: given back, run out, or left by an earlier run of ours.
func (e *elector) free(now time.Time) bool {
	holder := ptr.Deref(e.seen.Spec.HolderIdentity, "")
	if holder == "" || holder == e.opts.Holder {
		return true
	}
	duration := time.Duration(ptr.Deref(e.seen.Spec.LeaseDurationSeconds, 0)) * time.Second
	return !now.Before(e.seenAt.Add(duration))
}

// claim begins a new term, even after one of our own: what an earlier run still has under way must
// not pass for ours.
func (e *elector) claim(now time.Time, l *coordinationv1.Lease, epoch int64) {
	l.Spec.HolderIdentity = ptr.To(e.opts.Holder)
	l.Spec.LeaseDurationSeconds = ptr.To(int32(e.opts.Duration / time.Second))
	l.Spec.AcquireTime = ptr.To(metav1.NewMicroTime(now))
	l.Spec.RenewTime = l.Spec.AcquireTime
	l.Spec.LeaseTransitions = ptr.To(int32(epoch))
}

// extend returns the lease that renews the term, or nil if there is none to renew: what is done in a term
// that is over must not go on in another, whose fence it does not carry.
func (e *elector) extend(now time.Time) *coordinationv1.Lease {
	if !e.leads(now) {
		return nil
	}
	return e.renewal(now)
}

func (e *elector) renewal(now time.Time) *coordinationv1.Lease {
	l := e.seen.DeepCopy()
	l.Spec.RenewTime = ptr.To(metav1.NewMicroTime(now))
	return l
}

// release returns the lease to write so that another can take it at once.
func (e *elector) release(now time.Time) *coordinationv1.Lease {
	l := e.renewal(now)
	l.Spec.HolderIdentity = ptr.To("")
	l.Spec.LeaseDurationSeconds = ptr.To(int32(1))
	return l
}

// wrote takes in that a write went through, and the lease as the server answered. The term counts
// from when the write began; if that is too long ago, it has run out before it was known.
func (e *elector) wrote(began, now time.Time, l *coordinationv1.Lease) {
	e.seen, e.seenAt, e.held = l, now, began
	e.term = epochOf(l)
	if !e.leads(now) {
		e.term = 0
	}
}

// leads says whether we may act as the holder.
func (e *elector) leads(now time.Time) bool { return e.term != 0 && now.Before(e.until()) }

// until is when we stop acting as the holder unless the lease is renewed: earlier than others may
// take it.
func (e *elector) until() time.Time { return e.held.Add(e.opts.RenewDeadline) }

func epochOf(l *coordinationv1.Lease) int64 { return int64(ptr.Deref(l.Spec.LeaseTransitions, 0)) }
