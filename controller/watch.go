package controller

import (
	"context"
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	upstream "k8s.io/client-go/util/workqueue"
	cr "sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/setpoint-dev/setpoint/workqueue"
)

type request = reconcile.Request

// queue is the queue that controller-runtime's handlers are given.
type queue = upstream.TypedRateLimitingInterface[request]

// watch registers what the controller listens to. From here on its queue fills.
func (l *loop) watch(ctx context.Context) error {
	for _, w := range l.watches {
		gvk, err := apiutil.GVKForObject(w.object, l.mgr.GetScheme())
		if err != nil {
			return err
		}
		h := w.handler
		switch {
		case w.owned:
			if h, err = l.owners(); err != nil {
				return err
			}
		case h == nil:
			h = &handler.EnqueueRequestForObject{}
		}
		informer, err := l.mgr.cache.GetInformer(ctx, w.object)
		if err != nil {
			return err
		}
		if err := l.mgr.referee.watch(informer, gvk); err != nil {
			return err
		}
		heard := heard{informer, &listener{
			ctx: ctx, kind: gvk.Kind, handler: h, loop: l, primary: w.handler == nil && !w.owned,
			predicates: append(l.filters, w.predicates...),
		}}
		told, err := informer.AddEventHandler(heard.listener)
		if err != nil {
			return err
		}
		l.heard = append(l.heard, heard)
		l.told = append(l.told, told.HasSyncedChecker().Done())
	}
	for _, src := range l.sources {
		if err := src.Start(ctx, l.queue); err != nil {
			return err
		}
	}
	return nil
}

// owners returns a handler that enqueues the controllers of objects.
func (l *loop) owners() (handler.EventHandler, error) {
	gvk, err := apiutil.GVKForObject(l.primary, l.mgr.GetScheme())
	if err != nil {
		return nil, err
	}
	namespaced, err := l.mgr.client.IsObjectNamespaced(l.primary)
	if err != nil {
		return nil, fmt.Errorf("is %s namespaced: %w", gvk.Kind, err)
	}
	o := ownerOf{gk: gvk.GroupKind(), namespaced: namespaced}
	return handler.Funcs{
		CreateFunc: func(_ context.Context, e event.CreateEvent, q queue) { o.enqueue(q, e.Object) },
		UpdateFunc: func(_ context.Context, e event.UpdateEvent, q queue) {
			// Both owners of a child that has moved have something to do.
			o.enqueue(q, e.ObjectOld)
			o.enqueue(q, e.ObjectNew)
		},
		DeleteFunc:  func(_ context.Context, e event.DeleteEvent, q queue) { o.enqueue(q, e.Object) },
		GenericFunc: func(_ context.Context, e event.GenericEvent, q queue) { o.enqueue(q, e.Object) },
	}, nil
}

type ownerOf struct {
	gk         schema.GroupKind
	namespaced bool
}

// enqueue adds the key of the object's controller, if it has one of the kind in whatever version.
func (o ownerOf) enqueue(q queue, obj cr.Object) {
	ref := metav1.GetControllerOfNoCopy(obj)
	if ref == nil || ref.Kind != o.gk.Kind {
		return
	}
	if gv, err := schema.ParseGroupVersion(ref.APIVersion); err != nil || gv.Group != o.gk.Group {
		return
	}
	key := types.NamespacedName{Name: ref.Name}
	if o.namespaced {
		key.Namespace = obj.GetNamespace()
	}
	q.Add(request{NamespacedName: key})
}

// listener hands what a cache tells to a handler, which makes keys of it. What it tells is a hint
// for when to look, and kept as a reason for people to read.
type listener struct {
	ctx        context.Context
	kind       string
	handler    handler.EventHandler
	predicates []predicate.Predicate
	loop       *loop
	primary    bool               // the object's own key is enqueued
	only       func(request) bool // if not nil, which keys are enqueued
}

var _ toolscache.ResourceEventHandler = (*listener)(nil)

func (l *listener) OnAdd(obj any, initial bool) {
	e := event.CreateEvent{Object: obj.(cr.Object), IsInInitialList: initial}
	for _, p := range l.predicates {
		if !p.Create(e) {
			return
		}
	}
	q := l.because("added", e.Object)
	if initial {
		q.reason.Event, q.priority = "found", handler.LowPriority
	}
	l.handler.Create(l.ctx, e, q)
}

func (l *listener) OnUpdate(old, obj any) {
	e := event.UpdateEvent{ObjectOld: old.(cr.Object), ObjectNew: obj.(cr.Object)}
	for _, p := range l.predicates {
		// That it may be worked on again is nothing a predicate would let through for itself.
		if !p.Update(e) && !(l.primary && Paused(e.ObjectOld) && !Paused(e.ObjectNew)) {
			return
		}
	}
	q := l.because(reasonUpdated, e.ObjectNew)
	if e.ObjectOld == e.ObjectNew {
		q.reason.Event, q.priority = "resynced", handler.LowPriority
	}
	l.handler.Update(l.ctx, e, q)
}

func (l *listener) OnDelete(obj any) {
	var e event.DeleteEvent
	if missed, ok := obj.(toolscache.DeletedFinalStateUnknown); ok {
		obj, e.DeleteStateUnknown = missed.Obj, true
	}
	e.Object = obj.(cr.Object)
	for _, p := range l.predicates {
		if !p.Delete(e) {
			return
		}
	}
	l.handler.Delete(l.ctx, e, l.because("deleted", e.Object))
}

func (l *listener) because(what string, obj cr.Object) *reasoned {
	return &reasoned{Queue: l.loop.queue, loop: l.loop, only: l.only, reason: workqueue.Reason{
		Event: what, Kind: l.kind, Object: cr.ObjectKeyFromObject(obj),
	}}
}

// reasoned is the queue as one event sees it: what is added has the event's reason and priority.
type reasoned struct {
	*workqueue.Queue[request]
	loop     *loop
	only     func(request) bool
	reason   workqueue.Reason
	priority int
}

var _ priorityqueue.PriorityQueue[request] = (*reasoned)(nil)

func (q *reasoned) add(opts workqueue.AddOptions, keys ...request) {
	if q.only != nil {
		keys = slices.DeleteFunc(slices.Clone(keys), func(k request) bool { return !q.only(k) })
	}
	opts.Reason = q.reason
	q.loop.add(opts, keys...)
}

func (q *reasoned) Add(key request) { q.add(workqueue.AddOptions{Priority: q.priority}, key) }

func (q *reasoned) AddAfter(key request, after time.Duration) {
	q.add(workqueue.AddOptions{Priority: q.priority, After: after}, key)
}

func (q *reasoned) AddRateLimited(key request) {
	q.add(workqueue.AddOptions{Priority: q.priority, RateLimited: true}, key)
}

func (q *reasoned) AddWithOpts(o priorityqueue.AddOpts, keys ...request) {
	opts := workqueue.AddOptions{After: o.After, RateLimited: o.RateLimited, Priority: q.priority}
	if o.Priority != nil {
		opts.Priority = *o.Priority
	}
	q.add(opts, keys...)
}
