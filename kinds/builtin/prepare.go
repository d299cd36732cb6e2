package builtin

import (
	"github.com/setpoint-dev/setpoint/kinds"
	"github.com/setpoint-dev/setpoint/kinds/tree"
)

// keepStatus is PrepareForUpdate of a kind whose status is written through its own subresource.
func keepStatus(_ *kinds.Env, obj, old kinds.Object) error {
	tree.Move("status", old, obj)
	return nil
}

// keepSpec is PrepareForStatusUpdate of such a kind.
func keepSpec(_ *kinds.Env, obj, old kinds.Object) { tree.Move("spec", old, obj) }

// emptyStatus makes PrepareForCreate of a kind whose objects begin with this status, however many.
func emptyStatus(status map[string]any) func(*kinds.Env, kinds.Object) error {
	return func(_ *kinds.Env, obj kinds.Object) error {
		obj["status"] = tree.CopyMap(status)
		return nil
	}
}
