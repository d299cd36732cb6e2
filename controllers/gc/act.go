package gc

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
)

const (
	// requestsMax is how many requests are under way at once for one object.
	requestsMax = 8
	// pageSize is how many objects are asked for at once.
	pageSize = 500
)

// act does what was decided about an object.
func (c *collector) act(ctx context.Context, v view, live *metav1.PartialObjectMetadata,
	decision verdict,
) error {
	switch decision.Verb {
	case forget:
		c.removeAll([]types.UID{v.UID})
	case awaitDependents:
		c.lookAtDependents(v)
	case finishForeground, releaseDependents:
		return c.finish(ctx, v, live, decision)
	case dropOwners:
		return c.dropOwners(ctx, v.identity, live, decision.Drop)
	case remove:
		return c.remove(ctx, v, live, decision)
	}
	return nil
}

// lookAtDependents has the dependents looked at that are not waiting for dependents of their own.
func (c *collector) lookAtDependents(v view) {
	for _, d := range v.Dependents {
		if !d.Foreground {
			c.queue.Add(d.UID)
		}
	}
}

// finish ends a foreground or orphaning deletion, once all dependents are known to be dealt with.
func (c *collector) finish(ctx context.Context, v view, live *metav1.PartialObjectMetadata,
	decision verdict,
) error {
	if err := c.catchUp(ctx, v.identity, live.ResourceVersion); err != nil {
		return err
	}
	v, ok := c.view(v.UID)
	if !ok {
		return nil
	}
	if again, _ := settled(v, live); again.Verb != decision.Verb {
		return c.act(ctx, v, live, again)
	}
	finalizer := metav1.FinalizerDeleteDependents
	if decision.Verb == releaseDependents {
		finalizer = metav1.FinalizerOrphanDependents
		if err := c.releaseDependents(ctx, v); err != nil {
			return err
		}
	}
	kept := slices.DeleteFunc(slices.Clone(live.Finalizers),
		func(f string) bool { return f == finalizer })
	_, err := c.patch(ctx, v.identity, live, "finalizers", kept, len(kept) == 0)
	return err
}

// catchUp feeds the graph, from the server, all dependents of the object that monitors may not have
// fed yet. Without it an owner could be let go while a dependent that was just made is not known.
func (c *collector) catchUp(ctx context.Context, owner identity, resourceVersion string) error {
	c.mu.Lock()
	var behind []*monitor
	for _, m := range c.monitors {
		if (owner.Namespace == "" || m.resource.Namespaced) && !m.caughtUp(resourceVersion) {
			behind = append(behind, m)
		}
	}
	c.mu.Unlock()
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(requestsMax)
	for _, m := range behind {
		group.Go(func() error {
			if err := m.feedDependents(ctx, owner); err != nil {
				return fmt.Errorf("list %s for dependents: %w", m.resource.GroupResource(), err)
			}
			return nil
		})
	}
	return group.Wait()
}

// feedDependents feeds the dependents of an object that the server has.
func (m *monitor) feedDependents(ctx context.Context, owner identity) error {
	_, err := eachPage(ctx, m.api.Namespace(owner.Namespace), func(page []metav1.PartialObjectMetadata) {
		for i := range page {
			owned := slices.ContainsFunc(page[i].OwnerReferences,
				func(ref metav1.OwnerReference) bool { return ref.UID == owner.UID })
			if owned {
				m.observe(&page[i])
			}
		}
	})
	return err
}

// releaseDependents takes the object out of its dependents' owners.
func (c *collector) releaseDependents(ctx context.Context, v view) error {
	errs := make([]error, len(v.Dependents))
	var group errgroup.Group
	group.SetLimit(requestsMax)
	for i, d := range v.Dependents {
		group.Go(func() error {
			live, err := c.get(ctx, d.identity)
			if err == nil && live != nil {
				err = c.dropOwners(ctx, d.identity, live, []types.UID{v.UID})
			}
			if err != nil {
				errs[i] = fmt.Errorf("release %s %s: %w", d.Kind, d.Name, err)
			}
			return nil
		})
	}
	_ = group.Wait() // the calls return nil; their errors are in errs
	return errors.Join(errs...)
}

// dropOwners takes owners out of an object's references.
func (c *collector) dropOwners(ctx context.Context, id identity, live *metav1.PartialObjectMetadata,
	uids []types.UID,
) error {
	kept := slices.DeleteFunc(slices.Clone(live.OwnerReferences), func(ref metav1.OwnerReference) bool {
		return slices.Contains(uids, ref.UID)
	})
	if len(kept) == len(live.OwnerReferences) {
		return nil
	}
	_, err := c.patch(ctx, id, live, "ownerReferences", kept, len(kept) == 0)
	return err
}

// remove deletes an object, if it is still as the decision saw it.
func (c *collector) remove(ctx context.Context, v view, live *metav1.PartialObjectMetadata,
	decision verdict,
) error {
	if decision.Unblock {
		refs := slices.Clone(live.OwnerReferences)
		for i := range refs {
			refs[i].BlockOwnerDeletion = ptr.To(false)
		}
		next, err := c.patch(ctx, v.identity, live, "ownerReferences", refs, false)
		if err != nil || next == nil {
			return err
		}
		live = next
	}
	err := getter(c.metadata, v.identity).Delete(ctx, v.Name, metav1.DeleteOptions{
		Preconditions: &metav1.Preconditions{UID: &live.UID,
			ResourceVersion: &live.ResourceVersion},
		PropagationPolicy: &decision.Policy,
	})
	if absent(err) {
		c.removeAll([]types.UID{v.UID})
		return nil
	}
	return err
}

// patch sets one list in an object's metadata, or takes it away, if the object is still as it was
// seen. It returns the object as stored, or nil if it is gone.
func (c *collector) patch(ctx context.Context, id identity, live *metav1.PartialObjectMetadata,
	field string, value any, clear bool,
) (*metav1.PartialObjectMetadata, error) {
	if clear {
		value = nil
	}
	body, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid": live.UID, "resourceVersion": live.ResourceVersion, field: value,
	}})
	if err != nil {
		return nil, err
	}
	next, err := getter(c.metadata, id).Patch(ctx, id.Name, types.MergePatchType, body,
		metav1.PatchOptions{})
	if absent(err) {
		return nil, nil
	}
	return next, err
}
