package builtin

import (
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	kindschema "k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/setpoint-dev/setpoint/kinds"
	"github.com/setpoint-dev/setpoint/kinds/check"
	"github.com/setpoint-dev/setpoint/kinds/schema"
	"github.com/setpoint-dev/setpoint/kinds/table"
	"github.com/setpoint-dev/setpoint/kinds/tree"
)

func controllerRevision() *kinds.Kind {
	return &kinds.Kind{
		Group: "apps", Version: "v1", Kind: "ControllerRevision",
		Resource: "controllerrevisions", Singular: "controllerrevision", Namespaced: true,
		Schema: schema.Builtin("io.k8s.api.apps.v1.ControllerRevision"),
		Columns: []kinds.Column{
			table.Name(),
			table.Column("Controller", "Controller of the object", controllerOf),
			countText("Revision", appsv1.ControllerRevision{}.SwaggerDoc()["revision"], "revision"),
			table.Age(),
		},
		DefaultPropagation: "Background",
		Strategy: kinds.Strategy{
			Validate: func(obj kinds.Object) field.ErrorList {
				var e check.Errors
				e.NotNegative(check.Root(obj), "revision")
				return e.List()
			},
			ValidateCreate: validateRevisionData,
			ValidateUpdate: func(obj, old kinds.Object) field.ErrorList {
				var e check.Errors
				e.Unchanged(check.Root(obj), check.Root(old), "data")
				return e.List()
			},
		},
	}
}

func validateRevisionData(obj kinds.Object) field.ErrorList {
	var e check.Errors
	if data := obj["data"]; data == nil {
		e.Required(check.NewPath("data"), "data is mandatory")
	} else if _, ok := data.(map[string]any); !ok {
		e.Required(check.NewPath("data"), "data must be a valid JSON object")
	}
	return e.List()
}

// controllerOf names the owner that controls the object: "statefulset.apps/db".
func controllerOf(obj kinds.Object, _ time.Time) any {
	for _, ref := range tree.Maps(obj, "metadata", "ownerReferences") {
		if tree.Bool(ref, "controller") {
			gv, _ := kindschema.ParseGroupVersion(tree.Str(ref, "apiVersion"))
			kind := gv.WithKind(tree.Str(ref, "kind")).GroupKind()
			return strings.ToLower(kind.String()) + "/" + tree.Str(ref, "name")
		}
	}
	return table.None
}
