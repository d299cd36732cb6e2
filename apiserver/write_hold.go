package apiserver

import (
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/setpoint-dev/setpoint/kinds"
	"github.com/setpoint-dev/setpoint/store"
)

// reservedResource is where the store keeps who holds what kinds.Kind.Holds names: a key for each,
// whose value is the key of the holder. No kind can have a resource of this name.
//
// A reservation is made, moved and given back by the commit that writes the holder. So it is there
// exactly as long as the holder is, whichever server on the store wrote it, and a write that comes
// to nothing leaves none.
const reservedResource = "@reserved"

func reservation(h kinds.Held) store.Key {
	return store.Key{Resource: reservedResource, Path: h.Space + "/" + h.Name}
}

// free says whether nobody holds something in a state, and the write has not chosen it either.
func (t *write) free(snap store.Snapshot, h kinds.Held) bool {
	return snap.Get(reservation(h)) == nil && !slices.Contains(t.chosen, h)
}

// hold has the commit reserve what an object holds now and did not hold before, and give back what
// it held and does not hold any more; was is nil if it is new, and now if it goes.
// Possible errors: 409 if somebody else holds it.
func (t *write) hold(snap store.Snapshot, was, now kinds.Object) error {
	had, has := t.holds(was), t.holds(now)
	for _, h := range has {
		if slices.Contains(had, h) {
			continue
		}
		key := reservation(h)
		if e := snap.Get(key); e != nil {
			return apierrors.NewConflict(t.kind.GroupResource(), t.name,
				fmt.Errorf("%s %s is held by %s", h.Space, h.Name, e.Value))
		}
		t.along = append(t.along, store.Op{
			Key: key, Type: store.Put, Value: []byte(t.key().String()), RevisionAt: -1, Origin: t.origin(),
		})
	}
	for _, h := range had {
		e := snap.Get(reservation(h))
		if !slices.Contains(has, h) && e != nil && string(e.Value) == t.key().String() {
			t.along = append(t.along, store.Op{
				Key: reservation(h), Type: store.Delete, Expect: store.Any, RevisionAt: -1, Origin: t.origin(),
			})
		}
	}
	return nil
}

func (t *write) holds(obj kinds.Object) []kinds.Held {
	if obj == nil || t.kind.Holds == nil {
		return nil
	}
	return t.kind.Holds(obj)
}
