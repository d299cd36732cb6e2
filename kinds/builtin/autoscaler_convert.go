package builtin

import (
	"encoding/json"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"github.com/setpoint-dev/setpoint/kinds"
	"github.com/setpoint-dev/setpoint/kinds/tree"
)

// autoscaling/v1 knows of one metric, the utilization of processors. What else there is stands in
// annotations, as JSON of shapes that only conversion knows.
const (
	hpaMetrics       = "autoscaling.alpha.kubernetes.io/metrics"
	hpaMetricsNow    = "autoscaling.alpha.kubernetes.io/current-metrics"
	hpaConditions    = "autoscaling.alpha.kubernetes.io/conditions"
	hpaBehavior      = "autoscaling.alpha.kubernetes.io/behavior"
	hpaToleranceUp   = "autoscaling.alpha.kubernetes.io/scale-up-tolerance"
	hpaToleranceDown = "autoscaling.alpha.kubernetes.io/scale-down-tolerance"
)

// scalingRulesText and what it holds are the shape of a behavior in an annotation.
type (
	scalingRulesText struct {
		StabilizationWindowSeconds *int64
		SelectPolicy               *string
		Policies                   []scalingPolicyText
		Tolerance                  *string
	}
	scalingPolicyText struct {
		Type                 string
		Value, PeriodSeconds int64
	}
	behaviorText struct{ ScaleUp, ScaleDown *scalingRulesText }
)

// oldMetricNames are, for each source, the names of v1's fields for places in v2's, of a metric that is
// aimed at and of one that is measured.
var oldMetricNames = []struct {
	source   string
	old      string
	spec     []string // below the source in v2; nil if it is not there
	measured []string
}{
	{"resource", "name", []string{"name"}, []string{"name"}},
	{"resource", "targetAverageUtilization", []string{"target", "averageUtilization"}, nil},
	{"resource", "targetAverageValue", []string{"target", "averageValue"}, nil},
	{"resource", "currentAverageUtilization", nil, []string{"current", "averageUtilization"}},
	{"resource", "currentAverageValue", nil, []string{"current", "averageValue"}},
	{"containerResource", "name", []string{"name"}, []string{"name"}},
	{"containerResource", "container", []string{"container"}, []string{"container"}},
	{"containerResource", "targetAverageUtilization", []string{"target", "averageUtilization"}, nil},
	{"containerResource", "targetAverageValue", []string{"target", "averageValue"}, nil},
	{"containerResource", "currentAverageUtilization", nil, []string{"current", "averageUtilization"}},
	{"containerResource", "currentAverageValue", nil, []string{"current", "averageValue"}},
	{"pods", "metricName", []string{"metric", "name"}, []string{"metric", "name"}},
	{"pods", "selector", []string{"metric", "selector"}, []string{"metric", "selector"}},
	{"pods", "targetAverageValue", []string{"target", "averageValue"}, nil},
	{"pods", "currentAverageValue", nil, []string{"current", "averageValue"}},
	{"object", "target", []string{"describedObject"}, []string{"describedObject"}},
	{"object", "metricName", []string{"metric", "name"}, []string{"metric", "name"}},
	{"object", "selector", []string{"metric", "selector"}, []string{"metric", "selector"}},
	{"object", "targetValue", []string{"target", "value"}, nil},
	{"object", "averageValue", []string{"target", "averageValue"}, []string{"current", "averageValue"}},
	{"object", "currentValue", nil, []string{"current", "value"}},
	{"external", "metricName", []string{"metric", "name"}, []string{"metric", "name"}},
	{"external", "metricSelector", []string{"metric", "selector"}, []string{"metric", "selector"}},
	{"external", "targetValue", []string{"target", "value"}, nil},
	{"external", "targetAverageValue", []string{"target", "averageValue"}, nil},
	{"external", "currentValue", nil, []string{"current", "value"}},
	{"external", "currentAverageValue", nil, []string{"current", "averageValue"}},
}

