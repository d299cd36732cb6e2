// Package btree is an ordered map from strings that can be cloned in constant time.
//
// Clones share their nodes. Each tree has an owner token and writes in place to the nodes that
// carry it; any other node is copied first. So a batch of writes between two clones copies a node
// at most once, and a clone never changes when the tree it came from does.
//
// A Tree is read and cloned by any number of goroutines, or written by one.
package btree

import "slices"

// itemsMax bounds a node. 32 items make a node's copy half a kilobyte, which is what a write that
// follows a clone pays per level, and a tree of a million keys four levels deep.
const (
	itemsMax = 32
	itemsMin = itemsMax / 4 // low enough that keys coming and going do not split and merge in turn
)

// Tree is an ordered map. The zero Tree is empty and ready for use.
type Tree[V any] struct {
	root  *node[V]
	owner *owner
}

// An owner is compared by address only; it has a size so that every address is another.
type owner struct{ _ byte }

type item[V any] struct {
	key   string
	value V
}

// A node's children, unless it is a leaf, stand around its items: one more than there are items.
type node[V any] struct {
	owner *owner
	count int // items in the whole subtree
	items []item[V]
	kids  []*node[V]
}

// Clone returns a tree with the same content; neither sees what is later written to the other.
func (t *Tree[V]) Clone() Tree[V] { return Tree[V]{root: t.root} }

// Seal makes the nodes written so far immutable: clones taken before stay what they are when the
// tree is written next. Cloning does not do it, so that it can go on beside readers.
func (t *Tree[V]) Seal() { t.owner = nil }

// Len returns the number of keys.
func (t *Tree[V]) Len() int { return t.root.len() }

func (n *node[V]) len() int {
	if n == nil {
		return 0
	}
	return n.count
}

// Get returns the value of a key, and whether it is there.
func (t *Tree[V]) Get(key string) (value V, ok bool) {
	for n := t.root; n != nil; {
		i, found := n.search(key)
		if found {
			return n.items[i].value, true
		}
		if n.kids == nil {
			break
		}
		n = n.kids[i]
	}
	return value, false
}

// Set puts a value at a key.
func (t *Tree[V]) Set(key string, value V) {
	if t.owner == nil {
		t.owner = new(owner)
	}
	if t.root == nil {
		t.root = &node[V]{owner: t.owner}
	}
	t.root = t.root.writable(t.owner)
	t.root.set(t.owner, key, value)
	if len(t.root.items) > itemsMax {
		old := t.root
		t.root = &node[V]{owner: t.owner, count: old.count, kids: []*node[V]{old}}
		t.root.split(t.owner, 0)
	}
}

// Delete removes a key, and says whether it was there.
func (t *Tree[V]) Delete(key string) bool {
	if _, ok := t.Get(key); !ok {
		return false
	}
	if t.owner == nil {
		t.owner = new(owner)
	}
	t.root = t.root.writable(t.owner)
	t.root.delete(t.owner, key)
	if len(t.root.items) == 0 {
		if t.root.kids == nil {
			t.root = nil
		} else {
			t.root = t.root.kids[0]
		}
	}
	return true
}

