package workqueue

import (
	"container/heap"
	"slices"
	"time"
)

// The places an entry can be in: the table, a band, the list of keys in work, the delay heap.

// entry returns the entry of a key, made if there is none. The caller has something to say of it.
func (c *core[T]) entry(key T) *entry[T] {
	e := c.entries[key]
	switch {
	case e == nil:
		if c.idle.len >= idleMax {
			e = c.evict()
		} else {
			e = new(entry[T])
		}
		*e = entry[T]{key: key, delayIndex: notDelayed}
		c.entries[key] = e
	case e.isIdle:
		e.isIdle = false
		c.idle.remove(e)
	}
	return e
}

// release puts the entry aside if there is nothing left to say of its key.
func (c *core[T]) release(e *entry[T]) {
	if e.inWork || e.isIdle || e.waits() || e.failures > 0 {
		return
	}
	e.isIdle, e.story = true, nil
	c.idle.push(e)
	if c.idle.len > idleMax {
		c.evict()
	}
}

// evict takes the entry out of the table whose key has been idle for longest.
func (c *core[T]) evict() *entry[T] {
	e := c.idle.last
	c.idle.remove(e)
	delete(c.entries, e.key)
	return e
}

// list is a list of entries, linked by next and prev.
type list[T comparable] struct {
	first, last *entry[T]
	len         int
}

// push puts an entry first.
func (l *list[T]) push(e *entry[T]) {
	e.next, e.prev = l.first, nil
	if l.first == nil {
		l.last = e
	} else {
		l.first.prev = e
	}
	l.first = e
	l.len++
}

// append puts an entry last.
func (l *list[T]) append(e *entry[T]) {
	e.next, e.prev = nil, l.last
	if l.last == nil {
		l.first = e
	} else {
		l.last.next = e
	}
	l.last = e
	l.len++
}

func (l *list[T]) remove(e *entry[T]) {
	if e.prev == nil {
		l.first = e.next
	} else {
		e.prev.next = e.next
	}
	if e.next == nil {
		l.last = e.prev
	} else {
		e.next.prev = e.prev
	}
	e.next, e.prev = nil, nil
	l.len--
}

func (c *core[T]) enterBand(e *entry[T]) {
	e.band = c.bandOf(e.priority)
	e.band.append(e)
	c.depth++
}

func (c *core[T]) leaveBand(e *entry[T]) {
	e.band.remove(e)
	e.band = nil
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
