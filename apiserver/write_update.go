package apiserver

import (
	"errors"
	"fmt"
	"net/http"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/setpoint-dev/setpoint/apiserver/admission"
	"github.com/setpoint-dev/setpoint/apiserver/authz"
	"github.com/setpoint-dev/setpoint/kinds"
	"github.com/setpoint-dev/setpoint/kinds/tree"
	"github.com/setpoint-dev/setpoint/store"
)

// update answers PUT of an object, of its status, or of another view of it.
func (s *Server) update(w http.ResponseWriter, r *request) error {
	if _, err := negotiate(r); err != nil {
		return err
	}
	b, t, err := s.readObject(w, r, r.kind.GVK(), r.kind.Schema)
	if err != nil {
		return err
	}
	first, err := t.decodeUpdate(b) // what is wrong with it goes before whether there is such an object
	if err != nil {
		return err
	}
	value, created, err := t.modify(change{
		create: s.creation(r, r.kind.CreateOnUpdate),
		next: func(live kinds.Object) (kinds.Object, error) {
			obj := first
			if first = nil; obj == nil { // an attempt uses it up
				if obj, err = t.decodeUpdate(b); err != nil {
					return nil, err
				}
			}
			if err := t.checkUID(obj, live); err != nil {
				return nil, err
			}
			if err := t.checkNamesRevision(obj, live); err != nil {
				return nil, err
			}
			t.dedupOwners(obj)
			t.setDefaults(obj)
			t.own(live, obj)
			return obj, nil
		},
	})
	if err != nil {
		return err
	}
	return s.respond(w, r, modifiedCode(created), value)
}

// decodeUpdate decodes what is to be in the place of the object of the request.
func (t *write) decodeUpdate(b *body) (kinds.Object, error) {
	obj, err := t.decode(b)
	if err != nil {
		return nil, err
	}
	if err := t.matchNamespace(obj); err != nil {
		return nil, err
	}
	return obj, t.matchName(obj)
}

func modifiedCode(created bool) int {
	if created {
		return http.StatusCreated
	}
	return http.StatusOK
}

// creation returns the check whether who updates or applies may also create, which it is when
// there is no object yet; nil where that is not how objects are made.
func (s *Server) creation(r *request, allowed bool) func() error {
	if !allowed || r.subresource != "" || !slices.Contains(verbs(r.kind), "create") {
		return nil
	}
	return func() error {
		return s.allowed(r, &authz.Attributes{
			User: r.user, Verb: "create", Group: r.group, Version: r.version, Resource: r.resource,
			Namespace: r.namespace, Name: r.name,
		})
	}
}

// checkUID refuses an update that is about another object of the same name.
func (t *write) checkUID(obj, live kinds.Object) error {
	said, is := tree.Str(obj, "metadata", "uid"), tree.Str(live, "metadata", "uid")
	if said == "" || said == is {
		return nil
	}
	//lint:ignore ST1005 the text is what clients of Kubernetes know
	return apierrors.NewConflict(t.kind.GroupResource(), t.name, fmt.Errorf(
		"Precondition failed: UID in precondition: %s, UID in object meta: %s", said, is))
}

// change is what an update, a patch or an apply does to an object.
type change struct {
	// next returns the object that should come of a stored one, with its defaults and managedFields.
	// It leaves live as it is; live is nil if there is none and create is set.
	next func(live kinds.Object) (kinds.Object, error)
	// create says whether there may be no object yet: nil if there must be one, else what refuses
	// to make one.
	create func() error
}

// modify walks the line of a change until nothing gets in between, and returns the object's bytes.
func (t *write) modify(c change) (value []byte, created bool, err error) {
	for {
		value, created, err = t.modifyOnce(c)
		var conflict *store.ConflictError
		if !errors.As(err, &conflict) {
			return value, created, err
		}
	}
}

// modifyOnce is one attempt. Possible errors: *store.ConflictError if something got in between.
func (t *write) modifyOnce(c change) (value []byte, created bool, err error) {
	snap, err := t.newest()
	if err != nil {
		return nil, false, err
	}
	entry := snap.Get(t.key())
	if entry == nil {
		if c.create == nil {
			return nil, false, t.notFound()
		}
		value, err := t.createByUpdate(c)
		return value, true, err
	}
	t.base = entry.Revision
	live, err := t.load(entry)
	if err != nil {
		return nil, false, err
	}
	obj, err := c.next(live)
	if err != nil {
		return nil, false, err
	}
	value, err = t.replace(snap, entry, live, obj)
	return value, false, err
}

// createByUpdate creates what was to be updated.
func (t *write) createByUpdate(c change) ([]byte, error) {
	if err := c.create(); err != nil {
		return nil, err
	}
	obj, err := c.next(nil)
	if err != nil {
		return nil, err
	}
	wipeSystemFields(obj)
	t.shown = tree.Str(obj, "metadata", "resourceVersion")
	delete(metadata(obj), "resourceVersion")
	value, err := t.insertOnce(obj)
	if apierrors.IsAlreadyExists(err) && !t.opts.dryRun {
		return nil, &store.ConflictError{Key: t.key()}
	}
	return value, err
}

