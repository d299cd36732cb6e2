package builtin

import (
	"fmt"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/api/validate/content"
	kindschema "k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/setpoint-dev/setpoint/kinds"
	"github.com/setpoint-dev/setpoint/kinds/builtin/pod"
	"github.com/setpoint-dev/setpoint/kinds/check"
	"github.com/setpoint-dev/setpoint/kinds/tree"
)

// Upstream's bounds on how an autoscaler behaves, in seconds.
const (
	scalingPeriodMax       = 1800
	stabilizationWindowMax = 3600
)

// metricFields are the fields that say more of each type of metric.
var metricFields = map[string]string{
	"Object": "object", "Pods": "pods", "Resource": "resource", "External": "external",
	"ContainerResource": "containerResource",
}

func validateAutoscaler(obj, old kinds.Object) field.ErrorList {
	var e check.Errors
	spec := check.Root(obj).Child("spec")
	least, most := spec.Int("minReplicas"), spec.Int("maxReplicas")
	e.Later().NotNegative(spec, "minReplicas")
	switch {
	case most == 0:
		e.Later().Required(spec.At("maxReplicas"), "")
	case most < 0:
		e.Later().Invalid(spec.At("maxReplicas"), most, "must be greater than or equal to 1")
	}
	if spec.Has("minReplicas") && most < least {
		e.Invalid(spec.At("maxReplicas"), most, "must be greater than or equal to `minReplicas`")
	}
	ref, was := spec.Child("scaleTargetRef"), tree.Map(old, "spec", "scaleTargetRef")
	scaleTarget(&e, ref)
	if was == nil || was["apiVersion"] != ref.Get("apiVersion") || was["kind"] != ref.Get("kind") {
		targetVersion(&e, ref, ref.Str("kind") == "ReplicationController")
	}
	beyond := false
	for _, m := range spec.Each("metrics") {
		metric(&e, m)
		beyond = beyond || m.Str("type") == "Object" || m.Str("type") == "External"
	}
	if spec.Has("minReplicas") && least == 0 && !beyond {
		e.Forbidden(spec.At("metrics"), "must specify at least one Object or External metric to support scaling to zero replicas")
	}
	scalingRules(&e, spec.Child("behavior").Child("scaleUp"))
	scalingRules(&e, spec.Child("behavior").Child("scaleDown"))
	return e.List()
}

func scaleTarget(e *check.Errors, ref check.At) {
	for _, name := range []string{"kind", "name"} {
		if v := ref.Str(name); v == "" {
			e.Required(ref.At(name), "")
		} else {
			e.Messages(ref.At(name), v, content.IsPathSegmentName(v))
		}
	}
}

func targetVersion(e *check.Errors, ref check.At, core bool) {
	text := ref.Str("apiVersion")
	gv, err := kindschema.ParseGroupVersion(text)
	if err != nil {
		e.Invalid(ref.At("apiVersion"), text, err.Error())
	} else if gv.Group == "" && !core {
		e.Invalid(ref.At("apiVersion"), text, "apiVersion must specify API group")
	}
}

func scalingRules(e *check.Errors, rules check.At) {
	if !rules.Exists() {
		return
	}
	path, n := rules.At("stabilizationWindowSeconds"), rules.Int("stabilizationWindowSeconds")
	if n < 0 {
		e.Invalid(path, n, "must be greater than or equal to zero")
	}
	if n > stabilizationWindowMax {
		e.Invalid(path, n, fmt.Sprintf("must be less than or equal to %d", stabilizationWindowMax))
	}
	e.OptionalOneOf(rules, "selectPolicy", "Disabled", "Max", "Min")
	if rules.Len("policies") == 0 {
		e.Required(rules.At("policies"), "must specify at least one Policy")
	}
	for _, p := range rules.Each("policies") {
		e.Among(p, "type", "Percent", "Pods")
		for _, name := range []string{"value", "periodSeconds"} {
			if v := p.Int(name); v <= 0 {
				e.Invalid(p.At(name), v, "must be greater than zero")
			}
		}
		if v := p.Int("periodSeconds"); v > scalingPeriodMax {
			e.Invalid(p.At("periodSeconds"), v, fmt.Sprintf("must be less than or equal to %d", scalingPeriodMax))
		}
	}
	if q := pod.Quantity(rules.Get("tolerance")); q.Sign() < 0 {
		e.Invalid(rules.At("tolerance"), q.String(), "must be greater than or equal to 0")
	}
}

