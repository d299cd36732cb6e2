package controller

import (
	"time"

	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// Options are the settings of one controller. The zero value is a good default.
type Options struct {
	// MaxConcurrentReconciles is how many keys are worked on at once; never one key twice.
	// Zero means one.
	MaxConcurrentReconciles int
	// RateLimiter, if not nil, replaces the delays of failing keys (5 ms doubling to 1000 s per key,
	// and ten retries a second over the controller after a burst of a hundred). It must not be
	// shared between controllers.
	RateLimiter workqueue.TypedRateLimiter[reconcile.Request]
	// ReconcileTimeout bounds one pass; zero leaves it unbounded.
	ReconcileTimeout time.Duration
	// FieldOwner is under which name what the controller writes is owned, and is found in the history
	// of objects. Empty is the controller's name.
	FieldOwner string
	// IgnorePause has the controller work on objects that have PausedAnnotation, too.
	IgnorePause bool
	// AnyReplica says that the controller runs on every replica of the process, and not only on
	// the one that holds the manager's lease.
	AnyReplica bool
}
