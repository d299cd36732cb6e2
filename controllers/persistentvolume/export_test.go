package persistentvolume

import (
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

type (
	ClaimSnapshot  = claimSnapshot
	VolumeSnapshot = volumeSnapshot
)

var (
	PlanClaim  = planClaim
	PlanVolume = planVolume
)

// NewReconcilers returns the reconcilers of claims and of volumes.
func NewReconcilers(c client.Client, live client.Reader, rec events.EventRecorder) (*Claims, *Volumes) {
	b := newBinder(c, live, rec)
	return &Claims{b}, &Volumes{b}
}

// Reason is that of an event.
func Reason(n note) string { return n.reason }
