package apiserver

import (
	"context"
	"errors"
	"sync"

	"github.com/setpoint-dev/setpoint/kinds"
	"github.com/setpoint-dev/setpoint/store"
)

// converted keeps objects in the versions in which they were asked for, where a webhook makes those:
// a list and a watch ask it once for each state of an object, however many they are and however often
// they come. Who reads a single object, or writes one, does not look here: what that shows is what the
// webhook says now.
//
// It holds no lock while a webhook is asked. Who wants what somebody asks for already waits for it.
type converted struct {
	mu sync.Mutex
	// recent is what was used last, and older what was before that: what nobody uses goes with it.
	// Guarded by mu.
	recent, older map[conversionOf]*conversion
	bytes         int // of recent
}

// conversionOf is one state of an object, in one version.
type conversionOf struct {
	kind     *kinds.Kind
	key      store.Key
	revision store.Revision
}

// conversion is what comes of it, once done is closed.
type conversion struct {
	done chan struct{}
	own  []byte
	err  error
}

// convertedBytesMax is what recent may hold, and older as much: some tens of thousands of objects,
// which is what a client that lists page by page and then watches comes back for.
const convertedBytesMax = 32 << 20

// A question to a webhook has at most so many objects, and about so many bytes: a page as clients ask
// for it goes in one, and an answer is well below what is accepted as one.
const (
	askedMax      = 500
	askedBytesMax = 2 << 20
)

// ownForms returns entries in the form of the request's kind, in their order. Where a webhook has to
// be asked, it is asked about as many as fit into a question.
func (s *Server) ownForms(r *request, found []*store.Entry) ([][]byte, error) {
	out := make([][]byte, len(found))
	var others []*store.Entry
	var at []int
	for i, e := range found {
		if asks := r.kind.Form != nil && r.kind.Form.Asks && !isOwnForm(r.kind, e.Value); asks {
			others, at = append(others, e), append(at, i)
			continue
		}
		own, err := s.ownForm(r, e.Value)
		if err != nil {
			return nil, err
		}
		out[i] = own
	}
	if len(others) == 0 {
		return out, nil
	}
	if err := checkReadable(r.kind.GroupResource(), others); err != nil {
		return nil, err
	}
	made, err := s.converted.get(r.http.Context(), r.kind, others)
	if err != nil {
		return nil, err
	}
	for i, own := range made {
		out[at[i]] = own
	}
	return out, nil
}

// get returns entries in a kind's form.
func (c *converted) get(ctx context.Context, k *kinds.Kind, found []*store.Entry) ([][]byte, error) {
	out := make([][]byte, len(found))
	for {
		all, mine := c.claim(k, found)
		c.convert(ctx, k, mine)
		again := false
		for i, made := range all {
			select {
			case <-made.done:
			case <-ctx.Done():
				return nil, ctx.Err()
			}
			if gone := errors.Is(made.err, context.Canceled); gone && ctx.Err() == nil {
				again = true // who asked for it went away
			} else if made.err != nil {
				return nil, made.err
			}
			out[i] = made.own
		}
		if !again {
			return out, nil
		}
	}
}

// claimed is an entry that somebody has taken upon himself to convert.
type claimed struct {
	entry *store.Entry
	as    *conversion
}

// claim returns the conversions of entries, and those among them that the caller has to make.
func (c *converted) claim(k *kinds.Kind, found []*store.Entry) (all []*conversion, mine []claimed) {
	c.mu.Lock()
	defer c.mu.Unlock()
	all = make([]*conversion, len(found))
	for i, e := range found {
		of := conversionOf{k, e.Key, e.Revision}
		if all[i] = c.recent[of]; all[i] != nil {
			continue
		}
		if all[i] = c.older[of]; all[i] == nil {
			all[i] = &conversion{done: make(chan struct{})}
			mine = append(mine, claimed{e, all[i]})
		} else {
			c.bytes += len(all[i].own)
		}
		if c.recent == nil {
			c.recent = map[conversionOf]*conversion{}
		}
		c.recent[of] = all[i]
	}
	return all, mine
}

// convert makes what was claimed, a question at a time. After the first that fails nobody is asked.
func (c *converted) convert(ctx context.Context, k *kinds.Kind, mine []claimed) {
	var err error
	for len(mine) > 0 {
		n, size := 0, 0
		for n < min(len(mine), askedMax) && (n == 0 || size+len(mine[n].entry.Value) <= askedBytesMax) {
			size += len(mine[n].entry.Value)
			n++
		}
		if err == nil {
			err = ask(ctx, k, mine[:n])
		}
		c.finish(k, mine[:n], err)
		mine = mine[n:]
	}
}

// ask makes one question's worth.
func ask(ctx context.Context, k *kinds.Kind, mine []claimed) error {
	values := make([][]byte, len(mine))
	for i, m := range mine {
		values[i] = m.entry.Value
	}
	objs, err := k.Form.Read(ctx, values...)
	if err != nil {
		return err
	}
	for i, m := range mine {
		m.as.own = shownIn(k, objs[i], values[i])
	}
	return nil
}

// finish lets those go on who wait. What failed is not kept.
func (c *converted) finish(k *kinds.Kind, mine []claimed, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, m := range mine {
		m.as.err = err
		close(m.as.done)
		of := conversionOf{k, m.entry.Key, m.entry.Revision}
		if err != nil && c.recent[of] == m.as {
			delete(c.recent, of)
		}
		c.bytes += len(m.as.own)
	}
	if c.bytes > convertedBytesMax {
		c.older, c.recent, c.bytes = c.recent, nil, 0
	}
}

// forget lets everything go: the kinds have changed.
func (c *converted) forget() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.recent, c.older, c.bytes = nil, nil, 0
}

// warm has entries ready in the form of the request's kind, where a webhook must be asked for it, for
// those who look at them one by one.
func (s *Server) warm(r *request, found []*store.Entry) error {
	if r.kind.Form == nil || !r.kind.Form.Asks {
		return nil
	}
	var fit []*store.Entry
	for _, e := range found {
		if readable(r.kind.GroupResource(), e.Value) == nil {
			fit = append(fit, e) // who looks at the others finds out
		}
	}
	_, err := s.ownForms(r, fit)
	return err
}

// learn has what selectors look at of entries ready, where a webhook must be asked for it: about all
// of them at once.
func (s *Server) learn(r *request, sel *selector, found ...*store.Entry) error {
	k := r.kind
	if sel.all() || k.Form == nil || !k.Form.Asks {
		return nil
	}
	var unknown []*store.Entry
	for _, e := range found {
		if readable(k.GroupResource(), e.Value) != nil {
			continue // who looks at it finds out
		}
		if m, ok := e.Memo.Load().(*memo); (!ok || m.of != k) && !isOwnForm(k, e.Value) {
			unknown = append(unknown, e)
		}
	}
	owns, err := s.ownForms(r, unknown)
	if err != nil {
		return err
	}
	for i, own := range owns {
		decoded, err := k.Schema.DecodeJSON(own)
		if err != nil {
			return err
		}
		unknown[i].Memo.Store(newMemo(k, decoded.Object))
	}
	return nil
}
