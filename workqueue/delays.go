package workqueue

import "time"

// delay is a key that will be ready at a time. Of equal times, what was added first is first.
type delay struct {
	due time.Duration
	seq uint64
	key ref
}

func (d delay) before(o delay) bool { return d.due < o.due || d.due == o.due && d.seq < o.seq }

// delays is a heap of delays, the earliest first. It tells each key's record where it stands.
type delays struct {
	heap  []delay
	place func(key ref, at int)
	seq   uint64
}

// add puts a key in.
func (d *delays) add(key ref, due time.Duration) {
	d.seq++
	d.heap = append(d.heap, delay{due, d.seq, key})
	d.up(len(d.heap) - 1)
}

// advance makes the key at a place due earlier.
func (d *delays) advance(at int, due time.Duration) {
	d.heap[at].due = due
	d.up(at)
}

// remove takes the key at a place out.
func (d *delays) remove(at int) {
	last := len(d.heap) - 1
	moved := d.heap[last]
	d.heap = d.heap[:last]
	if at < last {
		d.heap[at] = moved
		d.down(at)
		d.up(at)
	}
}

func (d *delays) up(at int) {
	x := d.heap[at]
	for at > 0 {
		parent := (at - 1) / 2
		if !x.before(d.heap[parent]) {
			break
		}
		d.set(at, d.heap[parent])
		at = parent
	}
	d.set(at, x)
}

func (d *delays) down(at int) {
	x := d.heap[at]
	for {
		child := 2*at + 1
		if child >= len(d.heap) {
			break
		}
		if right := child + 1; right < len(d.heap) && d.heap[right].before(d.heap[child]) {
			child = right
		}
		if !d.heap[child].before(x) {
			break
		}
		d.set(at, d.heap[child])
		at = child
	}
	d.set(at, x)
}

func (d *delays) set(at int, x delay) {
	d.heap[at] = x
	d.place(x.key, at)
}
