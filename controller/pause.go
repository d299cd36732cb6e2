package controller

import (
	"context"
	"reflect"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	cr "sigs.k8s.io/controller-runtime/pkg/client"
)

// PausedAnnotation on an object has every controller leave it alone until the annotation is gone or
// "false". An object that is being deleted is worked on all the same: its finalizers run.
const PausedAnnotation = "setpoint.dev/paused"

// Paused says whether controllers are to leave an object alone.
func Paused(obj cr.Object) bool {
	value, ok := obj.GetAnnotations()[PausedAnnotation]
	return ok && value != "false" && obj.GetDeletionTimestamp() == nil
}

// state is what a loop itself looks at of the object that a key names. It is zero where there is no
// object, or no kind was given to For.
type state struct {
	object     cr.Object // the cache's, not to be changed
	uid        types.UID
	generation int64
	paused     bool
	deleting   time.Time // zero if it is not
}

// look reads the object of a key from the cache.
func (l *loop) look(ctx context.Context, key request) state {
	if l.primary == nil {
		return state{}
	}
	obj := reflect.New(reflect.TypeOf(l.primary).Elem()).Interface().(cr.Object)
	obj.GetObjectKind().SetGroupVersionKind(l.kind)
	if err := l.mgr.cache.Get(ctx, key.NamespacedName, obj, cr.UnsafeDisableDeepCopy); err != nil {
		return state{} // not there; of other failures the reconciler will be told
	}
	s := state{object: obj, uid: obj.GetUID(), generation: obj.GetGeneration()}
	s.paused = Paused(obj) && !l.opts.IgnorePause
	if at := obj.GetDeletionTimestamp(); at != nil {
		s.deleting = at.Time
	}
	return s
}

// pauses says whether the object of a key is to be left alone, and tells when that changes.
func (l *loop) pauses(key request, s state) bool {
	l.mu.Lock()
	was := l.paused[key]
	if s.paused {
		l.paused[key] = s.uid
	} else {
		delete(l.paused, key)
	}
	l.mu.Unlock()
	switch {
	case s.paused && was != s.uid:
		l.log.Info("paused", "namespace", key.Namespace, "name", key.Name)
		l.events.Eventf(s.object, nil, corev1.EventTypeNormal, "Paused", "Reconcile",
			"Left alone by %s because of the annotation %s", l.name, PausedAnnotation)
	case !s.paused && was != "" && was == s.uid:
		l.log.Info("resumed", "namespace", key.Namespace, "name", key.Name)
		l.events.Eventf(s.object, nil, corev1.EventTypeNormal, "Resumed", "Reconcile",
			"Worked on by %s again", l.name)
	}
	return s.paused
}
