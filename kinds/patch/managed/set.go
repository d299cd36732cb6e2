package managed

// node is a place in a set of fields: its keys are path elements as fieldsV1 spells them. A node is
// itself in the set if it is empty or has the key ".". A nil node is the empty set. Nodes are
// shared: the functions here never change one that they were given.
type node = map[string]any

// leaf is the node of a field that is in the set and has nothing below.
var leaf = node{}

const self = "."

func inSet(n node) bool {
	if n == nil {
		return false
	}
	_, ok := n[self]
	return ok || len(n) == 0
}

// build makes a node of children that the caller gives away; nil if nothing is in it.
func build(children node, member bool) node {
	switch {
	case len(children) == 0 && !member:
		return nil
	case len(children) == 0:
		return leaf
	case member:
		children[self] = leaf
	}
	return children
}

// subtract returns the fields of a that are not in b.
func subtract(a, b node) node {
	if a == nil || b == nil || !overlap(a, b) {
		return a
	}
	out := make(node, len(a))
	for key, v := range a {
		child, _ := v.(node)
		if key == self || child == nil {
			continue
		}
		other, _ := b[key].(node)
		if child = subtract(child, other); child != nil {
			out[key] = child
		}
	}
	return build(out, inSet(a) && !inSet(b))
}

func overlap(a, b node) bool {
	if inSet(a) && inSet(b) {
		return true
	}
	for key := range b {
		if _, ok := a[key]; ok && key != self {
			return true
		}
	}
	return false
}

// covers says whether all fields of b are in a.
func covers(a, b node) bool {
	if inSet(b) && !inSet(a) {
		return false
	}
	for key, v := range b {
		child, _ := v.(node)
		other, _ := a[key].(node)
		if key != self && !covers(other, child) {
			return false
		}
	}
	return true
}

// union returns the fields of both. Who writes the same fields again and again costs no new set.
func union(a, b node) node {
	if covers(a, b) {
		return a
	}
	if a == nil {
		return b
	}
	out := make(node, max(len(a), len(b)))
	for key, v := range a {
		out[key] = v
	}
	for key, v := range b {
		child, _ := v.(node)
		other, _ := out[key].(node)
		out[key] = union(other, child)
	}
	delete(out, self)
	return build(out, inSet(a) || inSet(b))
}

// without returns the set without the field at a path and everything below.
func without(n node, path ...string) node {
	child, ok := n[path[0]].(node)
	if !ok {
		return n
	}
	out := make(node, len(n))
	for key, v := range n {
		out[key] = v
	}
	delete(out, path[0])
	if len(path) > 1 {
		if child = without(child, path[1:]...); child != nil {
			out[path[0]] = child
		}
	}
	delete(out, self)
	return build(out, inSet(n))
}
