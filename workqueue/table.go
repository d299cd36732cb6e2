package workqueue

import (
	"hash/maphash"
	"time"
)

// A queue may hold a million keys, so what it holds of each is one cache line and no more: slots in
// chunks that never move, linked by numbers of four bytes, in a table that grows by one bucket at a
// time. What most keys don't have (failures, a delay, a story) is in a record beside.

// ref names a slot or a record; zero names none.
type ref uint32

// slot is what is known of every key. It exists while the key waits or is in work, or has failures
// to remember. For keys of a name and a namespace it has 64 bytes.
type slot[T comparable] struct {
	key    T
	since  time.Duration // begin of the work, if in work, or else of the wait
	hash   uint32
	chain  ref    // next in its bucket
	next   ref    // behind it in its flow; in work, the place in core.working
	record ref    // zero if there is no more to say
	flow   uint32 // that it is in, or will be in when it is ready
	adds   uint16 // that the wait stands for; no more are counted than fit
	state  state
}

// state says where a key is. It may be in work and wait, too.
type state uint8

const (
	ready   state = 1 << iota // in its flow: may be popped
	delayed                   // in the heap of delays: will be ready
	working                   // popped, and not yet done
	dirty                     // will be ready when it is done
	ghost                     // not a key any more, but what is left of one in a flow

	waiting = ready | delayed | dirty
)

// record is what is known of keys that more than waited once.
type record struct {
	since     time.Duration // begin of the wait, if the key is in work besides
	place     int           // in the heap of delays, if it is delayed
	failures  int
	retry     bool // the delay is for a failure, and has yet to be paid from the bucket of all
	lastError error
	reasons   []Reason
}

// chunkLen has a chunk of slots of 64 bytes, and the 8 bytes that the allocator keeps with it, fit into
// 4 KB. One slot more would take the next size it has, a fifth larger.
const chunkLen = 63

// arena hands out room for things and takes it back. What it has handed out stays where it is.
type arena[E any] struct {
	chunks []*[chunkLen]E
	used   ref // all below have been handed out once
	free   []ref
}

func (a *arena[E]) at(r ref) *E { return &a.chunks[r/chunkLen][r%chunkLen] }

// alloc returns room for one thing, zero or as free left it.
func (a *arena[E]) alloc() (ref, *E) {
	if n := len(a.free); n > 0 {
		r := a.free[n-1]
		a.free = a.free[:n-1]
		return r, a.at(r)
	}
	if a.used++; int(a.used/chunkLen) == len(a.chunks) {
		a.chunks = append(a.chunks, new([chunkLen]E))
	}
	return a.used, a.at(a.used)
}

// release takes room back. When all of it has come back and it was much, it is given up.
func (a *arena[E]) release(r ref) {
	a.free = append(a.free, r)
	if len(a.free) == int(a.used) && len(a.chunks) > keepChunks {
		*a = arena[E]{}
	}
}

const (
	// keepChunks is how much room an empty arena keeps: what a busy queue needs from one moment to
	// the next, and not what it needed for a million keys once.
	keepChunks = 16
	// loadMax is how many slots there are to a bucket. As hashes are compared before keys, a second
	// slot costs a look at one number.
	loadMax = 2
	// bucketsMin is how many buckets a table begins with.
	bucketsMin = 64
)

// table finds the slots of keys. It is a linear hash table: with each few slots one more bucket
// is split, so that no key ever waits for the whole of it to grow.
type table[T comparable] struct {
	arena[slot[T]]
	seed  maphash.Seed
	heads []ref
	mask  uint32 // the least 2^n-1 that is not below len(heads)-1
	len   int
}

func newTable[T comparable]() table[T] {
	return table[T]{seed: maphash.MakeSeed(), heads: make([]ref, bucketsMin), mask: bucketsMin - 1}
}

func (t *table[T]) bucket(hash uint32) *ref {
	b := hash & t.mask
	if int(b) >= len(t.heads) {
		b &= t.mask >> 1
	}
	return &t.heads[b]
}

// find returns the slot of a key, nil if there is none.
func (t *table[T]) find(key T) (ref, *slot[T]) {
	return t.search(key, uint32(maphash.Comparable(t.seed, key)))
}

func (t *table[T]) search(key T, hash uint32) (ref, *slot[T]) {
	for r := *t.bucket(hash); r != 0; {
		s := t.at(r)
		if s.hash == hash && s.key == key {
			return r, s
		}
		r = s.chain
	}
	return 0, nil
}

// insert returns the slot of a key, made if there is none.
func (t *table[T]) insert(key T) (r ref, s *slot[T], made bool) {
	hash := uint32(maphash.Comparable(t.seed, key))
	if r, s = t.search(key, hash); s != nil {
		return r, s, false
	}
	if t.len++; t.len > loadMax*len(t.heads) {
		t.split()
	}
	r, s = t.alloc()
	head := t.bucket(hash)
	*s = slot[T]{key: key, hash: hash, chain: *head}
	*head = r
	return r, s, true
}

// split adds a bucket, and moves there what belongs there.
func (t *table[T]) split() {
	n := uint32(len(t.heads))
	if n > t.mask {
		t.mask = t.mask<<1 | 1
	}
	t.heads = append(t.heads, 0)
	link := &t.heads[n&(t.mask>>1)]
	for *link != 0 {
		r, s := *link, t.at(*link)
		if s.hash&t.mask == n {
			*link, s.chain, t.heads[n] = s.chain, t.heads[n], r
		} else {
			link = &s.chain
		}
	}
}

// unlink takes a slot out of its bucket and puts another, or none, in its place.
func (t *table[T]) unlink(r ref, s *slot[T], instead ref) {
	link := t.bucket(s.hash)
	for *link != r {
		link = &t.at(*link).chain
	}
	*link = s.chain
	if instead != 0 {
		t.at(instead).chain, *link = s.chain, instead
	}
}

// remove forgets a key and frees its slot.
func (t *table[T]) remove(r ref, s *slot[T]) {
	t.unlink(r, s, 0)
	*s = slot[T]{} // nothing of a key that is gone is kept
	t.release(r)
	if t.len--; t.len == 0 && len(t.heads) > keepChunks*chunkLen {
		t.heads, t.mask = make([]ref, bucketsMin), bucketsMin-1
	}
}
