package workqueue

import (
	"container/heap"
	"slices"
	"time"
)

// The places an entry can be in: the table, a band, the list of keys in work, the delay heap.

func (c *core[T]) newEntry(key T) *entry[T] {
	e := c.free
	if e == nil {
		e = new(entry[T])
	} else {
		c.free, e.next = e.next, nil
		c.spare--
	}
	e.key, e.delayIndex = key, notDelayed
	c.entries[key] = e
	return e
}

// release drops the entry if there is nothing left to know of its key.
func (c *core[T]) release(e *entry[T]) {
	if e.inWork || e.waits() || e.failures > 0 {
		return
	}
	delete(c.entries, e.key)
	if c.spare < spareMax {
		*e = entry[T]{next: c.free}
		c.free = e
		c.spare++
	}
}

func (c *core[T]) enterBand(e *entry[T]) {
	b := c.bandOf(e.priority)
	e.band, e.next, e.prev = b, nil, b.last
	if b.last == nil {
		b.first = e
	} else {
		b.last.next = e
	}
	b.last = e
	c.depth++
}

func (c *core[T]) leaveBand(e *entry[T]) {
	b := e.band
	if e.prev == nil {
		b.first = e.next
	} else {
		e.prev.next = e.next
	}
	if e.next == nil {
		b.last = e.prev
	} else {
		e.next.prev = e.prev
	}
	e.band, e.next, e.prev = nil, nil, nil
	c.depth--
}

func (c *core[T]) bandOf(priority int) *band[T] {
	for _, b := range c.bands {
		if b.priority == priority {
			return b
		}
	}
	if len(c.bands) >= bandsMax {
		c.bands = slices.DeleteFunc(c.bands, func(b *band[T]) bool { return b.first == nil })
	}
	at := 0
	for at < len(c.bands) && c.bands[at].priority > priority {
		at++
	}
	b := &band[T]{priority: priority}
	c.bands = slices.Insert(c.bands, at, b)
	return b
}

func (c *core[T]) linkWorking(e *entry[T]) {
	e.next, e.prev = c.working, nil
	if c.working != nil {
		c.working.prev = e
	}
	c.working = e
}

func (c *core[T]) unlinkWorking(e *entry[T]) {
	if e.prev == nil {
		c.working = e.next
	} else {
		e.prev.next = e.next
	}
	if e.next != nil {
		e.next.prev = e.prev
	}
	e.next, e.prev = nil, nil
}

// delay puts the key into the delay heap, or moves it forward; it never moves it back. It reports
// whether the heap's earliest time changed.
func (c *core[T]) delay(e *entry[T], due time.Duration) bool {
	switch {
	case e.delayIndex == notDelayed:
		e.due = due
		heap.Push(&c.delayed, e)
	case due < e.due:
		e.due = due
		heap.Fix(&c.delayed, int(e.delayIndex))
	default:
		return false
	}
	return c.delayed[0] == e
}

func (c *core[T]) undelay(e *entry[T]) {
	if e.delayIndex != notDelayed {
		heap.Remove(&c.delayed, int(e.delayIndex))
	}
}

// delays is a heap of entries, the earliest due first.
type delays[T comparable] []*entry[T]

func (d delays[T]) Len() int           { return len(d) }
func (d delays[T]) Less(i, j int) bool { return d[i].due < d[j].due }

func (d delays[T]) Swap(i, j int) {
	d[i], d[j] = d[j], d[i]
	d[i].delayIndex, d[j].delayIndex = int32(i), int32(j)
}

func (d *delays[T]) Push(x any) {
	e := x.(*entry[T])
	e.delayIndex = int32(len(*d))
	*d = append(*d, e)
}

func (d *delays[T]) Pop() any {
	last := len(*d) - 1
	e := (*d)[last]
	(*d)[last] = nil
	*d = (*d)[:last]
	e.delayIndex = notDelayed
	return e
}
