package apiserver

import (
	"errors"
	"net/http"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/setpoint-dev/setpoint/apiserver/admission"
	"github.com/setpoint-dev/setpoint/kinds"
	"github.com/setpoint-dev/setpoint/kinds/budget"
	compiled "github.com/setpoint-dev/setpoint/kinds/schema"
	"github.com/setpoint-dev/setpoint/kinds/tree"
	"github.com/setpoint-dev/setpoint/store"
)

var budgetGVK = schema.GroupVersionKind{Group: "policy", Version: "v1", Kind: "PodDisruptionBudget"}

// evict answers POST of a pod's eviction subresource: it deletes the pod with the options given, if the
// budget that covers it allows that. What the budget loses and the end of the pod are one commit, so
// that of evictions at the same time no more go through than are allowed, and none that comes to nothing
// costs anything.
func (s *Server) evict(w http.ResponseWriter, r *request) error {
	b, t, err := s.readObject(w, r, evictionGVK, compiled.Builtin("io.k8s.api.policy.v1.Eviction"))
	if err != nil {
		return err
	}
	eviction, err := t.decode(b)
	if err != nil {
		return err
	}
	if tree.Str(eviction, "metadata", "name") != t.name {
		return apierrors.NewBadRequest("name in URL does not match name in Eviction object")
	}
	opts := deleteOptions(tree.Map(eviction, "deleteOptions"))
	t.opts.dryRun = t.opts.dryRun || len(opts.DryRun) > 0
	for {
		err := t.evictOnce(opts)
		var conflict *store.ConflictError
		if errors.As(err, &conflict) {
			continue
		}
		if err != nil {
			return err
		}
		return s.respondJSON(w, r, http.StatusCreated, success(http.StatusCreated))
	}
}

func (t *write) evictOnce(opts *metav1.DeleteOptions) error {
	t.begin()
	snap, err := t.newest()
	if err != nil {
		return err
	}
	entry := snap.Get(t.key())
	if entry == nil {
		return t.notFound()
	}
	live, err := t.load(entry)
	if err != nil {
		return err
	}
	a := t.attributes(admission.Delete, nil, live, snap)
	if err := t.mutate(a, nil); err != nil {
		return err
	}
	if err := t.validate(a); err != nil {
		return err
	}
	if err := t.checkPreconditions(opts.Preconditions, entry, live); err != nil {
		return err
	}
	if err := t.spend(snap, live); err != nil {
		return err
	}
	setCondition(live, string(corev1.DisruptionTarget), timestamp(t.now))
	c := tree.Find(tree.List(live, "status", "conditions"), "type", string(corev1.DisruptionTarget))
	c["reason"], c["message"] = "EvictionByEvictionAPI", "Eviction API: evicting"
	_, err = t.erase(snap, entry, live, opts)
	return err
}

// spend has the commit take the eviction out of the budget that covers the pod, if there is one.
// Possible errors: those of budget.Spend; 500 if several cover it.
func (t *write) spend(snap store.Snapshot, live kinds.Object) error {
	pod := &corev1.Pod{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(live, pod); err != nil {
		return err
	}
	if !budget.Protects(pod) {
		return nil
	}
	k := t.kinds.Kind(budgetGVK)
	var covers *policyv1.PodDisruptionBudget
	var stored *store.Entry
	for e := range entries(snap, storageResource(k), t.namespace+"/", "") {
		b := &policyv1.PodDisruptionBudget{}
		obj, err := decodeStored(t.ctx, t.kinds, k, e.Value)
		if err == nil {
			err = runtime.DefaultUnstructuredConverter.FromUnstructured(obj, b)
		}
		switch {
		case err != nil:
			return err
		case !budget.Covers(b, labels.Set(pod.Labels)):
		case covers != nil:
			return severalBudgets()
		default:
			covers, stored = b, e
		}
	}
	if covers == nil {
		return nil
	}
	t.depend(stored) // a free eviction, too, holds for the budget as it was read
	changed, err := budget.Spend(covers, pod, t.now.Truncate(time.Second))
	if err != nil || !changed || t.opts.dryRun {
		return err
	}
	return t.writeBudget(k, covers, stored)
}

func severalBudgets() error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusInternalServerError,
		Message: "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.",
	}}
}

// writeBudget has the commit write the status of a budget.
func (t *write) writeBudget(k *kinds.Kind, b *policyv1.PodDisruptionBudget, stored *store.Entry) error {
	obj, err := decodeStored(t.ctx, t.kinds, k, stored.Value)
	if err != nil {
		return err
	}
	status, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&b.Status)
	if err != nil {
		return err
	}
	obj["status"] = status
	at := t.server.ownWrite(t.ctx, k, "update")
	at.namespace, at.name = t.namespace, b.Name
	op, err := at.encode(obj)
	if err != nil {
		return err
	}
	op.Type, op.Expect = store.Put, stored.Revision
	for i := range t.along {
		if t.along[i].Key == op.Key {
			t.along[i] = op
			return nil
		}
	}
	t.along = append(t.along, op)
	return nil
}