// metric checks one metric: that it says of its own type, and of no other, what is aimed at.
func metric(e *check.Errors, m check.At) {
	kind := m.Str("type")
	own, known := metricFields[kind]
	types := slices.Sorted(maps.Keys(metricFields))
	if kind == "" {
		e.Required(m.At("type"), "must specify a metric source type")
	}
	if !known {
		e.NotSupported(m.At("type"), kind, types...)
	}
	present := slices.DeleteFunc([]string{"object", "external", "pods", "resource", "containerResource"},
		func(name string) bool { return !m.Has(name) })
	if len(present) > 0 {
		metricSource(e, m.Child(present[0]), present[0])
	}
	if known && !m.Has(own) {
		e.Required(m.At(own), "must populate information for the given metric source")
	}
	if len(present) == 1 {
		return
	}
	for _, name := range present {
		if name != own {
			e.Forbidden(m.At(name), "must populate the given metric source only")
		}
	}
}

func metricSource(e *check.Errors, s check.At, name string) {
	switch name {
	case "object":
		scaleTarget(e, s.Child("describedObject"))
		targetVersion(e, s.Child("describedObject"), true)
		metricName(e, s.Child("metric"))
	case "external", "pods":
		metricName(e, s.Child("metric"))
	case "resource":
		if s.Str("name") == "" {
			e.Required(s.At("name"), "must specify a resource name")
		}
	case "containerResource":
		containerMetric(e, s)
	}
	metricTarget(e, s.Child("target"))
	targetKind(e, s.Child("target"), name)
}

func metricName(e *check.Errors, id check.At) {
	if name := id.Str("name"); name == "" {
		e.Required(id.At("name"), "must specify a metric name")
	} else {
		e.Messages(id.At("name"), name, content.IsPathSegmentName(name))
	}
}

func containerMetric(e *check.Errors, s check.At) {
	if name := s.Str("name"); name == "" {
		e.Required(s.At("name"), "must specify a resource name")
	} else {
		pod.CheckContainerResourceName(e, s.At("name"), name)
	}
	if name := s.Str("container"); name == "" {
		e.Required(s.At("container"), "must specify a container")
	} else {
		e.DNSLabel(s.At("container"), name)
	}
}

// targetKind checks that one of the values that the source can have is aimed at.
func targetKind(e *check.Errors, t check.At, source string) {
	value, average, percent := t.Has("value"), t.Has("averageValue"), t.Has("averageUtilization")
	switch source {
	case "object":
		if !value && !average {
			e.Required(t.At("averageValue"), "must set either a target value or averageValue")
		}
	case "external":
		if !value && !average {
			e.Required(t.At("averageValue"), "must set either a target value for metric or a per-pod target")
		}
		if value && average {
			e.Forbidden(t.At("value"), "may not set both a target value for metric and a per-pod target")
		}
	case "pods":
		if !average {
			e.Required(t.At("averageValue"), "must specify a positive target averageValue")
		}
	default:
		if !percent && !average {
			e.Required(t.At("averageUtilization"), "must set either a target raw value or a target utilization")
		}
		if percent && average {
			e.Forbidden(t.At("averageValue"), "may not set both a target raw value and a target utilization")
		}
	}
}

func metricTarget(e *check.Errors, t check.At) {
	kind := t.Str("type")
	if kind == "" {
		e.Required(t.At("type"), "must specify a metric target type")
	}
	if !slices.Contains([]string{"Utilization", "Value", "AverageValue"}, kind) {
		e.Invalid(t.At("type"), kind, "must be either Utilization, Value, or AverageValue")
	}
	for _, name := range []string{"value", "averageValue"} {
		if q := pod.Quantity(t.Get(name)); t.Has(name) && q.Sign() <= 0 {
			e.Invalid(t.At(name), q.String(), "must be positive")
		}
	}
	if n := t.Int("averageUtilization"); t.Has("averageUtilization") && n < 1 {
		e.Invalid(t.At("averageUtilization"), n, "must be greater than 0")
	}
}
