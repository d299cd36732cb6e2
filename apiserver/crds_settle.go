package apiserver

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

	"github.com/setpoint-dev/setpoint/apiserver/authn"
	"github.com/setpoint-dev/setpoint/kinds"
	"github.com/setpoint-dev/setpoint/kinds/crd"
	"github.com/setpoint-dev/setpoint/kinds/tree"
	"github.com/setpoint-dev/setpoint/store"
)

// after brings about what a commit means for definitions, before the client has its answer: a new
// definition gets its names and is served, a deleted one's objects go, and with the last of them the
// definition itself. It does nothing for other commits.
func (d *definitions) after(ctx context.Context, op store.Op) {
	group := ""
	switch {
	case !d.served:
		return
	case op.Key.Resource == crd.Resource:
		group = groupOf(op.Key.Path)
	case op.Type == store.Delete:
		def := d.find(op.Key.Resource)
		if def == nil || !def.Deleted {
			return
		}
		group = def.Group()
	default:
		return
	}
	// The client may go; what it began is finished.
	ctx = context.WithoutCancel(ctx)
	if err := d.settle(ctx, group); err != nil {
		d.server.log.Error("a definition is not settled; the next write in its group tries again", "group", group, "error", err)
	}
}

// settle gives each definition of a group, or all of them for "", the status that it should have,
// until nothing is left to do.
func (d *definitions) settle(ctx context.Context, group string) error {
	for again := true; again; {
		before, err := d.server.store.Snapshot(ctx)
		if err != nil {
			return err
		}
		d.follow(ctx)
		again = false
		all := d.ofGroup(group)
		others := make([]*crd.Definition, len(all))
		for i, def := range all {
			others[i] = def.Definition
		}
		for _, def := range all {
			changed, err := d.settleOne(ctx, before, def, others)
			if err != nil {
				return err
			}
			if changed {
				again = true // its names may be what another waits for
				break
			}
		}
	}
	return nil
}

// settleOne gives a definition its status, on what was known of the others after the state before.
func (d *definitions) settleOne(
	ctx context.Context, before store.Snapshot, def *definition, others []*crd.Definition,
) (changed bool, err error) {
	if def.Deleted {
		return d.finish(ctx, def)
	}
	status := def.Settled(others, d.server.clock.Now())
	if def.IsSettled(status) {
		return false, nil
	}
	return d.write(ctx, def, func(obj kinds.Object) { crd.SetStatus(obj, status) }, d.turn(before, def))
}

// turn makes a commit the only one that gives names to definitions of a group since a state. Whether
// names are free depends on all definitions of the group, also on those that another server on the
// store is about to give them to.
func (d *definitions) turn(before store.Snapshot, def *definition) store.Op {
	key := store.Key{Resource: reservedResource, Path: "definitions/" + def.Group()}
	return store.Op{
		Key: key, Type: store.Put, Expect: entryRevision(before.Get(key)),
		Value: fmt.Appendf(nil, "%s@%d", def.Name, def.Revision), RevisionAt: -1,
	}
}

// finish deletes the objects of a definition that is going, and the definition's finalizer with the
// last of them. If one cannot be deleted the definition says so, and is left at that: it is tried again
// with the next write in the group, and others of the group do not wait for it.
func (d *definitions) finish(ctx context.Context, def *definition) (changed bool, err error) {
	if !def.Waiting() {
		return false, nil
	}
	left, failed := d.deleteObjects(ctx, def)
	if left == 0 && failed == nil {
		return d.write(ctx, def, func(obj kinds.Object) {
			m := metadata(obj)
			var kept []string
			for _, f := range tree.Strings(m, "finalizers") {
				if f != apiextensionsv1.CustomResourceCleanupFinalizer {
					kept = append(kept, f)
				}
			}
			setFinalizers(m, kept)
		})
	}
	status := def.Terminating(left, failed, d.server.clock.Now())
	if def.IsSettled(status) {
		return false, nil
	}
	changed, err = d.write(ctx, def, func(obj kinds.Object) { crd.SetStatus(obj, status) })
	return changed && failed == nil, err
}

// deleteObjects deletes all objects of a definition and returns how many wait for their finalizers. It
// stops at the first that cannot be deleted: what others have to wait for may take long to fail.
func (d *definitions) deleteObjects(ctx context.Context, def *definition) (left int, err error) {
	snap, err := d.server.store.Snapshot(ctx)
	k := def.kept
	if err != nil || k == nil {
		return 0, err
	}
	for e := range entries(snap, storageResource(k), "", "") {
		if terminating(e) {
			left++
			continue
		}
		t := d.server.ownWrite(ctx, k, "delete")
		t.namespace, t.name = splitKey(k, e.Key)
		gone, err := t.remove(&metav1.DeleteOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			return left, fmt.Errorf("%s: %w", e.Key.Path, err)
		}
		if gone.pending {
			left++
		}
	}
	return left, nil
}

// write changes a definition, unless it, or what goes along, has changed meanwhile; then it is looked
// at again.
func (d *definitions) write(
	ctx context.Context, def *definition, change func(obj kinds.Object), along ...store.Op,
) (bool, error) {
	set := d.server.kinds.Current()
	k := set.Kind(schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"})
	snap, err := d.server.store.Snapshot(ctx)
	if err != nil {
		return false, err
	}
	t := d.server.ownWrite(ctx, k, "update")
	t.name = def.Name
	entry := snap.Get(t.key())
	if entry == nil || int64(entry.Revision) != def.Revision {
		return true, nil
	}
	obj, err := t.load(entry)
	if err != nil {
		return false, err
	}
	change(obj)
	if _, err := k.Schema.Conform(obj); err != nil {
		return false, err
	}
	op, err := t.encode(obj)
	if err != nil {
		return false, err
	}
	op.Type, op.Expect = store.Put, entry.Revision
	if tree.Has(obj, "metadata", "deletionTimestamp") && len(tree.List(obj, "metadata", "finalizers")) == 0 {
		op.Type = store.Delete
	}
	t.along = along
	_, err = t.commit(op)
	var conflict *store.ConflictError
	if errors.As(err, &conflict) {
		err = nil
	}
	return true, err
}

// ownWrite begins a write that the server does by itself, as a consequence of another.
func (s *Server) ownWrite(ctx context.Context, k *kinds.Kind, verb string) *write {
	return &write{
		server: s, ctx: ctx, kinds: s.kinds.Current(), kind: k, hooks: &k.Strategy, verb: verb, consequence: true,
		manager: "kube-apiserver", user: &authn.User{Name: "system:apiserver", Groups: []string{authn.Masters}},
		now: s.clock.Now(), warn: func(string) {},
	}
}