// convertMetric returns a metric in the other form.
func convertMetric(m map[string]any, measured, old bool) map[string]any {
	key := metricFields[tree.Str(m, "type")]
	from, to := tree.Map(m, key), map[string]any{}
	for _, f := range oldMetricNames {
		path := f.spec
		if measured {
			path = f.measured
		}
		source, target := []string{f.old}, path
		if old {
			source, target = path, []string{f.old}
		}
		if f.source == key && path != nil && tree.Has(from, source...) {
			tree.Set(to, tree.Copy(tree.Get(from, source...)), target...)
		}
	}
	if !old && !measured {
		if key == "object" && tree.Has(to, "target", "averageValue") && tree.Str(to, "target", "value") == "0" {
			tree.Delete(to, "target", "value") // v1 cannot leave it out
		}
		tree.Set(to, targetType(to), "target", "type")
	}
	return map[string]any{"type": m["type"], key: to}
}

// targetType is what a target of v2 is called that has the values it has.
func targetType(source map[string]any) string {
	switch {
	case tree.Has(source, "target", "averageUtilization"):
		return "Utilization"
	case tree.Has(source, "target", "value") && !tree.Has(source, "describedObject"),
		tree.Has(source, "target", "value") && !tree.Has(source, "target", "averageValue"):
		return "Value"
	}
	return "AverageValue"
}

// isCPU says whether a metric is the one that v1 has fields for.
func isCPU(m map[string]any, value string) bool {
	return tree.Str(m, "type") == "Resource" && tree.Str(m, "resource", "name") == "cpu" &&
		tree.Has(m, "resource", value, "averageUtilization")
}

// toV1 rewrites an autoscaler of v2.
func toV1(obj kinds.Object) {
	obj["apiVersion"] = "autoscaling/v1"
	dropAnnotations(obj)
	spec, status := tree.Ensure(obj, "spec"), tree.Ensure(obj, "status")
	var others []autoscalingv1.MetricSpec
	for _, m := range tree.Maps(spec, "metrics") {
		if isCPU(m, "target") {
			tree.Default(spec, tree.Get(m, "resource", "target", "averageUtilization"), "targetCPUUtilizationPercentage")
		} else {
			others = append(others, typed[autoscalingv1.MetricSpec](convertMetric(m, false, true)))
		}
	}
	if len(others) > 0 {
		annotate(obj, hpaMetrics, others)
	}
	var measured []autoscalingv1.MetricStatus
	for _, m := range tree.Maps(status, "currentMetrics") {
		if isCPU(m, "current") {
			status["currentCPUUtilizationPercentage"] = tree.Get(m, "resource", "current", "averageUtilization")
		}
		measured = append(measured, typed[autoscalingv1.MetricStatus](convertMetric(m, true, true)))
	}
	if len(measured) > 0 {
		annotate(obj, hpaMetricsNow, measured)
	}
	if behavior := tree.Map(spec, "behavior"); behavior != nil {
		annotate(obj, hpaBehavior, typed[behaviorText](behavior))
	}
	var list []autoscalingv1.HorizontalPodAutoscalerCondition
	for _, c := range tree.Maps(status, "conditions") {
		list = append(list, typed[autoscalingv1.HorizontalPodAutoscalerCondition](c))
	}
	if len(list) > 0 {
		annotate(obj, hpaConditions, list)
	}
	delete(spec, "metrics")
	delete(spec, "behavior")
	delete(status, "currentMetrics")
	delete(status, "conditions")
	tree.Default(status, int64(0), "currentReplicas")
}

// inV2 is a copy of an autoscaler of v1 in the form of v2.
func inV2(obj kinds.Object) kinds.Object {
	obj = tree.CopyMap(obj)
	toV2(obj)
	return obj
}

