package controller

import (
	"cmp"
	"errors"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	cr "sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"
)

// Builder says what a controller watches. Its methods return the builder; mistakes are reported by
// Complete.
type Builder struct {
	mgr     *Manager
	name    string
	primary []watch                 // one, if For was called
	kind    schema.GroupVersionKind // of primary
	watches []watch
	sources []source.Source
	filters []predicate.Predicate
	options Options
}

// watch is a kind of object and what its events enqueue: what the handler makes of them; without a
// handler, its owner or itself.
type watch struct {
	object     cr.Object
	handler    handler.EventHandler
	owned      bool
	predicates []predicate.Predicate
}

// ManagedBy starts the description of a controller that the manager will run.
func ManagedBy(mgr *Manager) *Builder { return &Builder{mgr: mgr} }

// Named names the controller in logs, metrics and the queue view; without it, the lower-case kind
// of For is used. Names are unique in a manager.
func (b *Builder) Named(name string) *Builder {
	b.name = name
	return b
}

// For says what is reconciled: each event of such an object enqueues its own key.
func (b *Builder) For(object cr.Object, predicates ...predicate.Predicate) *Builder {
	b.primary = append(b.primary, watch{object: object, predicates: predicates})
	return b
}

// Owns says what reconciling makes: each event of such an object enqueues its controller, of the
// kind given to For. When an object moves to another controller, both are enqueued.
func (b *Builder) Owns(object cr.Object, predicates ...predicate.Predicate) *Builder {
	b.watches = append(b.watches, watch{object: object, owned: true, predicates: predicates})
	return b
}

// Watches enqueues what the handler makes of the events of other objects.
//
// A predicate that drops an event drops it for good: if what it looked at decides anything, the key
// stays wrong until the resync.
func (b *Builder) Watches(object cr.Object, h handler.EventHandler, predicates ...predicate.Predicate) *Builder {
	b.watches = append(b.watches, watch{object: object, handler: h, predicates: predicates})
	return b
}

// WatchesRawSource adds a source of keys that is not a kind of object, such as a channel. Filters
// and predicates don't apply to it.
func (b *Builder) WatchesRawSource(src source.Source) *Builder {
	b.sources = append(b.sources, src)
	return b
}

// WithEventFilter adds a predicate to For, every Owns and every Watches.
func (b *Builder) WithEventFilter(p predicate.Predicate) *Builder {
	b.filters = append(b.filters, p)
	return b
}

// WithOptions sets the controller's options.
func (b *Builder) WithOptions(options Options) *Builder {
	b.options = options
	return b
}

// Complete adds the controller to the manager.
func (b *Builder) Complete(r reconcile.Reconciler) error {
	if err := b.check(r); err != nil {
		return fmt.Errorf("controller %q: %w", b.name, err)
	}
	return b.mgr.addLoop(newLoop(b, r))
}

func (b *Builder) check(r reconcile.Reconciler) error {
	switch {
	case r == nil:
		return errors.New("Complete needs a reconciler, found nil")
	case len(b.primary) > 1:
		return fmt.Errorf("For was called %d times, once is allowed", len(b.primary))
	case len(b.primary)+len(b.watches)+len(b.sources) == 0:
		return errors.New("it watches nothing: call For, Watches or WatchesRawSource")
	case b.name == "" && len(b.primary) == 0:
		return errors.New("without For it needs a name: call Named")
	}
	for _, w := range append(b.primary, b.watches...) {
		gvk, err := apiutil.GVKForObject(w.object, b.mgr.GetScheme())
		switch {
		case err != nil:
			return err
		case w.owned && len(b.primary) == 0:
			return fmt.Errorf("Owns(%s) without For: whose are they", gvk.Kind)
		case b.kind.Empty() && len(b.primary) > 0:
			b.kind = gvk // the first is that of For
		}
	}
	b.name = cmp.Or(b.name, strings.ToLower(b.kind.Kind))
	return nil
}
