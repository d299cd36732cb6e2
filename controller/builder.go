package controller

import (
	"sigs.k8s.io/controller-runtime/pkg/client"
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
	primary *watch
	watches []watch
	sources []source.Source
	filters []predicate.Predicate
	options Options
}

type watch struct {
	object     client.Object
	handler    handler.EventHandler
	owns       bool
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
func (b *Builder) For(object client.Object, predicates ...predicate.Predicate) *Builder {
	b.primary = &watch{object: object, predicates: predicates}
	return b
}

// Owns says what reconciling makes: each event of such an object enqueues its controller, of the
// kind given to For. When an object moves to another controller, both are enqueued.
func (b *Builder) Owns(object client.Object, predicates ...predicate.Predicate) *Builder {
	b.watches = append(b.watches, watch{object: object, owns: true, predicates: predicates})
	return b
}

// Watches enqueues what the handler makes of the events of other objects.
//
// A predicate that drops an event drops it for good: if what it looked at decides anything, the key
// stays wrong until the resync.
func (b *Builder) Watches(object client.Object, h handler.EventHandler, predicates ...predicate.Predicate) *Builder {
	b.watches = append(b.watches, watch{object: object, handler: h, predicates: predicates})
	return b
}

// WatchesRawSource adds a source of keys that is not a kind of object, such as a channel.
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
func (b *Builder) Complete(r reconcile.Reconciler) error { return nil }
