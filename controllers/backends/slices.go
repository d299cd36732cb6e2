package backends

import (
	"context"
	"errors"
	"fmt"

	discoveryv1 "k8s.io/api/discovery/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/setpoint-dev/setpoint/controllers/podcontrol"
)

// SliceChanges is what a pass does to slices, in this order, so that an address that moves from one
// slice to another is in two for a moment rather than in none.
type SliceChanges struct {
	Create []*discoveryv1.EndpointSlice
	Update []*discoveryv1.EndpointSlice
	Delete []*discoveryv1.EndpointSlice
}

// Apply writes the changes, and deletes nothing if a write before has failed. A namespace that is being
// deleted refuses creates, and nothing is gained by trying again.
func (c SliceChanges) Apply(ctx context.Context, to client.Client) error {
	var errs []error
	for _, slice := range c.Create {
		if err := to.Create(ctx, slice); err != nil && !podcontrol.NamespaceEnds(err) {
			errs = append(errs, fmt.Errorf("create endpointslice: %w", err))
		}
	}
	for _, slice := range c.Update {
		if err := to.Update(ctx, slice); err != nil {
			errs = append(errs, fmt.Errorf("update endpointslice %s: %w", slice.Name, err))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return err // what the deleted slices published may have nowhere else to be yet
	}
	for _, slice := range c.Delete {
		err := to.Delete(ctx, slice.DeepCopy(), client.Preconditions{UID: &slice.UID})
		if client.IgnoreNotFound(err) != nil {
			errs = append(errs, fmt.Errorf("delete endpointslice %s: %w", slice.Name, err))
		}
	}
	return errors.Join(errs...)
}