// search returns the place of the key, or of the first item after it.
func (n *node[V]) search(key string) (int, bool) {
	lo, hi := 0, len(n.items)
	for lo < hi {
		mid := int(uint(lo+hi) / 2)
		if n.items[mid].key < key {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	return lo, lo < len(n.items) && n.items[lo].key == key
}

func (n *node[V]) writable(o *owner) *node[V] {
	if n.owner == o {
		return n
	}
	c := &node[V]{owner: o, count: n.count}
	c.items = append(make([]item[V], 0, max(len(n.items)+2, itemsMin)), n.items...)
	if n.kids != nil {
		c.kids = append(make([]*node[V], 0, len(n.kids)+2), n.kids...)
	}
	return c
}

// kid makes a child writable and returns it.
func (n *node[V]) kid(o *owner, i int) *node[V] {
	n.kids[i] = n.kids[i].writable(o)
	return n.kids[i]
}

// set puts the value below n, which is writable; n may have one item too many afterwards.
func (n *node[V]) set(o *owner, key string, value V) {
	i, found := n.search(key)
	switch {
	case found:
		n.items[i].value = value
	case n.kids == nil:
		n.items = slices.Insert(n.items, i, item[V]{key, value})
		n.count++
	default:
		kid := n.kid(o, i)
		before := kid.count
		kid.set(o, key, value)
		n.count += kid.count - before
		if len(kid.items) > itemsMax {
			n.split(o, i)
		}
	}
}

// split moves the upper half of a writable child into a new one beside it.
func (n *node[V]) split(o *owner, i int) {
	left := n.kids[i]
	at := len(left.items) / 2
	if i == len(n.kids)-1 {
		// Keys that arrive in order, as at a restart, leave full nodes behind.
		at = len(left.items) - itemsMin
	}
	up := left.items[at]
	right := &node[V]{owner: o}
	right.items = append(make([]item[V], 0, itemsMax+1), left.items[at+1:]...)
	clear(left.items[at:])
	left.items = left.items[:at]
	if left.kids != nil {
		right.kids = append(make([]*node[V], 0, itemsMax+2), left.kids[at+1:]...)
		clear(left.kids[at+1:])
		left.kids = left.kids[:at+1]
	}
	left.recount()
	right.recount()
	n.items = slices.Insert(n.items, i, up)
	n.kids = slices.Insert(n.kids, i+1, right)
}

func (n *node[V]) recount() {
	n.count = len(n.items)
	for _, k := range n.kids {
		n.count += k.count
	}
}

// delete removes a key that is below n, which is writable.
func (n *node[V]) delete(o *owner, key string) {
	n.count--
	i, found := n.search(key)
	if n.kids == nil {
		n.items = slices.Delete(n.items, i, i+1)
		return
	}
	kid := n.kid(o, i)
	if found {
		n.items[i] = kid.deleteLast(o)
	} else {
		kid.delete(o, key)
	}
	n.fill(o, i)
}

func (n *node[V]) deleteLast(o *owner) item[V] {
	n.count--
	if n.kids == nil {
		last := n.items[len(n.items)-1]
		n.items = slices.Delete(n.items, len(n.items)-1, len(n.items))
		return last
	}
	i := len(n.kids) - 1
	last := n.kid(o, i).deleteLast(o)
	n.fill(o, i)
	return last
}

// fill sees to it that child i, which is writable and lost an item, is not too empty.
func (n *node[V]) fill(o *owner, i int) {
	if len(n.kids[i].items) >= itemsMin {
		return
	}
	switch {
	case i > 0 && len(n.kids[i-1].items) > itemsMin:
		n.rotateRight(o, i-1)
	case i+1 < len(n.kids) && len(n.kids[i+1].items) > itemsMin:
		n.rotateLeft(o, i)
	case i > 0:
		n.merge(o, i-1)
	default:
		n.merge(o, i)
	}
}

// rotateRight moves the last item of child i over the item between them to child i+1.
func (n *node[V]) rotateRight(o *owner, i int) {
	left, right := n.kid(o, i), n.kid(o, i+1)
	last := len(left.items) - 1
	right.items = slices.Insert(right.items, 0, n.items[i])
	n.items[i] = left.items[last]
	left.items = slices.Delete(left.items, last, last+1)
	if left.kids != nil {
		right.kids = slices.Insert(right.kids, 0, left.kids[last+1])
		left.kids = slices.Delete(left.kids, last+1, last+2)
	}
	left.recount()
	right.recount()
}

// rotateLeft moves the first item of child i+1 over the item between them to child i.
func (n *node[V]) rotateLeft(o *owner, i int) {
	left, right := n.kid(o, i), n.kid(o, i+1)
	left.items = append(left.items, n.items[i])
	n.items[i] = right.items[0]
	right.items = slices.Delete(right.items, 0, 1)
	if right.kids != nil {
		left.kids = append(left.kids, right.kids[0])
		right.kids = slices.Delete(right.kids, 0, 1)
	}
	left.recount()
	right.recount()
}

// merge appends the item after child i, and child i+1, to child i.
func (n *node[V]) merge(o *owner, i int) {
	left, right := n.kid(o, i), n.kids[i+1]
	left.items = append(append(left.items, n.items[i]), right.items...)
	left.kids = append(left.kids, right.kids...)
	left.recount()
	n.items = slices.Delete(n.items, i, i+1)
	n.kids = slices.Delete(n.kids, i+1, i+2)
}
