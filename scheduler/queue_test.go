package scheduler_test

import (
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// discard is a queue that takes keys and keeps none: the tests say themselves what is reconciled.
type discard struct {
	workqueue.TypedRateLimitingInterface[reconcile.Request]
}

func (discard) Add(reconcile.Request) {}
