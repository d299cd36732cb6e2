package apiserver

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/setpoint-dev/setpoint/kinds"
	"github.com/setpoint-dev/setpoint/kinds/quota"
	"github.com/setpoint-dev/setpoint/kinds/tree"
	"github.com/setpoint-dev/setpoint/store"
)

// What is used of a quota is written by the commit that writes the object: it is as large as the
// objects are at every revision, a write that comes to nothing uses nothing, and two writes that
// would use the last bit both try, and one is tried again.
//
// A key for each namespace rises when a quota is made there, or limits something else. Every write
// that may use something is committed on the condition that it has not risen: so there is no write
// that has not seen a quota after the quota was made, and counting the objects then is exact.

var quotaGVK = schema.GroupVersionKind{Version: "v1", Kind: "ResourceQuota"}

func quotaGuard(namespace string) store.Key {
	return store.Key{Resource: reservedResource, Path: "quotas/" + namespace}
}

// charge has the commit write what the quotas of the namespace are used then; was is nil for a new
// object, and now for one that goes. Possible errors: 403 if a quota does not have what is needed.
func (t *write) charge(snap store.Snapshot, was, now kinds.Object) error {
	k := t.kinds.Kind(quotaGVK)
	uncounted := t.server.opts.QuotasUncounted
	switch {
	case k == nil || !t.kind.Namespaced:
		return nil
	case uncounted && (now == nil || t.subresource == "status"):
		return nil
	case was != nil && now != nil && !usageChanges(t.kind):
		return nil
	}
	if t.kind == k {
		if err := t.changeQuota(snap, was, now); err != nil {
			return err
		}
	} else {
		guard := quotaGuard(t.namespace)
		t.along = append(t.along, store.Op{Key: guard, Expect: entryRevision(snap.Get(guard))})
	}
	for e := range entries(snap, storageResource(k), t.namespace+"/", "") {
		if e.Key == t.key() {
			continue // it cannot be written twice; a quota of quotas counts itself when it is settled
		}
		if err := t.chargeOne(snap, k, e, was, now); err != nil {
			return err
		}
	}
	return nil
}

// usageChanges says whether an object of a kind may use more or less after an update.
func usageChanges(k *kinds.Kind) bool {
	return k.Group == "" && (k.Kind == "Pod" || k.Kind == "Service" || k.Kind == "PersistentVolumeClaim") ||
		k.GVK() == quotaGVK
}

// changeQuota counts what is used of a quota that is new or limits something else, and makes writes that
// do not know of it be tried again.
func (t *write) changeQuota(snap store.Snapshot, was, now kinds.Object) error {
	if t.server.opts.QuotasUncounted || now == nil || reflect.DeepEqual(tree.Get(was, "spec"), tree.Get(now, "spec")) {
		return nil
	}
	q := quota.Read(now)
	used, err := t.server.count(t.ctx, t.kinds, snap, &q, t.namespace)
	if err != nil {
		return err
	}
	now["status"] = map[string]any{"hard": q.Hard.Tree(), "used": used.Tree()}
	guard := quotaGuard(t.namespace)
	t.along = append(t.along, store.Op{
		Key: guard, Type: store.Put, Expect: entryRevision(snap.Get(guard)), RevisionAt: -1, Origin: t.origin(),
		Value: fmt.Appendf(nil, "%s/%s/%d", t.name, tree.Str(now, "metadata", "uid"), tree.Int(now, "metadata", "generation")),
	})
	return nil
}

// chargeOne charges one quota.
func (t *write) chargeOne(snap store.Snapshot, k *kinds.Kind, e *store.Entry, was, now kinds.Object) error {
	obj, err := decodeStored(t.ctx, t.kinds, k, e.Value)
	if err != nil {
		return err
	}
	q := quota.Read(obj)
	if t.server.opts.QuotasUncounted {
		q = quota.ReadStatus(obj)
	}
	if !q.Counts(t.kind) {
		return nil
	}
	more := t.delta(&q, was, now)
	if missing := q.Missing(t.kind, now); missing != "" && was == nil && q.About(t.kind, now) {
		return t.overQuota("failed quota: %s: must specify %s", q.Name, missing)
	}
	if len(more) == 0 {
		return nil
	}
	used := maps.Clone(q.Used)
	switch unknown := q.Uncounted(); {
	case len(unknown) == 0:
	case t.server.opts.QuotasUncounted:
		return t.overQuota("status unknown for quota: %s, resources: %s", q.Name, strings.Join(unknown, ","))
	default:
		if used, err = t.server.count(t.ctx, t.kinds, snap, &q, t.namespace); err != nil {
			return err
		}
	}
	before := maps.Clone(used)
	used.Add(more, 1)
	if err := t.withinQuota(&q, more, before, used, now); err != nil {
		return err
	}
	if t.opts.dryRun {
		return nil
	}
	tree.Set(obj, q.Hard.Tree(), "status", "hard")
	tree.Set(obj, used.Tree(), "status", "used")
	at := t.server.ownWrite(t.ctx, k, "update")
	at.namespace, at.name = t.namespace, q.Name
	op, err := at.encode(obj)
	if err != nil {
		return err
	}
	op.Type, op.Expect = store.Put, e.Revision
	t.along = append(t.along, op)
	return nil
}

