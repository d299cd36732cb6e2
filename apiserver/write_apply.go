package apiserver

import (
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/setpoint-dev/setpoint/kinds"
	"github.com/setpoint-dev/setpoint/kinds/patch/managed"
	"github.com/setpoint-dev/setpoint/kinds/tree"
)

// applyChange is what server-side apply of a patch does to an object.
func (s *Server) applyChange(r *request, t *write, p *requestPatch) change {
	return change{
		create: s.creation(r, true),
		next: func(live kinds.Object) (kinds.Object, error) {
			if p.err != nil {
				return nil, p.err
			}
			if err := t.checkApplied(p); err != nil {
				return nil, err
			}
			obj, err := t.applyTree(live, p.tree)
			if err != nil {
				return nil, err
			}
			if uid := tree.Str(obj, "metadata", "uid"); live == nil && uid != "" {
				return nil, apierrors.NewConflict(t.kind.GroupResource(), t.name, fmt.Errorf(
					"uid mismatch: the provided object specified uid %s, and no existing object was found", uid))
			}
			return obj, t.settlePatched(obj)
		},
	}
}

// applyTree merges what a manager wishes into an object, as a new canonical tree.
func (t *write) applyTree(live, config map[string]any) (kinds.Object, error) {
	obj, err := managed.Apply(t.server.managedType(t.kind), live, config, t.managedWrite(), t.opts.force)
	if isStatus := apierrors.APIStatus(nil); err != nil && !errors.As(err, &isStatus) {
		return nil, unreasoned(err)
	}
	if err != nil {
		return nil, err
	}
	if _, err := t.kind.Schema.Conform(obj); err != nil {
		gvk := t.kind.GVK()
		return nil, unreasoned(fmt.Errorf("failed to convert new object (%s/%s; %s) to proper version: "+
			"unable to convert unstructured object to %[3]s: %s",
			tree.Str(config, "metadata", "namespace"), tree.Str(config, "metadata", "name"), gvk, convertedText(err)))
	}
	return obj, nil
}

// checkApplied refuses what is applied to the wrong kind, and judges keys that stand twice.
func (t *write) checkApplied(p *requestPatch) error {
	gv, err := schema.ParseGroupVersion(tree.Str(p.tree, "apiVersion"))
	if gvk := gv.WithKind(tree.Str(p.tree, "kind")); err != nil || gvk.Kind != t.kind.Kind || gvk.Group != t.kind.Group {
		return apierrors.NewBadRequest(fmt.Sprintf("invalid object type: %v", gvk))
	}
	if len(p.findings) == 0 || t.opts.fieldValidation == metav1.FieldValidationIgnore {
		return nil
	}
	if t.opts.fieldValidation == metav1.FieldValidationStrict {
		return apierrors.NewBadRequest("error strict decoding patch: " + p.findings[0])
	}
	t.warnFindings(p.findings)
	return nil
}
