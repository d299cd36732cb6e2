package builtin

import (
	"strconv"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/setpoint-dev/setpoint/kinds"
	"github.com/setpoint-dev/setpoint/kinds/builtin/pod"
	"github.com/setpoint-dev/setpoint/kinds/check"
	"github.com/setpoint-dev/setpoint/kinds/schema"
	"github.com/setpoint-dev/setpoint/kinds/table"
	"github.com/setpoint-dev/setpoint/kinds/tree"
)

// templateGenerationAnnotation is where a DaemonSet keeps the generation of its template, which an
// older API had in its spec.
const templateGenerationAnnotation = "deprecated.daemonset.template.generation"

// daemonSetCounts are the counts in a DaemonSet's status that are always there.
var daemonSetCounts = []string{"currentNumberScheduled", "numberMisscheduled", "desiredNumberScheduled", "numberReady"}

func daemonSet() *kinds.Kind {
	status := appsv1.DaemonSetStatus{}.SwaggerDoc()
	zero := map[string]any{}
	for _, name := range daemonSetCounts {
		zero[name] = int64(0)
	}
	return &kinds.Kind{
		Group: "apps", Version: "v1", Kind: "DaemonSet", Resource: "daemonsets", Singular: "daemonset",
		ShortNames: []string{"ds"}, Categories: []string{"all"}, Namespaced: true,
		Schema: schema.Builtin("io.k8s.api.apps.v1.DaemonSet"),
		Columns: append([]kinds.Column{
			table.Name(),
			table.Count("Desired", status["desiredNumberScheduled"], "status", "desiredNumberScheduled"),
			table.Count("Current", status["currentNumberScheduled"], "status", "currentNumberScheduled"),
			table.Count("Ready", status["numberReady"], "status", "numberReady"),
			table.Count("Up-to-date", status["updatedNumberScheduled"], "status", "updatedNumberScheduled"),
			table.Count("Available", status["numberAvailable"], "status", "numberAvailable"),
			table.Column("Node Selector", corev1.PodSpec{}.SwaggerDoc()["nodeSelector"],
				labelsCell("spec", "template", "spec", "nodeSelector")),
			table.Age(),
		}, templateColumns(appsv1.DaemonSetSpec{}.SwaggerDoc()["selector"])...),
		Status:             true,
		Generation:         true,
		DefaultPropagation: "Background",
		Strategy: kinds.Strategy{
			Default:                defaultDaemonSet,
			PrepareForCreate:       prepareDaemonSet(emptyStatus(zero)),
			PrepareForUpdate:       countTemplates,
			PrepareForStatusUpdate: keepSpec,
			Validate:               validateDaemonSet,
			ChangesFirst:           true,
			ValidateUpdate:         selectorKept,
			ValidateStatusUpdate:   validateDaemonSetStatus,
			Warnings:               daemonSetWarnings,
		},
	}
}

func defaultDaemonSet(obj kinds.Object) {
	tree.Default(obj, "0", "metadata", "annotations", templateGenerationAnnotation)
	spec := tree.Ensure(obj, "spec")
	update := tree.Ensure(spec, "updateStrategy")
	setIfEmpty(update, "type", "RollingUpdate")
	if update["type"] == "RollingUpdate" {
		tree.Default(update, int64(1), "rollingUpdate", "maxUnavailable")
		tree.Default(update, int64(0), "rollingUpdate", "maxSurge")
	}
	tree.Default(spec, int64(10), "revisionHistoryLimit")
	pod.DefaultSpec(tree.Ensure(spec, "template", "spec"))
}

func prepareDaemonSet(empty func(*kinds.Env, kinds.Object) error) func(*kinds.Env, kinds.Object) error {
	return func(env *kinds.Env, obj kinds.Object) error {
		tree.Set(obj, "1", "metadata", "annotations", templateGenerationAnnotation)
		return empty(env, obj)
	}
}

// countTemplates counts the templates that a DaemonSet has had.
func countTemplates(_ *kinds.Env, obj, old kinds.Object) error {
	tree.Move("status", old, obj)
	n, _ := strconv.ParseInt(tree.Str(old, "metadata", "annotations", templateGenerationAnnotation), 10, 64)
	if !tree.Equal(tree.Get(obj, "spec", "template"), tree.Get(old, "spec", "template")) {
		n++
	}
	tree.Set(obj, strconv.FormatInt(n, 10), "metadata", "annotations", templateGenerationAnnotation)
	return nil
}

func validateDaemonSet(obj kinds.Object) field.ErrorList {
	var e check.Errors
	spec := check.Root(obj).Child("spec")
	template := spec.Child("template")
	e.LabelSelector(spec, "selector")
	selector := check.LabelSelector(spec.Child("selector").Map)
	set, meta := template.Child("metadata").StringMap("labels"), template.Child("metadata")
	if matches, err := metav1.LabelSelectorAsSelector(selector); err == nil && !matches.Matches(labels.Set(set)) {
		e.Invalid(meta.At("labels"), set, "`selector` does not match template `labels`")
	}
	if selector != nil && len(selector.MatchLabels)+len(selector.MatchExpressions) == 0 {
		e.Invalid(spec.At("selector"), selector, "empty selector is invalid for daemonset")
	}
	pod.CheckTemplate(&e, template)
	runsForEver(&e, template.Child("spec"), "DaemonSet")
	e.NotNegative(spec, "minReadySeconds")
	daemonStrategy(&e, spec.Child("updateStrategy"))
	e.NotNegative(spec, "revisionHistoryLimit")
	return e.List()
}

func daemonStrategy(e *check.Errors, s check.At) {
	switch rolling := s.Child("rollingUpdate"); s.Str("type") {
	case "OnDelete":
	case "RollingUpdate":
		daemonRollingUpdate(e, rolling)
	default:
		e.NotSupported(s.Path, strategyValue(withAmounts(s), "MaxUnavailable", "MaxSurge"), "RollingUpdate", "OnDelete")
	}
}

// daemonRollingUpdate checks that a node's pod is either stopped first or started first, since
// nothing else is possible where there is one at most.
func daemonRollingUpdate(e *check.Errors, r check.At) {
	for _, name := range []string{"maxUnavailable", "maxSurge"} {
		intOrPercent(e, r, name)
	}
	for _, name := range []string{"maxUnavailable", "maxSurge"} {
		notMoreThanAll(e, r, name)
	}
	stops, starts := amountOf(r.Get("maxUnavailable")) != 0, amountOf(r.Get("maxSurge")) != 0
	switch {
	case stops && starts:
		e.Invalid(r.At("maxSurge"), r.Get("maxSurge"), "may not be set when maxUnavailable is non-zero")
	case !stops && !starts:
		e.Required(r.At("maxUnavailable"), "cannot be 0 when maxSurge is 0")
	}
}

func validateDaemonSetStatus(obj, old kinds.Object) field.ErrorList {
	var e check.Errors
	status := check.Root(obj).Child("status")
	for _, name := range daemonSetCounts {
		e.NotNegative(status, name)
	}
	for _, name := range []string{
		"observedGeneration", "updatedNumberScheduled", "numberAvailable", "numberUnavailable", "collisionCount",
	} {
		e.NotNegative(status, name)
	}
	collisionsKept(&e, status, old)
	return e.List()
}

func daemonSetWarnings(obj, old kinds.Object) []string {
	if old != nil && tree.Equal(tree.Get(obj, "spec", "template"), tree.Get(old, "spec", "template")) {
		return nil
	}
	return pod.Warnings(check.Root(obj).Child("spec").Child("template"))
}
