package admission

import (
	"sync"

	"github.com/setpoint-dev/setpoint/kinds"
	"github.com/setpoint-dev/setpoint/store"
)

// cache keeps what was made of each object of a kind until the object changes.
type cache[T any] struct {
	mu  sync.Mutex
	all map[store.Key]cached[T]
}

type cached[T any] struct {
	revision store.Revision
	made     T
}

// cachedMax bounds what is remembered; objects that are gone are forgotten with all others.
const cachedMax = 10_000

// list returns what is made of each object of a kind, in order of name. An object that cannot be
// read is an error: who depends on it is not told that it is not there.
func (c *cache[T]) list(s State, k *kinds.Kind, namespace string, make func(kinds.Object) T) ([]T, error) {
	if k == nil {
		return nil, nil
	}
	entries := s.Entries(k, namespace)
	if len(entries) == 0 {
		return nil, nil
	}
	out := []T{}
	for _, e := range entries {
		made, err := c.one(s, k, e, make)
		if err != nil {
			return nil, err
		}
		out = append(out, made)
	}
	return out, nil
}

func (c *cache[T]) one(s State, k *kinds.Kind, e *store.Entry, make func(kinds.Object) T) (T, error) {
	c.mu.Lock()
	found, ok := c.all[e.Key]
	c.mu.Unlock()
	if ok && found.revision == e.Revision {
		return found.made, nil
	}
	obj, err := s.Read(k, e)
	if err != nil {
		return found.made, err
	}
	found = cached[T]{e.Revision, make(obj)}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.all == nil || len(c.all) >= cachedMax {
		c.all = map[store.Key]cached[T]{}
	}
	c.all[e.Key] = found
	return found.made, nil
}
