package apiserver

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/setpoint-dev/setpoint/kinds"
	"github.com/setpoint-dev/setpoint/kinds/crd"
	"github.com/setpoint-dev/setpoint/store"
)

// definitions keeps the set of kinds in step with the CustomResourceDefinitions in the store.
//
// It follows the store's log, and every request makes it catch up before it looks at the kinds: so a
// definition is in force for the first request that begins after its write was acknowledged, whichever
// server on the store it was written through. When nothing changed, which is nearly always, that
// costs a look at the log.
type definitions struct {
	server *Server
	fixed  *kinds.Set // those that no definition makes
	served bool       // whether CustomResourceDefinition is among them

	cursor atomic.Pointer[store.Watch]

	mu     sync.Mutex
	byName map[string]*definition // guarded by mu
}

// definition is a CustomResourceDefinition, and the records made of it.
type definition struct {
	*crd.Definition
	// kinds are those of the versions that are served, and kept is the version in which objects are
	// stored, served or not. A definition that has the names of a kind which is there by itself has none:
	// it serves nothing, and owns no objects.
	kinds []*kinds.Kind
	kept  *kinds.Kind
	// since is the revision before which objects may be of another form; zero if none are.
	since int64
	// replaced is closed when objects are served otherwise, or no longer.
	replaced chan struct{}
}

func newDefinitions(s *Server, fixed *kinds.Set) *definitions {
	kind := fixed.Kind(schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"})
	return &definitions{server: s, fixed: fixed, served: kind != nil, byName: map[string]*definition{}}
}

// follow brings the set of kinds up to date with the store.
func (d *definitions) follow(ctx context.Context) {
	if !d.served || !d.behind() {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.catchUp(ctx); err != nil && !errors.Is(err, store.ErrClosed) && ctx.Err() == nil {
		d.server.log.Error("definitions of kinds could not be read; the last known ones stay in force", "error", err)
	}
}

// behind says whether the log may have something new.
func (d *definitions) behind() bool {
	cursor := d.cursor.Load()
	if cursor == nil {
		return true
	}
	select {
	case <-(*cursor).Ready():
		return true
	default:
		return false
	}
}

// catchUp applies what the log has, or everything there is if the log does not reach back.
func (d *definitions) catchUp(ctx context.Context) error {
	cursor := d.cursor.Load()
	if cursor == nil {
		return d.load(ctx)
	}
	for changed := false; ; {
		events, err := (*cursor).TryNext()
		switch {
		case errors.Is(err, store.ErrCompacted):
			return d.load(ctx)
		case err != nil:
			return err
		case len(events) == 0 && changed:
			d.publish()
			return nil
		case len(events) == 0:
			return nil
		}
		for _, ev := range events {
			name := ev.Entry.Key.Path
			before := d.serves(name)
			if ev.Type == store.Delete {
				d.drop(name)
			} else {
				d.put(ev.Entry, ev.Prev == nil)
			}
			changed = changed || !slices.Equal(before, d.serves(name))
		}
	}
}

// serves returns the kinds of a definition, by its name.
func (d *definitions) serves(name string) []*kinds.Kind {
	if def := d.byName[name]; def != nil {
		return def.kinds
	}
	return nil
}

// load reads all definitions.
func (d *definitions) load(ctx context.Context) error {
	snap, err := d.server.store.Snapshot(ctx)
	if err != nil {
		return err
	}
	cursor, err := d.server.store.Watch(crd.Resource, "", snap.Revision())
	if err != nil {
		return err
	}
	entries, _ := snap.List(crd.Resource, store.ListOptions{})
	there := make(map[string]bool, len(entries))
	for _, e := range entries {
		there[e.Key.Path] = true
		d.put(e, false)
	}
	for name := range d.byName {
		if !there[name] {
			d.drop(name)
		}
	}
	d.cursor.Store(&cursor)
	d.publish()
	return nil
}

// put takes in a definition; created says that no objects can be older than it.
func (d *definitions) put(e *store.Entry, created bool) {
	read, err := crd.Read(e.Value, int64(e.Revision))
	if err != nil {
		d.server.log.Error("a definition of a kind cannot be used", "name", e.Key.Path, "error", err)
		return
	}
	old := d.byName[e.Key.Path]
	next := &definition{Definition: read, since: read.Revision}
	sameForm := old != nil && read.SameForm(old.Definition)
	switch {
	case sameForm:
		next.since, next.replaced = old.since, old.replaced
	case created:
		next.since = 0
	}
	if !sameForm {
		d.drop(e.Key.Path)
		next.replaced = make(chan struct{})
	}
	if sameForm && read.SameKinds(old.Definition) {
		next.kinds, next.kept = old.kinds, old.kept
	} else {
		ask := crd.Converters{Post: d.server.webhooks.Post, UID: d.server.random.uid}
		next.kinds, next.kept = read.Kinds(next.since, ask, next.replaced)
		if next.kept != nil && d.isFixed(next.kept) {
			next.kinds, next.kept = nil, nil
		}
	}
	d.byName[e.Key.Path] = next
}

// isFixed says whether a kind that no definition makes has the group and the names of one, in whatever
// version: their objects would be kept in the same place.
func (d *definitions) isFixed(k *kinds.Kind) bool {
	return slices.ContainsFunc(d.fixed.All(), func(f *kinds.Kind) bool {
		return f.Group == k.Group && (f.Resource == k.Resource || f.Kind == k.Kind)
	})
}

// drop forgets a definition and ends the watches of its objects.
func (d *definitions) drop(name string) {
	old := d.byName[name]
	if old == nil {
		return
	}
	close(old.replaced)
	d.server.converted.forget()
	if old.kept != nil {
		for _, f := range old.kept.Form.All {
			d.server.managedTypes.Delete(f.Schema)
		}
	}
	delete(d.byName, name)
}

// publish puts the kinds into force.
func (d *definitions) publish() {
	all := slices.Clone(d.fixed.All())
	for _, name := range slices.Sorted(maps.Keys(d.byName)) {
		all = append(all, d.byName[name].kinds...)
	}
	d.server.kinds.Replace(kinds.NewSet(all...))
}

// ofGroup returns the definitions of an API group, or all of them for "", in order of name.
func (d *definitions) ofGroup(group string) []*definition {
	d.mu.Lock()
	defer d.mu.Unlock()
	var found []*definition
	for _, def := range d.byName {
		if group == "" || def.Group() == group {
			found = append(found, def)
		}
	}
	slices.SortFunc(found, func(a, b *definition) int { return strings.Compare(a.Name, b.Name) })
	return found
}

// find returns the definition whose objects the store keeps under a resource, or nil.
func (d *definitions) find(resource string) *definition {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.byName[resource] // a definition has the name of its resource
}

// groupOf is the API group of a definition, by its name.
func groupOf(name string) string {
	_, group, _ := strings.Cut(name, ".")
	return group
}

// dependOnDefinition makes the commit of a new object fail if its kind's definition changes before:
// no object is left behind by a definition that goes.
// Possible errors: 504 with an invitation to try again, if the kind is not any more what it was when
// the request began.
func (t *write) dependOnDefinition(snap store.Snapshot) error {
	if !t.kind.Declared {
		return nil
	}
	t.server.definitions.follow(t.ctx)
	if t.server.kinds.Current().Kind(t.kind.GVK()) != t.kind {
		return apierrors.NewServerTimeout(t.kind.GroupResource(), "create", 1)
	}
	if t.depend(snap.Get(store.Key{Resource: crd.Resource, Path: storageResource(t.kind)})) == nil {
		return fmt.Errorf("%s has no definition", t.kind.GroupResource())
	}
	return nil
}
