package controller

import (
	"bytes"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	crcache "sigs.k8s.io/controller-runtime/pkg/cache"
	cr "sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
)

const (
	// fightTurns is how often a field has to go back and forth between the same two until that is
	// called a fight. People who correct each other stop earlier.
	fightTurns = 6
	// fightGap is how soon after the last turn the next one has to come. A node whose agent comes and
	// goes changes hands too, but takes longer than that each time.
	fightGap = 30 * time.Second
	// fightsMax bounds the fields that are watched; the one that is quiet for longest is forgotten.
	fightsMax = 1024
)

// takeover says that a field which one manager had set has been set otherwise by another.
type takeover struct{ path, from, to string }

// takeovers compares who owns what before and after a write. It costs next to nothing unless two
// managers' fields have changed.
func takeovers(before, after []metav1.ManagedFieldsEntry) (taken []takeover) {
	var changed []string
	for _, name := range managers(before, after) {
		if !slices.EqualFunc(fieldsOf(before, name), fieldsOf(after, name), bytes.Equal) {
			changed = append(changed, name)
		}
	}
	if len(changed) < 2 {
		return nil
	}
	for _, to := range changed {
		gained := setOf(after, to).Difference(setOf(before, to))
		for _, from := range changed {
			if from == to || gained.Empty() {
				continue
			}
			lost := setOf(before, from).Difference(setOf(after, from))
			gained.Intersection(lost).Leaves().Iterate(func(p fieldpath.Path) {
				taken = append(taken, takeover{p.String(), from, to})
			})
		}
	}
	return taken
}

func managers(lists ...[]metav1.ManagedFieldsEntry) (names []string) {
	for _, list := range lists {
		for _, e := range list {
			if !slices.Contains(names, e.Manager) {
				names = append(names, e.Manager)
			}
		}
	}
	return names
}

// fieldsOf returns what a manager owns, in one part for each way in which it writes.
func fieldsOf(entries []metav1.ManagedFieldsEntry, manager string) (parts [][]byte) {
	for _, e := range entries {
		if e.Manager == manager && e.FieldsV1 != nil {
			parts = append(parts, e.FieldsV1.GetRawBytes())
		}
	}
	return parts
}

func setOf(entries []metav1.ManagedFieldsEntry, manager string) *fieldpath.Set {
	all := &fieldpath.Set{}
	for _, raw := range fieldsOf(entries, manager) {
		part := &fieldpath.Set{}
		if err := part.FromJSON(bytes.NewReader(raw)); err == nil {
			all = all.Union(part)
		}
	}
	return all
}

// fights finds two writers that undo each other. It knows no clock: it is stepped. The zero value is
// ready.
type fights struct{ fields map[field]*fight }

type field struct {
	object types.UID
	path   string
}

type fight struct {
	last  takeover
	at    time.Time
	turns int
}

// step takes in that a field has changed hands, and returns how often it has gone back and forth
// between the same two without a pause.
func (f *fights) step(now time.Time, object types.UID, t takeover) int {
	if f.fields == nil {
		f.fields = map[field]*fight{}
	}
	at := field{object, t.path}
	known := f.fields[at]
	if known == nil {
		f.makeRoom()
		known = &fight{}
		f.fields[at] = known
	}
	if known.last != (takeover{t.path, t.to, t.from}) || now.Sub(known.at) > fightGap {
		known.turns = 0
	}
	known.last, known.at = t, now
	known.turns++
	return known.turns
}

func (f *fights) makeRoom() {
	if len(f.fields) < fightsMax {
		return
	}
	var oldest field
	for at, known := range f.fields {
		if first := f.fields[oldest]; first == nil || known.at.Before(first.at) {
			oldest = at
		}
	}
	delete(f.fields, oldest)
}

// referee tells of fights over the objects of all kinds that a manager watches.
type referee struct {
	mgr *Manager

	mu     sync.Mutex // guards what is below
	kinds  map[schema.GroupVersionKind]bool
	fights fights
}

// watch listens to a kind, through an informer of it, unless it does already.
func (r *referee) watch(informer crcache.Informer, gvk schema.GroupVersionKind) error {
	r.mu.Lock()
	known := r.kinds[gvk]
	r.kinds[gvk] = true
	r.mu.Unlock()
	if known {
		return nil
	}
	kind := gvk.Kind
	_, err := informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		UpdateFunc: func(old, obj any) { r.updated(kind, old.(cr.Object), obj.(cr.Object)) },
	})
	return err
}

func (r *referee) updated(kind string, old, obj cr.Object) {
	taken := takeovers(old.GetManagedFields(), obj.GetManagedFields())
	if len(taken) == 0 {
		return
	}
	now := r.mgr.opts.Clock.Now()
	for _, t := range taken {
		r.mu.Lock()
		turns := r.fights.step(now, obj.GetUID(), t)
		r.mu.Unlock()
		if turns == fightTurns {
			r.tell(kind, obj, t, turns)
		}
	}
}

func (r *referee) tell(kind string, obj cr.Object, t takeover, turns int) {
	r.mgr.stats.fights.WithLabelValues(kind).Inc()
	r.mgr.opts.Logger.Warn("two writers undo each other", "kind", kind, "namespace", obj.GetNamespace(),
		"name", obj.GetName(), "field", t.path, "managers", []string{t.from, t.to}, "turns", turns)
	r.mgr.GetEventRecorder("setpoint").Eventf(obj, nil, corev1.EventTypeWarning, "FieldFight", "Update",
		"%s is set in turns by %q and %q, each undoing the other", t.path, min(t.from, t.to), max(t.from, t.to))
}
