package apiserver

import (
	"errors"
	"fmt"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/setpoint-dev/setpoint/kinds"
	compiled "github.com/setpoint-dev/setpoint/kinds/schema"
	"github.com/setpoint-dev/setpoint/kinds/tree"
	"github.com/setpoint-dev/setpoint/store"
)

var (
	bindingGVK  = schema.GroupVersionKind{Version: "v1", Kind: "Binding"}
	evictionGVK = schema.GroupVersionKind{Group: "policy", Version: "v1", Kind: "Eviction"}
)

// bindingKind is the collection that schedulers of old POST bindings to.
func bindingKind() kinds.Kind {
	return kinds.Kind{
		Version: "v1", Kind: "Binding", Resource: "bindings", Singular: "binding", Namespaced: true,
		Schema: compiled.Builtin("io.k8s.api.core.v1.Binding"),
	}
}

// bindByName answers POST to the collection of bindings: the body names the pod.
func (s *Server) bindByName(w http.ResponseWriter, r *request) error {
	r.kind = r.kinds.Resource(schema.GroupVersionResource{Version: "v1", Resource: "pods"})
	if r.kind == nil {
		return errNotServed()
	}
	r.subresource = "binding"
	return s.bind(w, r)
}

// bind answers POST of a pod's binding subresource: it gives the pod to a node, once.
func (s *Server) bind(w http.ResponseWriter, r *request) error {
	b, t, err := s.readObject(w, r, bindingGVK, compiled.Builtin("io.k8s.api.core.v1.Binding"))
	if err != nil {
		return err
	}
	binding, err := t.decode(b)
	if err != nil {
		return err
	}
	if t.name == "" {
		t.name = tree.Str(binding, "metadata", "name")
	}
	if err := t.checkBinding(binding); err != nil {
		return err
	}
	err = t.rewrite(func(pod kinds.Object, revision store.Revision) error {
		return t.bindPod(pod, binding, revision)
	})
	if err != nil {
		return err
	}
	return s.respondJSON(w, r, http.StatusCreated, success(http.StatusCreated))
}

func success(code int32) *metav1.Status {
	return &metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"},
		Status:   metav1.StatusSuccess, Code: code,
	}
}

func (t *write) checkBinding(binding kinds.Object) error {
	if err := t.matchNamespace(binding); err != nil {
		return err
	}
	if name := tree.Str(binding, "metadata", "name"); name != "" && name != t.name {
		return apierrors.NewBadRequest("name in URL does not match name in Binding object")
	}
	target := field.NewPath("target")
	var errs field.ErrorList
	if kind := tree.Str(binding, "target", "kind"); kind != "" && kind != "Node" {
		errs = append(errs, field.NotSupported(target.Child("kind"), kind, []string{"Node", "<empty>"}))
	}
	if tree.Str(binding, "target", "name") == "" {
		errs = append(errs, field.Required(target.Child("name"), ""))
	}
	if len(errs) > 0 {
		return unreasoned(errs.ToAggregate())
	}
	if t.name == "" {
		return apierrors.NewBadRequest("Name parameter required.")
	}
	return nil
}

// bindPod gives a pod to a node, unless it has one, or may not have one now.
func (t *write) bindPod(pod, binding kinds.Object, revision store.Revision) error {
	refuse := func(format string, args ...any) error {
		return apierrors.NewConflict(schema.GroupResource{Resource: "pods/binding"}, t.name, fmt.Errorf(format, args...))
	}
	if uid := tree.Str(binding, "metadata", "uid"); uid != "" && uid != tree.Str(pod, "metadata", "uid") {
		return refuse("Precondition failed: UID in precondition: %s, UID in object meta: %s",
			uid, tree.Str(pod, "metadata", "uid"))
	}
	if said := tree.Str(binding, "metadata", "resourceVersion"); said != "" && said != revisionText(revision) {
		return t.modified()
	}
	switch {
	case tree.Has(pod, "metadata", "deletionTimestamp"):
		return refuse("pod %s is being deleted, cannot be assigned to a host", t.name)
	case tree.Str(pod, "spec", "nodeName") != "":
		return refuse("pod %s is already assigned to node %q", t.name, tree.Str(pod, "spec", "nodeName"))
	case len(tree.List(pod, "spec", "schedulingGates")) > 0:
		return refuse("pod %s has non-empty .spec.schedulingGates", t.name)
	}
	tree.Set(pod, tree.Str(binding, "target", "name"), "spec", "nodeName")
	for _, key := range []string{"annotations", "labels"} {
		for name, value := range tree.Map(binding, "metadata", key) {
			tree.Set(pod, value, "metadata", key, name)
		}
	}
	delete(tree.Map(pod, "status"), "nominatedNodeName")
	setCondition(pod, "PodScheduled", timestamp(t.now))
	return nil
}

// setCondition makes a condition of a pod true.
func setCondition(pod kinds.Object, kind, now string) {
	conditions := tree.List(pod, "status", "conditions")
	condition := tree.Find(conditions, "type", kind)
	if condition == nil {
		condition = map[string]any{"type": kind, "lastProbeTime": nil}
		tree.Set(pod, append(conditions, condition), "status", "conditions")
	}
	if condition["status"] != "True" {
		condition["status"], condition["lastTransitionTime"] = "True", now
	}
	delete(condition, "reason")
	delete(condition, "message")
}

// rewrite changes the stored object as edit says, beside the line that writes of clients walk: no
// defaults, no owners, no validation.
func (t *write) rewrite(edit func(obj kinds.Object, revision store.Revision) error) error {
	for {
		err := t.rewriteOnce(edit)
		var conflict *store.ConflictError
		if !errors.As(err, &conflict) {
			return err
		}
	}
}

func (t *write) rewriteOnce(edit func(obj kinds.Object, revision store.Revision) error) error {
	t.begin()
	snap, err := t.newest()
	if err != nil {
		return err
	}
	entry := snap.Get(t.key())
	if entry == nil {
		return t.notFound()
	}
	obj, err := t.load(entry)
	if err != nil {
		return err
	}
	if err := edit(obj, entry.Revision); err != nil || t.opts.dryRun {
		return err
	}
	op, err := t.encode(obj)
	if err != nil {
		return err
	}
	op.Type, op.Expect = store.Put, entry.Revision
	_, err = t.commit(op)
	return err
}
