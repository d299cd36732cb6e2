package builtin

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/setpoint-dev/setpoint/kinds"
	"github.com/setpoint-dev/setpoint/kinds/check"
	"github.com/setpoint-dev/setpoint/kinds/schema"
	"github.com/setpoint-dev/setpoint/kinds/table"
	"github.com/setpoint-dev/setpoint/kinds/tree"
)

// HorizontalPodAutoscalers are kept in the form of autoscaling/v2, and seen through autoscaling/v1 too.

func autoscaler() *kinds.Kind {
	return autoscalerIn("v2", kinds.Strategy{
		Default:                defaultAutoscaler,
		PrepareForCreate:       emptyStatus(map[string]any{"desiredReplicas": int64(0), "currentMetrics": nil}),
		PrepareForUpdate:       keepStatus,
		PrepareForStatusUpdate: keepSpec,
		ValidateCreate:         func(obj kinds.Object) field.ErrorList { return validateAutoscaler(obj, nil) },
		ValidateUpdate:         validateAutoscaler,
		ValidateStatusUpdate:   validateAutoscalerStatus,
	})
}

func oldAutoscaler() *kinds.Kind {
	k := autoscalerIn("v1", kinds.Strategy{
		Default:                func(obj kinds.Object) { tree.Default(tree.Ensure(obj, "spec"), int64(1), "minReplicas") },
		PrepareForCreate:       emptyStatus(map[string]any{"currentReplicas": int64(0), "desiredReplicas": int64(0)}),
		PrepareForUpdate:       keepOldStatus,
		PrepareForStatusUpdate: keepOldSpec,
		ValidateCreate:         func(obj kinds.Object) field.ErrorList { return validateAutoscaler(inV2(obj), nil) },
		ValidateUpdate: func(obj, old kinds.Object) field.ErrorList {
			return validateAutoscaler(inV2(obj), inV2(old))
		},
		ValidateStatusUpdate: validateAutoscalerStatus,
	})
	k.Storage = &kinds.Storage{
		Group: "autoscaling", Version: "v2", Kind: "HorizontalPodAutoscaler", Resource: k.Resource,
		ToStored: toV2, FromStored: toV1,
	}
	for i := range k.Columns {
		cell := k.Columns[i].Cell
		k.Columns[i].Cell = func(obj kinds.Object, now time.Time) any { return cell(inV2(obj), now) }
	}
	return k
}

func autoscalerIn(version string, strategy kinds.Strategy) *kinds.Kind {
	spec, status := autoscalingv2.HorizontalPodAutoscalerSpec{}.SwaggerDoc(), autoscalingv2.HorizontalPodAutoscalerStatus{}.SwaggerDoc()
	return &kinds.Kind{
		Group: "autoscaling", Version: version, Kind: "HorizontalPodAutoscaler",
		Resource: "horizontalpodautoscalers", Singular: "horizontalpodautoscaler",
		ShortNames: []string{"hpa"}, Categories: []string{"all"}, Namespaced: true,
		Schema: schema.Builtin("io.k8s.api.autoscaling." + version + ".HorizontalPodAutoscaler"),
		Columns: []kinds.Column{
			table.Name(),
			table.Column("Reference", spec["scaleTargetRef"], func(obj kinds.Object, _ time.Time) any {
				ref := tree.Map(obj, "spec", "scaleTargetRef")
				return tree.Str(ref, "kind") + "/" + tree.Str(ref, "name")
			}),
			table.Column("Targets", spec["metrics"], metricsCell),
			table.Column("MinPods", spec["minReplicas"], func(obj kinds.Object, _ time.Time) any {
				if n, ok := tree.Get(obj, "spec", "minReplicas").(int64); ok {
					return strconv.FormatInt(n, 10)
				}
				return table.Unset
			}),
			countText("MaxPods", spec["maxReplicas"], "spec", "maxReplicas"),
			countText("Replicas", status["currentReplicas"], "status", "currentReplicas"),
			table.Age(),
		},
		Status:             true,
		Generation:         true,
		DefaultPropagation: "Background",
		Strategy:           strategy,
	}
}

