package apiserver

import (
	"fmt"
	"net/http"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/setpoint-dev/setpoint/kinds"
	compiled "github.com/setpoint-dev/setpoint/kinds/schema"
	"github.com/setpoint-dev/setpoint/kinds/tree"
)

// A Scale is a view of an object that has replicas. It is made of the object's tree, and what is
// written to it is written to the object.

var scaleGVK = schema.GroupVersionKind{Group: "autoscaling", Version: "v1", Kind: "Scale"}

func scaleSchema() *compiled.Schema { return compiled.Builtin("io.k8s.api.autoscaling.v1.Scale") }

// getScale answers GET of a scale subresource.
func (s *Server) getScale(w http.ResponseWriter, r *request) error {
	snap, err := s.snapshot(r, 0)
	if err != nil {
		return err
	}
	entry := snap.Get(r.key())
	if entry == nil {
		return apierrors.NewNotFound(r.kind.GroupResource(), r.name)
	}
	obj, err := decodeStored(r.http.Context(), r.kinds, r.kind, entry.Value)
	if err != nil {
		return err
	}
	if path := r.kind.Scale.SpecReplicas; r.kind.Scale.AsField && !tree.Has(obj, scalePath(path)...) {
		return apierrors.NewInternalError(fmt.Errorf("the spec replicas field %q does not exist", "."+path))
	}
	return s.respondJSON(w, r, http.StatusOK, scaleOf(r.kind, obj))
}

// updateScale answers PUT of a scale subresource.
func (s *Server) updateScale(w http.ResponseWriter, r *request) error {
	b, t, err := s.readObject(w, r, scaleGVK, scaleSchema())
	if err != nil {
		return err
	}
	return s.writeScale(w, r, t, func(kinds.Object) (kinds.Object, error) { return t.decode(b) })
}

// patchScale answers PATCH of a scale subresource.
func (s *Server) patchScale(w http.ResponseWriter, r *request) error {
	p, t, err := s.readPatch(w, r)
	if err != nil {
		return err
	}
	if p.kind == types.ApplyYAMLPatchType {
		return s.applyScale(w, r, t, p)
	}
	return s.writeScale(w, r, t, func(live kinds.Object) (kinds.Object, error) {
		return p.apply(t, scaleSchema(), scaleOf(r.kind, live))
	})
}

// writeScale changes an object so that its scale becomes what next returns.
func (s *Server) writeScale(w http.ResponseWriter, r *request, t *write, next func(live kinds.Object) (kinds.Object, error)) error {
	value, _, err := t.modify(change{next: func(live kinds.Object) (kinds.Object, error) {
		scale, err := next(live)
		if err != nil {
			return nil, err
		}
		if err := t.checkScale(scale); err != nil {
			return nil, err
		}
		obj := tree.CopyMap(live)
		tree.Set(obj, tree.Int(scale, "spec", "replicas"), scalePath(r.kind.Scale.SpecReplicas)...)
		tree.Move("resourceVersion", metadata(scale), metadata(obj))
		if uid := tree.Str(scale, "metadata", "uid"); uid != "" {
			metadata(obj)["uid"] = uid
		}
		t.own(live, obj)
		return obj, nil
	}})
	if err != nil {
		return err
	}
	return s.respondScale(w, r, value)
}

func (t *write) checkScale(scale kinds.Object) error {
	if err := t.matchName(scale); err != nil {
		return err
	}
	if err := t.matchNamespace(scale); err != nil {
		return err
	}
	replicas := tree.Int(scale, "spec", "replicas")
	if replicas >= 0 || t.kind.Scale.AsField {
		return nil
	}
	return apierrors.NewInvalid(scaleGVK.GroupKind(), t.name, field.ErrorList{
		field.Invalid(field.NewPath("spec", "replicas"), replicas, "must be greater than or equal to 0")})
}

// applyScale applies a Scale: what it says of replicas is applied to the object.
func (s *Server) applyScale(w http.ResponseWriter, r *request, t *write, p *requestPatch) error {
	value, _, err := t.modify(change{next: func(live kinds.Object) (kinds.Object, error) {
		if p.err != nil {
			return nil, p.err
		}
		if tree.Str(p.tree, "kind") != scaleGVK.Kind || tree.Str(p.tree, "apiVersion") != scaleGVK.GroupVersion().String() {
			return nil, apierrors.NewBadRequest("invalid object type: only an autoscaling/v1 Scale can be applied to a scale")
		}
		if err := t.checkScale(tree.CopyMap(p.tree)); err != nil {
			return nil, err
		}
		config := kinds.Object{"apiVersion": t.kind.GVK().GroupVersion().String(), "kind": t.kind.Kind,
			"metadata": map[string]any{"name": t.name, "namespace": t.namespace}}
		if replicas := tree.Get(p.tree, "spec", "replicas"); replicas != nil {
			tree.Set(config, replicas, scalePath(r.kind.Scale.SpecReplicas)...)
		}
		return t.applyTree(live, config)
	}})
	if err != nil {
		return err
	}
	return s.respondScale(w, r, value)
}

func (s *Server) respondScale(w http.ResponseWriter, r *request, value []byte) error {
	obj, err := decodeStored(r.http.Context(), r.kinds, r.kind, value)
	if err != nil {
		return err
	}
	return s.respondJSON(w, r, http.StatusOK, scaleOf(r.kind, obj))
}

// scaleOf returns an object's scale. It shares nothing with the object.
func scaleOf(k *kinds.Kind, obj kinds.Object) kinds.Object {
	m := map[string]any{}
	for _, name := range []string{"name", "namespace", "uid", "resourceVersion", "creationTimestamp"} {
		tree.Move(name, metadata(obj), m)
	}
	status := map[string]any{"replicas": tree.Int(obj, scalePath(k.Scale.StatusReplicas)...)}
	if text := selectorText(tree.Get(obj, scalePath(k.Scale.LabelSelector)...)); text != "" {
		status["selector"] = text
	}
	spec := map[string]any{}
	if replicas := tree.Int(obj, scalePath(k.Scale.SpecReplicas)...); replicas != 0 {
		spec["replicas"] = replicas
	}
	return kinds.Object{"kind": scaleGVK.Kind, "apiVersion": scaleGVK.GroupVersion().String(),
		"metadata": m, "spec": spec, "status": status}
}

func scalePath(dotted string) []string { return strings.Split(dotted, ".") }

// selectorText spells a selector, which may be text already, as a query has it.
func selectorText(v any) string {
	switch v := v.(type) {
	case string:
		return v
	case map[string]any:
		if v["matchLabels"] == nil && v["matchExpressions"] == nil {
			return labels.SelectorFromSet(tree.StringMap(map[string]any{"labels": v}, "labels")).String()
		}
		sel := &metav1.LabelSelector{MatchLabels: tree.StringMap(v, "matchLabels")}
		for _, e := range tree.Maps(v, "matchExpressions") {
			sel.MatchExpressions = append(sel.MatchExpressions, metav1.LabelSelectorRequirement{
				Key: tree.Str(e, "key"), Operator: metav1.LabelSelectorOperator(tree.Str(e, "operator")),
				Values: tree.Strings(e, "values"),
			})
		}
		if selector, err := metav1.LabelSelectorAsSelector(sel); err == nil {
			return selector.String()
		}
	}
	return ""
}
