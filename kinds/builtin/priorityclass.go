package builtin

import (
	"fmt"
	"strings"

	schedulingv1 "k8s.io/api/scheduling/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/setpoint-dev/setpoint/kinds"
	"github.com/setpoint-dev/setpoint/kinds/check"
	"github.com/setpoint-dev/setpoint/kinds/schema"
	"github.com/setpoint-dev/setpoint/kinds/table"
	"github.com/setpoint-dev/setpoint/kinds/tree"
)

// userPriorityMax is the highest priority that people may define; those above are the system's.
const userPriorityMax = 1_000_000_000

const systemPrefix = "system-"

// systemPriorities are the classes that every cluster has.
var systemPriorities = map[string]int64{
	"system-node-critical":    2*userPriorityMax + 1000,
	"system-cluster-critical": 2 * userPriorityMax,
}

func priorityClass() *kinds.Kind {
	doc := schedulingv1.PriorityClass{}.SwaggerDoc()
	return &kinds.Kind{
		Group: "scheduling.k8s.io", Version: "v1", Kind: "PriorityClass",
		Resource: "priorityclasses", Singular: "priorityclass", ShortNames: []string{"pc"},
		Schema: schema.Builtin("io.k8s.api.scheduling.v1.PriorityClass"),
		Columns: []kinds.Column{
			table.Name(),
			table.Count("Value", doc["value"], "value"),
			flag("Global-Default", doc["globalDefault"], "globalDefault"),
			table.Age(),
			table.Text("PreemptionPolicy", doc["preemptionPolicy"], "preemptionPolicy"),
		},
		DefaultPropagation: "Background",
		Strategy: kinds.Strategy{
			Default: func(obj kinds.Object) { tree.Default(obj, "PreemptLowerPriority", "preemptionPolicy") },
			// There is a generation, but nothing that could change counts.
			PrepareForCreate: func(_ *kinds.Env, obj kinds.Object) error {
				tree.Set(obj, int64(1), "metadata", "generation")
				return nil
			},
			ValidateCreate: validatePriorityClass,
			ValidateUpdate: func(obj, old kinds.Object) field.ErrorList {
				var e check.Errors
				if !tree.Equal(obj["value"], old["value"]) {
					e.Forbidden(check.NewPath("value"), "may not be changed in an update.")
				}
				e.Unchanged(check.Root(obj), check.Root(old), "preemptionPolicy")
				return e.List()
			},
		},
	}
}

func validatePriorityClass(obj kinds.Object) field.ErrorList {
	var e check.Errors
	class, name := check.Root(obj), tree.Str(obj, "metadata", "name")
	if strings.HasPrefix(name, systemPrefix) {
		if why := notSystemPriority(class, name); why != "" {
			e.Forbidden(check.NewPath("metadata", "name"),
				"priority class names with 'system-' prefix are reserved for system use only. error: "+why)
		}
	} else if class.Int("value") > userPriorityMax {
		e.Forbidden(class.At("value"),
			fmt.Sprintf("maximum allowed value of a user defined priority is %d", userPriorityMax))
	}
	if class.Has("preemptionPolicy") {
		e.OneOf(class, "preemptionPolicy", "PreemptLowerPriority", "Never")
	}
	return e.List()
}

// notSystemPriority says why a class is none of the system's, or "".
func notSystemPriority(class check.At, name string) string {
	value, known := systemPriorities[name]
	switch {
	case !known:
		return name + " is not a known system priority class"
	case class.Int("value") != value:
		return fmt.Sprintf("value of %s PriorityClass must be %d", name, value)
	case class.Bool("globalDefault"):
		return "globalDefault of " + name + " PriorityClass must be false"
	}
	return ""
}