// replace is the line of an update, behind decoding or patching.
func (t *write) replace(snap store.Snapshot, entry *store.Entry, live, obj kinds.Object) ([]byte, error) {
	t.begin()
	a := t.attributes(admission.Update, obj, live, snap)
	if err := t.mutate(a, obj); err != nil {
		return nil, err
	}
	if err := t.checkRevision(obj, entry); err != nil {
		return nil, err
	}
	carryOver(obj, live)
	if err := t.prepareUpdate(t.env(snap), obj, live); err != nil {
		return nil, err
	}
	t.bumpGeneration(obj, live)
	if errs := t.checkChanged(obj, live); len(errs) > 0 {
		return nil, t.invalid(errs)
	}
	if warnings := t.hooks.Warnings; warnings != nil && t.subresource == "" {
		for _, text := range warnings(obj, live) {
			t.warn(text)
		}
	}
	if err := t.validate(a); err != nil {
		return nil, err
	}
	if t.goesByUpdate(obj, live) {
		return t.deleteByUpdate(snap, entry, live, obj)
	}
	if unchanged(obj, live) && isKeptForm(t.kind, entry.Value) {
		return entry.Value, nil
	}
	if err := t.charge(snap, live, obj); err != nil {
		return nil, err
	}
	op, err := t.encode(obj)
	if err != nil {
		return nil, err
	}
	if t.opts.dryRun {
		return stamped(op, revisionText(entry.Revision)), nil
	}
	if err := t.hold(snap, live, obj); err != nil {
		return nil, err
	}
	op.Type, op.Expect = store.Put, entry.Revision
	stored, err := t.commit(op)
	if err != nil {
		return nil, err
	}
	return stored.Value, nil
}

// statusKeepsMetadata is what a status write does not change of metadata: everything but
// annotations.
var statusKeepsMetadata = []string{"labels", "ownerReferences", "finalizers", "generateName", "deletionTimestamp",
	"deletionGracePeriodSeconds"}

// prepareUpdate keeps each half of an object out of the other's writes, and runs the kind's hook.
func (t *write) prepareUpdate(env *kinds.Env, obj, live kinds.Object) error {
	switch {
	case t.subresource == "status":
		for key := range obj {
			if _, ok := live[key]; !ok && key != "status" {
				delete(obj, key)
			}
		}
		for key := range live {
			if key != "status" && key != "metadata" {
				tree.Move(key, live, obj)
			}
		}
		for _, key := range statusKeepsMetadata {
			tree.Move(key, metadata(live), metadata(obj))
		}
		if t.hooks.PrepareForStatusUpdate != nil {
			t.hooks.PrepareForStatusUpdate(env, obj, live)
		}
		return nil
	case t.kind.Status && t.hooks == &t.kind.Strategy: // a view says itself what it lets through
		tree.Move("status", live, obj)
	}
	if t.hooks.PrepareForUpdate != nil {
		return t.hooks.PrepareForUpdate(env, obj, live)
	}
	return nil
}

// checkChanged returns what is wrong with a changed object.
func (t *write) checkChanged(obj, live kinds.Object) field.ErrorList {
	errs := t.checkMetaUpdate(obj, live)
	hooks := t.hooks
	if t.subresource == "status" {
		if hooks.ValidateStatusUpdate != nil {
			errs = append(errs, hooks.ValidateStatusUpdate(obj, live)...)
		}
		return errs
	}
	var wrong, changed field.ErrorList
	if hooks.Validate != nil {
		wrong = hooks.Validate(obj)
	}
	if hooks.ValidateUpdate != nil {
		changed = hooks.ValidateUpdate(obj, live)
	}
	if hooks.ChangesFirst {
		wrong, changed = changed, wrong
	}
	return slices.Concat(errs, wrong, changed)
}

// goesByUpdate says whether an update takes away the last thing that a deleted object waited for.
func (t *write) goesByUpdate(obj, live kinds.Object) bool {
	m := tree.Map(live, "metadata")
	return m["deletionTimestamp"] != nil && tree.Int(m, "deletionGracePeriodSeconds") == 0 &&
		len(tree.List(obj, "metadata", "finalizers")) == 0 &&
		(!isNamespace(t.kind) || len(tree.List(obj, "spec", "finalizers")) == 0)
}

// deleteByUpdate deletes what an update left nothing to wait for. The client is shown what it
// wrote, with the revision that was there before.
func (t *write) deleteByUpdate(snap store.Snapshot, entry *store.Entry, live, obj kinds.Object) ([]byte, error) {
	op, err := t.encode(obj)
	if err != nil {
		return nil, err
	}
	value := stamped(op, revisionText(entry.Revision))
	if t.opts.dryRun {
		return value, nil
	}
	if err := t.release(snap, live); err != nil {
		return nil, err
	}
	op.Type, op.Expect = store.Delete, entry.Revision
	if _, err := t.commit(op); err != nil {
		return nil, err
	}
	return value, nil
}
