package gc

import (
	"k8s.io/apimachinery/pkg/types"
)

type (
	Config    = config
	Collector = collector
	Object    = object
	Identity  = identity
	View      = view
	Dependent = dependent
	Verdict   = verdict
	Graph     struct{ g *graph }
)

var (
	NewCollector = newCollector
	Decide       = decide
	Settled      = settled
	Absent       = absent
)

const (
	OwnerSolid   = ownerSolid
	OwnerAbsent  = ownerAbsent
	OwnerWaiting = ownerWaiting
	OwnerInvalid = ownerInvalid

	Keep              = keep
	Forget            = forget
	AwaitDependents   = awaitDependents
	FinishForeground  = finishForeground
	ReleaseDependents = releaseDependents
	DropOwners        = dropOwners
	Remove            = remove
)

func NewGraph() Graph                            { return Graph{newGraph()} }
func (g Graph) Observe(o Object) []types.UID     { return g.g.observe(o) }
func (g Graph) Remove(uid types.UID) []types.UID { return g.g.remove(uid) }
func (g Graph) View(uid types.UID) (View, bool)  { return g.g.view(uid) }
func (g Graph) Len() int                         { return len(g.g.nodes) }

// States makes a list of what the exported constants name.
func States(values []any) []ownerState {
	states := make([]ownerState, len(values))
	for i, v := range values {
		states[i] = v.(ownerState)
	}
	return states
}

// NewObject makes an object without owners.
func NewObject(id Identity) Object { return object{identity: id} }
