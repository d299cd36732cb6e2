package replicaset

import (
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

type (
	Snapshot = snapshot
	Actions  = actions
)

var (
	Plan   = plan
	Status = status
)

func NewReconciler(c client.Client, live client.Reader, clk clock.PassiveClock, rec events.EventRecorder) *Reconciler {
	return newReconciler(c, live, clk, rec, emptySet)
}

func NewControllerReconciler(c client.Client, live client.Reader, clk clock.PassiveClock, rec events.EventRecorder) *Reconciler {
	return newReconciler(c, live, clk, rec, emptyController)
}
