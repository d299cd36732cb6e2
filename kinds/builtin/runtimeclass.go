package builtin

import (
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/api/validate/content"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/setpoint-dev/setpoint/kinds"
	"github.com/setpoint-dev/setpoint/kinds/builtin/pod"
	"github.com/setpoint-dev/setpoint/kinds/check"
	"github.com/setpoint-dev/setpoint/kinds/schema"
	"github.com/setpoint-dev/setpoint/kinds/table"
)

func runtimeClass() *kinds.Kind {
	return &kinds.Kind{
		Group: "node.k8s.io", Version: "v1", Kind: "RuntimeClass",
		Resource: "runtimeclasses", Singular: "runtimeclass",
		Schema: schema.Builtin("io.k8s.api.node.v1.RuntimeClass"),
		Columns: []kinds.Column{
			table.Name(),
			table.Text("Handler", "", "handler"),
			table.Age(),
		},
		CreateOnUpdate:      true,
		UpdateNamesRevision: true,
		DefaultPropagation:  "Background",
		Strategy: kinds.Strategy{
			Validate:       validateRuntimeClass,
			ValidateUpdate: declaredImmutable("handler"),
			Warnings: func(obj, _ kinds.Object) []string {
				return labelWarnings(check.Root(obj).Child("scheduling"), "nodeSelector", false)
			},
		},
	}
}

func validateRuntimeClass(obj kinds.Object) field.ErrorList {
	var e check.Errors
	class := check.Root(obj)
	if handler := class.Str("handler"); handler == "" {
		e.Later().Required(class.At("handler"), "")
	} else {
		e.Later().Messages(class.At("handler"), handler, content.IsDNS1123Label(handler))
	}
	pod.CheckClass(&e, class)
	return e.List()
}

// labelWarnings warns of labels in a map that have been replaced. The path has a label's name in it
// if named says so.
func labelWarnings(a check.At, field string, named bool) []string {
	var w []string
	labels := a.StringMap(field)
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		if text := pod.OldLabels[key]; text != "" {
			path := a.At(field)
			if named {
				path = path.Child(key)
			}
			w = append(w, path.String()+": "+text)
		}
	}
	return w
}
