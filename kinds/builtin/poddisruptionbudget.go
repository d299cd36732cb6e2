package builtin

import (
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/setpoint-dev/setpoint/kinds"
	"github.com/setpoint-dev/setpoint/kinds/check"
	"github.com/setpoint-dev/setpoint/kinds/schema"
	"github.com/setpoint-dev/setpoint/kinds/table"
	"github.com/setpoint-dev/setpoint/kinds/tree"
)

// budgetCounts are the counts in the status of a PodDisruptionBudget.
var budgetCounts = []string{"disruptionsAllowed", "currentHealthy", "desiredHealthy", "expectedPods"}

func podDisruptionBudget() *kinds.Kind {
	zero := map[string]any{}
	for _, name := range budgetCounts {
		zero[name] = int64(0)
	}
	return &kinds.Kind{
		Group: "policy", Version: "v1", Kind: "PodDisruptionBudget",
		Resource: "poddisruptionbudgets", Singular: "poddisruptionbudget",
		ShortNames: []string{"pdb"}, Namespaced: true,
		Schema: schema.Builtin("io.k8s.api.policy.v1.PodDisruptionBudget"),
		Columns: []kinds.Column{
			table.Name(),
			table.Column("Min Available", "The minimum number of pods that must be available.",
				amountCell("spec", "minAvailable")),
			table.Column("Max Unavailable", "The maximum number of pods that may be unavailable.",
				amountCell("spec", "maxUnavailable")),
			table.Count("Allowed Disruptions", "Calculated number of pods that may be disrupted at this time.",
				"status", "disruptionsAllowed"),
			table.Age(),
		},
		Status:              true,
		Generation:          true,
		UpdateNamesRevision: true,
		DefaultPropagation:  "Background",
		Metadata:            kinds.MetadataAlone,
		Strategy: kinds.Strategy{
			PrepareForCreate:       emptyStatus(zero),
			PrepareForUpdate:       keepStatus,
			PrepareForStatusUpdate: keepSpec,
			Validate:               validateBudget,
			ValidateStatusUpdate:   validateBudgetStatus,
		},
	}
}

// amountCell prints a number or a percentage.
func amountCell(path ...string) func(kinds.Object, time.Time) any {
	return func(obj kinds.Object, _ time.Time) any {
		if v := tree.Get(obj, path...); v != nil {
			return fmt.Sprint(v)
		}
		return "N/A"
	}
}

func validateBudget(obj kinds.Object) field.ErrorList {
	var e check.Errors
	spec := check.Root(obj).Child("spec")
	if spec.Has("minAvailable") && spec.Has("maxUnavailable") {
		e.Invalid(spec.Path, struct{ MinAvailable, Selector, MaxUnavailable, UnhealthyPodEvictionPolicy any }{
			spec.Get("minAvailable"), check.LabelSelector(spec.Child("selector").Map), spec.Get("maxUnavailable"), spec.Get("unhealthyPodEvictionPolicy"),
		}, "minAvailable and maxUnavailable cannot be both set")
	}
	for _, name := range []string{"minAvailable", "maxUnavailable"} {
		intOrPercent(&e, spec, name)
		notMoreThanAll(&e, spec, name)
	}
	e.LabelSelector(spec, "selector")
	e.OptionalOneOf(spec, "unhealthyPodEvictionPolicy", "AlwaysAllow", "IfHealthyBudget")
	return e.List()
}

func validateBudgetStatus(obj, _ kinds.Object) field.ErrorList {
	var e check.Errors
	status := check.Root(obj).Child("status")
	conditions(&e, status)
	for _, name := range budgetCounts {
		e.NotNegative(status, name)
	}
	return e.List()
}

// conditions checks the conditions of a status that are metav1's.
func conditions(e *check.Errors, status check.At) {
	var list []metav1.Condition
	for _, c := range tree.Maps(status.Map, "conditions") {
		var typed metav1.Condition
		if runtime.DefaultUnstructuredConverter.FromUnstructured(c, &typed) == nil {
			list = append(list, typed)
		}
	}
	e.Add(metavalidation.ValidateConditions(list, status.At("conditions").Field())...)
}
