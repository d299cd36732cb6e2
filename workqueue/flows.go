package workqueue

import "slices"

// Ready keys stand in flows, one for each class and priority, first in, first out. The flows of one
// priority are a band and take turns, so that a class with many keys delays another's by one key.

// class is what is shared by the keys between which and others the queue is fair.
type class struct {
	name  string
	retry bucket
	flows []*flow // by priority, in no order
}

// flow holds the ready keys of one class and priority.
type flow struct {
	class       *class
	band        *band
	index       uint32
	refs        int // slots that name it
	first, last ref
	live        int   // slots in it that are not ghosts
	queued      bool  // it stands in its band
	next        *flow // behind it there
}

// band holds the flows of one priority that have, or recently had, ready keys.
type band struct {
	priority    int
	depth       int // ready keys
	flows       int // of this priority, queued or not
	first, last *flow
	served      uint // the turn in which it was last popped from
}

const (
	// shareOfLower is how many pops there are to one that is given to the lower priorities, each in
	// its turn: a fresh change waits for at most one other key in that many, and the lowest priority
	// is served even when higher ones never run dry.
	shareOfLower = 8
	// classesMin is how many classes are kept though they may have nothing to say, and flowsMin how
	// many flows of a class: most come back.
	classesMin, flowsMin = 64, 8
	// bandsMin is how many priorities may be in use before those without flows are dropped.
	bandsMin = 8
)

// classOf returns the class of a key.
func (c *core[T]) classOf(key T) *class {
	name := ""
	if c.cfg.class != nil {
		name = c.cfg.class(key)
	}
	if c.lastClass != nil && c.lastClass.name == name {
		return c.lastClass
	}
	k := c.classes[name]
	if k == nil {
		if len(c.classes) >= c.sweepAt {
			c.sweepClasses()
		}
		k = &class{name: name, retry: newBucket(c.cfg.rate, c.cfg.burst)}
		c.classes[name] = k
	}
	c.lastClass = k
	return k
}

// sweepClasses drops the classes that have no keys and owe nothing for retries.
func (c *core[T]) sweepClasses() {
	c.lastClass = nil
	for name, k := range c.classes {
		c.dropFlows(k)
		if len(k.flows) == 0 && k.retry.full <= c.now {
			delete(c.classes, name)
		}
	}
	c.sweepAt = max(classesMin, 2*len(c.classes))
}

// dropFlows drops the flows of a class that no slot names.
func (c *core[T]) dropFlows(k *class) {
	k.flows = slices.DeleteFunc(k.flows, func(f *flow) bool {
		unused := f.refs == 0 && !f.queued
		if unused {
			f.band.flows--
			c.flows[f.index] = nil
			c.freeFlows = append(c.freeFlows, f.index)
		}
		return unused
	})
}

// enlist makes a class and a priority the slot's.
func (c *core[T]) enlist(s *slot[T], k *class, priority int) {
	f := c.flowOf(k, priority)
	f.refs++
	s.flow = f.index
}

// delist undoes enlist.
func (c *core[T]) delist(s *slot[T]) { c.flows[s.flow].refs-- }

func (c *core[T]) flowOf(k *class, priority int) *flow {
	for _, f := range k.flows {
		if f.band.priority == priority {
			return f
		}
	}
	if len(k.flows) >= flowsMin {
		c.dropFlows(k)
	}
	f := &flow{class: k, band: c.bandOf(priority)}
	f.band.flows++
	if n := len(c.freeFlows); n > 0 {
		f.index, c.freeFlows = c.freeFlows[n-1], c.freeFlows[:n-1]
		c.flows[f.index] = f
	} else {
		f.index = uint32(len(c.flows))
		c.flows = append(c.flows, f)
	}
	k.flows = append(k.flows, f)
	return f
}

func (c *core[T]) bandOf(priority int) *band {
	for _, b := range c.bands {
		if b.priority == priority {
			return b
		}
	}
	if len(c.bands) >= bandsMin {
		c.bands = slices.DeleteFunc(c.bands, func(b *band) bool { return b.flows == 0 })
	}
	at := 0
	for at < len(c.bands) && c.bands[at].priority > priority {
		at++
	}
	b := &band{priority: priority, served: c.turn}
	c.bands = slices.Insert(c.bands, at, b)
	return b
}

// push puts a slot last in its flow.
func (c *core[T]) push(r ref, s *slot[T]) {
	f := c.flows[s.flow]
	s.state |= ready
	s.next = 0
	if f.first == 0 {
		f.first = r
	} else {
		c.table.at(f.last).next = r
	}
	f.last = r
	f.live++
	f.band.depth++
	c.depth++
	if !f.queued {
		f.queue()
	}
}

// queue puts a flow last in its band.
func (f *flow) queue() {
	b := f.band
	f.queued, f.next = true, nil
	if b.first == nil {
		b.first = f
	} else {
		b.last.next = f
	}
	b.last = f
}

// unqueue takes the first flow out of the band.
func (b *band) unqueue() *flow {
	f := b.first
	b.first = f.next
	f.queued, f.next = false, nil
	return f
}

// shift takes the first slot out of the band, which is not empty.
func (c *core[T]) shift(b *band) (ref, *slot[T]) {
	for {
		f := b.unqueue()
		r, s := c.head(f)
		if s == nil {
			continue
		}
		f.behead(s.next)
		s.state &^= ready
		f.live--
		b.depth--
		c.depth--
		if _, more := c.head(f); more != nil {
			f.queue()
		}
		return r, s
	}
}

// head returns the first slot of a flow, without the ghosts before it; nil if there is none.
func (c *core[T]) head(f *flow) (ref, *slot[T]) {
	for f.first != 0 {
		r, s := f.first, c.table.at(f.first)
		if s.state != ghost {
			return r, s
		}
		f.behead(s.next)
		*s = slot[T]{}
		c.table.release(r)
	}
	return 0, nil
}

// behead takes out the first slot, which the next is behind.
func (f *flow) behead(next ref) {
	if f.first = next; next == 0 {
		f.last = 0
	}
}

// raise gives a key that waits a higher priority. In its new flow it is last.
func (c *core[T]) raise(r ref, s *slot[T], priority int) (ref, *slot[T]) {
	f := c.flows[s.flow]
	c.delist(s)
	if s.state&ready == 0 {
		c.enlist(s, f.class, priority)
		return r, s
	}
	// Nothing can be taken out of the middle of a flow: the key gets another slot, and leaves a ghost.
	moved, m := c.table.alloc()
	*m = *s
	c.table.unlink(r, s, moved)
	*s = slot[T]{state: ghost, next: s.next}
	f.live--
	f.band.depth--
	c.depth--
	c.enlist(m, f.class, priority)
	c.push(moved, m)
	return moved, m
}

// nextBand chooses the band to pop from: the highest that has keys, and once in a while the one of
// the others that was served longest ago.
func (c *core[T]) nextBand() *band {
	var highest, other *band
	for _, b := range c.bands {
		switch {
		case b.depth == 0:
		case highest == nil:
			highest = b
		case other == nil || b.served < other.served:
			other = b
		}
	}
	if other == nil {
		return highest
	}
	if c.turn++; c.turn%shareOfLower == 0 {
		other.served = c.turn
		return other
	}
	return highest
}
