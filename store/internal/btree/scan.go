package btree

import "iter"

// From goes through the keys that are not less than the given one, in order.
func (t *Tree[V]) From(key string) iter.Seq2[string, V] {
	return func(yield func(string, V) bool) {
		if t.root != nil {
			t.root.from(key, yield)
		}
	}
}

func (n *node[V]) from(key string, yield func(string, V) bool) bool {
	i, found := n.search(key)
	if n.kids != nil && !found && !n.kids[i].from(key, yield) {
		return false
	}
	for ; i < len(n.items); i++ {
		if !yield(n.items[i].key, n.items[i].value) {
			return false
		}
		if n.kids != nil && !n.kids[i+1].all(yield) {
			return false
		}
	}
	return true
}

func (n *node[V]) all(yield func(string, V) bool) bool {
	for i := range n.items {
		if n.kids != nil && !n.kids[i].all(yield) {
			return false
		}
		if !yield(n.items[i].key, n.items[i].value) {
			return false
		}
	}
	return n.kids == nil || n.kids[len(n.items)].all(yield)
}

// Rank returns how many keys are less than the given one; it looks at one node a level.
func (t *Tree[V]) Rank(key string) int {
	rank := 0
	for n := t.root; n != nil; {
		i, found := n.search(key)
		rank += i
		if n.kids == nil {
			return rank
		}
		for _, k := range n.kids[:i] {
			rank += k.count
		}
		if found {
			return rank + n.kids[i].count
		}
		n = n.kids[i]
	}
	return rank
}
