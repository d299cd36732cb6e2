package schema

import (
	"strings"
	"sync"
)

// fieldsV1 is the type of the field of that name, whose trees are shared and never changed. Most
// objects of a kind are written by the same few managers, so that most of these trees, which are as
// large as the rest of many an object, have been read before.
var fieldsV1 = &Type{Kind: Any, GoName: anyType.GoName, shared: true}

const (
	// sharedTreesMax bounds the trees that are kept, and sharedTextMax the text of one, in bytes:
	// together some megabytes at worst, and next to nothing on a server with few kinds of writers.
	sharedTreesMax = 512
	sharedTextMax  = 4 << 10
)

// sharedTrees are trees by their text. When there are too many it begins anew.
type sharedTrees struct {
	mu    sync.RWMutex
	trees map[string]any
}

var fieldTrees = sharedTrees{trees: map[string]any{}}

func (s *sharedTrees) get(text string) (tree any, ok bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	tree, ok = s.trees[text]
	return tree, ok
}

func (s *sharedTrees) put(text string, tree any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.trees) >= sharedTreesMax {
		clear(s.trees)
	}
	s.trees[text] = tree
}

// sharedTree reads a value whose tree is shared. One about which there is something to say is read by
// itself each time.
func (d *decoder) sharedTree() any {
	if d.space() != '{' {
		return d.tree(false)
	}
	before := d.scanner
	text := d.skip()
	if tree, ok := fieldTrees.get(text); ok {
		return tree
	}
	if !d.bad && len(text) <= sharedTextMax {
		// Of the text and the tree nothing may hold on to the body that they stand in.
		if tree, ok := DecodeTree([]byte(text)); ok {
			fieldTrees.put(strings.Clone(text), tree)
			return tree
		}
	}
	d.scanner = before
	return d.tree(false)
}
