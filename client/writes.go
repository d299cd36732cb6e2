package client

import (
	"context"
	"maps"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// Progress says how far the reader that a client reads from has come; cache.Cache implements it.
type Progress interface {
	// AtRevision reports whether reads of the kind, in whatever version, are at least as new as the
	// revision. If not, then is called once when that may have changed; it must not block. A nil then
	// only asks.
	AtRevision(gvk schema.GroupVersionKind, revision int64, then func()) bool
	// AtDeletion is AtRevision for the deletion of the object of that uid, or the mark of it.
	AtDeletion(gvk schema.GroupVersionKind, key types.NamespacedName, uid types.UID, then func()) bool
	// Held returns the uid of the object that reads show, "" if they show none.
	Held(gvk schema.GroupVersionKind, key types.NamespacedName) types.UID
}

// Writes are the writes of whoever carries them in a context, as far as reads may not show them
// yet. A controller keeps one for each key it works on, and works on the key again only when its
// Writes are settled: so what it made is always there when it counts what there is. The zero value
// is empty. Its methods may be called concurrently.
type Writes struct {
	mu        sync.Mutex
	revisions map[schema.GroupKind]int64 // in whatever version it was written
	deletions map[deletion]bool
	// doubts are what was written to with an outcome, or at a revision, that nobody knows: an answer
	// was lost or does not say it, or what was to be made is there already and not in the cache.
	doubts map[doubt]bool
}

// doubt is an object, or with an empty key any of the kind.
type doubt struct {
	gvk schema.GroupVersionKind
	key types.NamespacedName
}

type deletion struct {
	gvk schema.GroupVersionKind
	key types.NamespacedName
	uid types.UID
}

type writesKey struct{}

// Track returns a context whose writes are recorded in w, and whose reads are never older than them.
func Track(ctx context.Context, w *Writes) context.Context {
	return context.WithValue(ctx, writesKey{}, w)
}

func tracked(ctx context.Context) *Writes {
	w, _ := ctx.Value(writesKey{}).(*Writes)
	return w
}

// Empty says whether nothing is to be waited for.
func (w *Writes) Empty() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.revisions) == 0 && len(w.deletions) == 0 && len(w.doubts) == 0
}

func (w *Writes) wrote(gvk schema.GroupVersionKind, revision int64) {
	if w == nil || revision == 0 {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.revisions == nil {
		w.revisions = make(map[schema.GroupKind]int64)
	}
	gk := gvk.GroupKind()
	w.revisions[gk] = max(w.revisions[gk], revision)
}

func (w *Writes) deleted(d deletion) {
	if w == nil {
		return
	}
	if d.uid == "" { // then another object of the name can't be told from it
		w.doubt(doubt{d.gvk, d.key})
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.deletions == nil {
		w.deletions = make(map[deletion]bool)
	}
	w.deletions[d] = true
}

func (w *Writes) doubt(d doubt) {
	if w == nil {
		return
	}
	if d.key.Name == "" {
		d.key = types.NamespacedName{}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.doubts == nil {
		w.doubts = make(map[doubt]bool)
	}
	w.doubts[d] = true
}

// doubtsOf returns the doubts about a kind, whichever version was written.
func (w *Writes) doubtsOf(gvk schema.GroupVersionKind) (found []doubt) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for d := range w.doubts {
		if d.gvk.GroupKind() == gvk.GroupKind() {
			found = append(found, d)
		}
	}
	return found
}

// behind reports whether reads of the kind may not show every write; then is called once that may
// have changed. It forgets what is shown.
func (w *Writes) behind(gvk schema.GroupVersionKind, p Progress, then func()) bool {
	revision, deletions := w.pending(gvk)
	if revision != 0 {
		if !p.AtRevision(gvk, revision, then) {
			return true
		}
		w.forget(gvk, revision)
	}
	for _, d := range deletions {
		if !p.AtDeletion(d.gvk, d.key, d.uid, then) {
			return true
		}
		w.mu.Lock()
		delete(w.deletions, d)
		w.mu.Unlock()
	}
	return false
}

func (w *Writes) pending(gvk schema.GroupVersionKind) (revision int64, deletions []deletion) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for d := range w.deletions {
		if d.gvk.GroupKind() == gvk.GroupKind() {
			deletions = append(deletions, d)
		}
	}
	return w.revisions[gvk.GroupKind()], deletions
}

// forget drops a revision that is shown, unless a later one has been written meanwhile.
func (w *Writes) forget(gvk schema.GroupVersionKind, revision int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.revisions[gvk.GroupKind()] == revision {
		delete(w.revisions, gvk.GroupKind())
	}
}

// kinds returns every kind with something to wait for; of a version, if any, that was written.
func (w *Writes) kinds() []schema.GroupVersionKind {
	w.mu.Lock()
	defer w.mu.Unlock()
	seen := make(map[schema.GroupVersionKind]bool)
	for gk := range w.revisions {
		seen[gk.WithVersion("")] = true
	}
	for d := range w.deletions {
		seen[d.gvk] = true
	}
	for d := range w.doubts {
		seen[d.gvk] = true
	}
	return slices.Collect(maps.Keys(seen))
}

// settle drops a doubt: what there is to wait for has been recorded.
func (w *Writes) settle(d doubt) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.doubts, d)
}
