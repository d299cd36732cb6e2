package apiserver

import (
	"errors"
	"net/http"
	"strconv"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/setpoint-dev/setpoint/apiserver/admission"
	"github.com/setpoint-dev/setpoint/kinds"
	"github.com/setpoint-dev/setpoint/kinds/tree"
	"github.com/setpoint-dev/setpoint/store"
)

// create answers POST to a collection.
func (s *Server) create(w http.ResponseWriter, r *request) error {
	if _, err := negotiate(r); err != nil {
		return err
	}
	b, t, err := s.readObject(w, r, r.kind.GVK(), r.kind.Schema)
	if err != nil {
		return err
	}
	value, err := t.insert(func() (kinds.Object, error) {
		obj, err := t.decode(b)
		if err != nil {
			return nil, err
		}
		return obj, t.prepareNew(obj)
	})
	if err != nil {
		return err
	}
	return s.respond(w, r, http.StatusCreated, value)
}

// decode turns a body into a tree, and deals with what a strict reader would not accept.
func (t *write) decode(b *body) (kinds.Object, error) {
	obj, findings, err := b.decode()
	if err != nil {
		return nil, err
	}
	return obj, b.judge(t, findings)
}

// prepareNew makes what a client sent as a new object ready for insert.
func (t *write) prepareNew(obj kinds.Object) error {
	wipeSystemFields(obj)
	if err := t.matchNamespace(obj); err != nil {
		return err
	}
	t.dedupOwners(obj)
	t.setDefaults(obj)
	t.own(nil, obj)
	return nil
}

// nameAttemptsMax bounds the names tried for a generateName. With 27 letters and 5 places, eight
// tries leave one failure in a thousand at a million names with the same beginning.
const nameAttemptsMax = 8

// insert stores a new object and returns its bytes. What source returns is complete but for what
// the server sets, and is used up; source is asked again if a generated name is taken, or the
// object's namespace changes before the object is there.
func (t *write) insert(source func() (kinds.Object, error)) ([]byte, error) {
	for attempt := 1; ; {
		obj, err := source()
		if err != nil {
			return nil, err
		}
		base := tree.Str(obj, "metadata", "generateName")
		t.name = tree.Str(obj, "metadata", "name")
		generated := t.name == "" && base != ""
		if generated {
			t.name = generateName(base, t.server.random)
			metadata(obj)["name"] = t.name
		}
		value, err := t.insertOnce(obj)
		var conflict *store.ConflictError
		switch {
		case errors.As(err, &conflict):
			continue
		case generated && apierrors.IsAlreadyExists(err):
			if attempt++; attempt <= nameAttemptsMax {
				continue
			}
			return nil, apierrors.NewGenerateNameConflict(t.kind.GroupResource(), t.name, 1)
		}
		return value, err
	}
}

// generateName appends five random letters to a base, which is cut so that the name fits into a
// label's value.
func generateName(base string, random *random) string {
	const most, letters = 63, 5
	return base[:min(len(base), most-letters)] + random.suffix(letters)
}

// insertOnce is the line of a create, behind decoding. Possible errors: *store.ConflictError if
// something else changed that the object depends on, and what a client sees.
func (t *write) insertOnce(obj kinds.Object) ([]byte, error) {
	t.begin()
	snap, err := t.newest()
	if err != nil {
		return nil, err
	}
	if err := t.dependOnDefinition(snap); err != nil {
		return nil, err
	}
	a := t.attributes(admission.Create, obj, nil, snap)
	if err := t.mutate(a, obj); err != nil {
		return nil, err
	}
	t.fillSystemFields(obj)
	if prepare := t.hooks.PrepareForCreate; prepare != nil {
		if err := prepare(t.env(snap), obj); err != nil {
			return nil, err
		}
		if t.name == "" {
			t.name = tree.Str(obj, "metadata", "name")
		}
	}
	if errs := t.checkNew(obj); len(errs) > 0 {
		return nil, t.invalid(errs)
	}
	if warnings := t.hooks.Warnings; warnings != nil {
		for _, text := range warnings(obj, nil) {
			t.warn(text)
		}
	}
	if err := t.validate(a); err != nil {
		return nil, err
	}
	if err := t.charge(snap, nil, obj); err != nil {
		return nil, err
	}
	op, err := t.encode(obj)
	if err != nil {
		return nil, err
	}
	if t.opts.dryRun {
		if e := snap.Get(op.Key); e != nil {
			return nil, t.alreadyExists(e)
		}
		return stamped(op, t.shown), nil
	}
	if namesRevision(obj) {
		return nil, unreasoned(errors.New("resourceVersion should not be set on objects to be created"))
	}
	if err := t.hold(snap, nil, obj); err != nil {
		return nil, err
	}
	op.Type = store.Put
	entry, err := t.commit(op)
	var conflict *store.ConflictError
	if errors.As(err, &conflict) && conflict.Key == op.Key {
		return nil, t.alreadyExists(conflict.Found)
	}
	if err != nil {
		return nil, err
	}
	return entry.Value, nil
}

// namesRevision says whether a new object names a revision that it might have been read at. What is
// no number is nobody's revision, and is replaced.
func namesRevision(obj kinds.Object) bool {
	text := tree.Str(obj, "metadata", "resourceVersion")
	if text == "" {
		return false
	}
	revision, err := strconv.ParseUint(text, 10, 64)
	return err == nil && revision != 0
}

func (t *write) fillSystemFields(obj kinds.Object) {
	m := metadata(obj)
	m["uid"] = t.server.random.uid()
	m["creationTimestamp"] = timestamp(t.now)
	if t.kind.Generation {
		m["generation"] = int64(1)
	}
}

// checkNew returns what is wrong with a new object.
func (t *write) checkNew(obj kinds.Object) field.ErrorList {
	var errs field.ErrorList
	if t.kind.Metadata == kinds.MetadataFirst {
		errs = t.checkMeta(obj)
	}
	if t.hooks.Validate != nil {
		errs = append(errs, t.hooks.Validate(obj)...)
	}
	if t.kind.Metadata == kinds.MetadataNext {
		errs = append(errs, t.checkMeta(obj)...)
	}
	if t.hooks.ValidateCreate != nil {
		errs = append(errs, t.hooks.ValidateCreate(obj)...)
	}
	if t.kind.Metadata == kinds.MetadataAlone && len(errs) == 0 {
		errs = t.checkMeta(obj)
	}
	return errs
}

func (t *write) alreadyExists(found *store.Entry) error {
	err := apierrors.NewAlreadyExists(t.kind.GroupResource(), t.name)
	if found != nil && terminating(found) {
		err.ErrStatus.Message = "object is being deleted: " + err.ErrStatus.Message
	}
	return err
}
