package core

import (
	"github.com/setpoint-dev/setpoint/store"
	"github.com/setpoint-dev/setpoint/store/internal/btree"
)

// snapshot reads a published state.
type snapshot struct {
	reader *Reader
	state  *state
}

type tree = btree.Tree[*store.Entry]

func (s *snapshot) Revision() store.Revision { return s.state.revision }

func (s *snapshot) tree(resource string) *tree {
	res := (*s.reader.resources.Load())[resource]
	if res == nil || res.id >= len(s.state.trees) {
		return &tree{}
	}
	return &s.state.trees[res.id]
}

func (s *snapshot) Get(key store.Key) *store.Entry { return get(s.tree(key.Resource), key.Path) }

func (s *snapshot) List(resource string, opts store.ListOptions) ([]*store.Entry, bool) {
	return list(s.tree(resource), opts)
}

func (s *snapshot) Count(resource string, opts store.ListOptions) int {
	return count(s.tree(resource), opts)
}

func get(t *tree, path string) *store.Entry {
	entry, _ := t.Get(path)
	return entry
}

func list(t *tree, opts store.ListOptions) (entries []*store.Entry, more bool) {
	n := count(t, opts)
	if opts.Limit > 0 && n > opts.Limit {
		n, more = opts.Limit, true
	}
	if n == 0 {
		return nil, more
	}
	entries = make([]*store.Entry, 0, n)
	for _, e := range t.From(start(opts)) {
		entries = append(entries, e)
		if len(entries) == n {
			break
		}
	}
	return entries, more
}

// count does not look at the entries: it is the distance of two places in the tree.
func count(t *tree, opts store.ListOptions) int {
	end := t.Len()
	if after, ok := successor(opts.Prefix); ok {
		end = t.Rank(after)
	}
	return max(0, end-t.Rank(start(opts)))
}

// start is the least path that the options allow.
func start(opts store.ListOptions) string {
	if opts.After < opts.Prefix || opts.After == "" {
		return opts.Prefix
	}
	return opts.After + "\x00"
}

// successor is the least string that is greater than all that have the prefix, if there is one.
func successor(prefix string) (string, bool) {
	for last := len(prefix) - 1; last >= 0; last-- {
		if prefix[last] != 0xff {
			return prefix[:last] + string([]byte{prefix[last] + 1}), true
		}
	}
	return "", false
}