// targetCPU is the utilization that is aimed at where nothing else is said, in percent.
const targetCPU = int64(80)

// utilizationOf is the metric that aims at a utilization of the processors that pods ask for.
func utilizationOf(percent int64) map[string]any {
	return map[string]any{"type": "Resource", "resource": map[string]any{
		"name": "cpu", "target": map[string]any{"type": "Utilization", "averageUtilization": percent},
	}}
}

func defaultAutoscaler(obj kinds.Object) {
	spec := tree.Ensure(obj, "spec")
	tree.Default(spec, int64(1), "minReplicas")
	if len(tree.List(spec, "metrics")) == 0 {
		spec["metrics"] = []any{utilizationOf(targetCPU)}
	}
	behavior := tree.Map(spec, "behavior")
	if behavior == nil {
		return
	}
	policy := func(kind string, value int64) any {
		return map[string]any{"type": kind, "value": value, "periodSeconds": int64(15)}
	}
	up, down := tree.Ensure(behavior, "scaleUp"), tree.Ensure(behavior, "scaleDown")
	tree.Default(up, int64(0), "stabilizationWindowSeconds")
	for _, rules := range []map[string]any{up, down} {
		tree.Default(rules, "Max", "selectPolicy")
	}
	if up["policies"] == nil {
		up["policies"] = []any{policy("Pods", 4), policy("Percent", 100)}
	}
	if down["policies"] == nil {
		down["policies"] = []any{policy("Percent", 100)}
	}
}

func validateAutoscalerStatus(obj, _ kinds.Object) field.ErrorList {
	var e check.Errors
	status := check.Root(obj).Child("status")
	for _, c := range status.Each("conditions") {
		e.NotNegative(c, "observedGeneration")
	}
	e.NotNegative(status, "currentReplicas")
	e.NotNegative(status, "desiredReplicas")
	return e.List()
}

// metricsShown is how many metrics a cell names before it says how many more there are.
const metricsShown = 2

// metricsCell prints what is measured of what is aimed at: "cpu: 35%/80%".
func metricsCell(obj kinds.Object, _ time.Time) any {
	metrics, now := tree.List(obj, "spec", "metrics"), tree.List(obj, "status", "currentMetrics")
	if len(metrics) == 0 {
		return table.None
	}
	var words []string
	for i, m := range metrics {
		metric, _ := m.(map[string]any)
		var current map[string]any
		if i < len(now) {
			current, _ = now[i].(map[string]any)
		}
		words = append(words, metricText(metric, current))
	}
	if n := len(words); n > metricsShown {
		return strings.Join(words[:metricsShown], ", ") + fmt.Sprintf(" + %d more...", n-metricsShown)
	}
	return strings.Join(words, ", ")
}

func metricText(metric, current map[string]any) string {
	key, ok := metricFields[tree.Str(metric, "type")]
	if !ok {
		return "<unknown type>"
	}
	source, is := tree.Map(metric, key), tree.Map(current, key, "current")
	target := tree.Map(source, "target")
	text := func(m map[string]any, name string) string { return table.Or(tree.Str(m, name), table.Unknown) }
	percent := func(m map[string]any, none string) string {
		if n, ok := m["averageUtilization"].(int64); ok {
			return strconv.FormatInt(n, 10) + "%"
		}
		return none
	}
	average := tree.Str(target, "averageValue")
	switch {
	case slices.Contains([]string{"resource", "containerResource"}, key) && average != "":
		return tree.Str(source, "name") + ": " + text(is, "averageValue") + "/" + average
	case key == "resource" || key == "containerResource":
		return tree.Str(source, "name") + ": " + percent(is, table.Unknown) + "/" + percent(target, "<auto>")
	case key == "pods":
		return text(is, "averageValue") + "/" + average
	case average != "":
		return text(is, "averageValue") + "/" + average + " (avg)"
	}
	return text(is, "value") + "/" + tree.Str(target, "value")
}