// toV2 rewrites an autoscaler of v1. Annotations that cannot be read say nothing.
func toV2(obj kinds.Object) {
	obj["apiVersion"] = "autoscaling/v2"
	spec, status := tree.Ensure(obj, "spec"), tree.Ensure(obj, "status")
	annotation := func(key string, into any) bool {
		text, ok := tree.Get(obj, "metadata", "annotations", key).(string)
		return ok && json.Unmarshal([]byte(text), into) == nil
	}
	var metrics []any
	var others []autoscalingv1.MetricSpec
	if annotation(hpaMetrics, &others) {
		for _, m := range others {
			metrics = append(metrics, convertMetric(asTree(m), false, false))
		}
	}
	if percent, ok := spec["targetCPUUtilizationPercentage"].(int64); ok {
		metrics = append(metrics, utilizationOf(percent))
	}
	if len(metrics) == 0 {
		metrics = []any{utilizationOf(targetCPU)}
	}
	spec["metrics"] = metrics
	var behavior behaviorText
	if annotation(hpaBehavior, &behavior) && behavior != (behaviorText{}) {
		spec["behavior"] = behavior.tree()
	}
	status["currentMetrics"] = nil
	if percent, ok := status["currentCPUUtilizationPercentage"].(int64); ok {
		status["currentMetrics"] = []any{map[string]any{"type": "Resource", "resource": map[string]any{
			"name": "cpu", "current": map[string]any{"averageUtilization": percent},
		}}}
	}
	var measured []autoscalingv1.MetricStatus
	if annotation(hpaMetricsNow, &measured) {
		list := []any{}
		for _, m := range measured {
			list = append(list, convertMetric(asTree(m), true, false))
		}
		status["currentMetrics"] = list
	}
	var conditions []autoscalingv1.HorizontalPodAutoscalerCondition
	if annotation(hpaConditions, &conditions) {
		list := []any{}
		for _, c := range conditions {
			list = append(list, asTree(c))
		}
		status["conditions"] = list
	}
	delete(spec, "targetCPUUtilizationPercentage")
	delete(status, "currentCPUUtilizationPercentage")
	if tree.Int(status, "currentReplicas") == 0 {
		delete(status, "currentReplicas") // v1 cannot leave it out
	}
	dropAnnotations(obj)
}

// keepOldStatus and keepOldSpec are keepStatus and keepSpec for v1, where both parts are in annotations too.
func keepOldStatus(_ *kinds.Env, obj, old kinds.Object) error {
	a, b := inV2(obj), inV2(old)
	tree.Move("status", b, a)
	return replaceBy(obj, a)
}

func keepOldSpec(_ *kinds.Env, obj, old kinds.Object) {
	a, b := inV2(obj), inV2(old)
	tree.Move("spec", b, a)
	_ = replaceBy(obj, a)
}

// replaceBy makes an autoscaler of v1 what another is in v2.
func replaceBy(obj, in kinds.Object) error {
	toV1(in)
	clear(obj)
	for key, value := range in {
		obj[key] = value
	}
	return nil
}

func annotate(obj kinds.Object, key string, value any) {
	if text, err := json.Marshal(value); err == nil {
		tree.Set(obj, string(text), "metadata", "annotations", key)
	}
}

func dropAnnotations(obj kinds.Object) {
	annotations := tree.Map(obj, "metadata", "annotations")
	for _, key := range []string{
		hpaMetrics, hpaMetricsNow, hpaConditions, hpaBehavior, hpaToleranceUp, hpaToleranceDown,
	} {
		delete(annotations, key)
	}
	if annotations != nil && len(annotations) == 0 {
		tree.Delete(obj, "metadata", "annotations")
	}
}

// typed reads a tree into a Go type, and gives the zero value if it does not fit.
func typed[T any](m map[string]any) (out T) {
	if data, err := json.Marshal(m); err == nil {
		_ = json.Unmarshal(data, &out)
	}
	return out
}

// asTree is the other way; numbers are integers, as in all trees.
func asTree(v any) map[string]any {
	data, _ := json.Marshal(v)
	var out map[string]any
	_ = utiljson.Unmarshal(data, &out)
	return out
}

// tree is a behavior as v2 has it.
func (b behaviorText) tree() map[string]any {
	out := map[string]any{}
	for name, rules := range map[string]*scalingRulesText{"scaleUp": b.ScaleUp, "scaleDown": b.ScaleDown} {
		if rules == nil {
			continue
		}
		m := map[string]any{}
		if rules.StabilizationWindowSeconds != nil {
			m["stabilizationWindowSeconds"] = *rules.StabilizationWindowSeconds
		}
		if rules.SelectPolicy != nil {
			m["selectPolicy"] = *rules.SelectPolicy
		}
		if rules.Tolerance != nil {
			m["tolerance"] = *rules.Tolerance
		}
		var policies []any
		for _, p := range rules.Policies {
			policies = append(policies, map[string]any{"type": p.Type, "value": p.Value, "periodSeconds": p.PeriodSeconds})
		}
		m["policies"] = policies
		out[name] = m
	}
	return out
}