// delta is what a write adds to what is used of a quota, and takes away from it.
func (t *write) delta(q *quota.Quota, was, now kinds.Object) quota.Amounts {
	more := maps.Clone(q.Hard)
	for name := range more {
		zero := more[name]
		zero.Sub(more[name])
		more[name] = zero
	}
	if q.About(t.kind, now) {
		more.Add(quota.Usage(t.kind, now), 1)
	}
	if q.About(t.kind, was) {
		more.Add(quota.Usage(t.kind, was), -1)
	}
	for name, amount := range more {
		if amount.IsZero() {
			delete(more, name)
		}
	}
	return more
}

// withinQuota refuses a write that uses more than there is. What is over a quota already may become
// less, and a status says what is.
func (t *write) withinQuota(q *quota.Quota, more, before, used quota.Amounts, now kinds.Object) error {
	if now == nil || t.subresource == "status" {
		return nil
	}
	var over []string
	for name, amount := range more {
		if is, most := used[name], q.Hard[name]; amount.Sign() > 0 && is.Cmp(most) > 0 {
			over = append(over, name)
		}
	}
	if len(over) == 0 {
		return nil
	}
	return t.overQuota("exceeded quota: %s, requested: %s, used: %s, limited: %s",
		q.Name, more.Of(over), before.Of(over), q.Hard.Of(over))
}

func (t *write) overQuota(format string, args ...any) error {
	return apierrors.NewForbidden(t.kind.GroupResource(), t.name, fmt.Errorf(format, args...))
}

// count counts what is used of a quota in a state.
func (s *Server) count(
	ctx context.Context, set *kinds.Set, snap store.Snapshot, q *quota.Quota, namespace string,
) (quota.Amounts, error) {
	used := maps.Clone(q.Hard)
	for name := range used {
		zero := used[name]
		zero.Sub(used[name])
		used[name] = zero
	}
	seen := map[string]bool{}
	for _, k := range set.All() {
		resource := storageResource(k)
		if !k.Namespaced || seen[resource] || k.Storage != nil || !q.Counts(k) {
			continue
		}
		seen[resource] = true
		var wrong error
		objects := func(yield func(kinds.Object) bool) {
			for e := range entries(snap, resource, namespace+"/", "") {
				obj := kinds.Object{} // of declared kinds only how many there are is counted
				if err := error(nil); !k.Declared {
					if obj, err = decodeStored(ctx, set, k, e.Value); err != nil {
						wrong = err
						continue
					}
				}
				if !yield(obj) {
					return
				}
			}
		}
		used.Add(q.Count(k, objects), 1)
		if wrong != nil {
			return nil, wrong
		}
	}
	return used, nil
}

// settleQuota counts again what is used of a quota that was just made or changed: something may have
// been written between the count and the commit.
func (s *Server) settleQuota(ctx context.Context, key store.Key) {
	ctx = context.WithoutCancel(ctx) // the client may go; what it began is finished
	for {
		err := s.settleQuotaOnce(ctx, key)
		var conflict *store.ConflictError
		if errors.As(err, &conflict) {
			continue
		}
		if err != nil {
			s.log.Error("a quota is not counted; the next write that uses it does so", "quota", key.Path, "error", err)
		}
		return
	}
}

func (s *Server) settleQuotaOnce(ctx context.Context, key store.Key) error {
	snap, err := s.store.Snapshot(ctx)
	if err != nil {
		return err
	}
	set := s.kinds.Current()
	k, e := set.Kind(quotaGVK), snap.Get(key)
	if e == nil || k == nil {
		return nil
	}
	obj, err := decodeStored(ctx, set, k, e.Value)
	if err != nil {
		return err
	}
	t := s.ownWrite(ctx, k, "update")
	t.namespace, t.name = splitKey(k, key)
	q := quota.Read(obj)
	used, err := s.count(ctx, set, snap, &q, t.namespace)
	if err != nil {
		return err
	}
	status := map[string]any{"hard": q.Hard.Tree(), "used": used.Tree()}
	if reflect.DeepEqual(obj["status"], status) {
		return nil
	}
	obj["status"] = status
	op, err := t.encode(obj)
	if err != nil {
		return err
	}
	op.Type, op.Expect = store.Put, e.Revision
	_, err = t.commit(op)
	return err
}

// isQuota says whether a key is that of a ResourceQuota.
func isQuota(key store.Key) bool { return key.Resource == "resourcequotas" }
