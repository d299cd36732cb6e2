package builtin

import (
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/setpoint-dev/setpoint/kinds"
	"github.com/setpoint-dev/setpoint/kinds/builtin/pod"
	"github.com/setpoint-dev/setpoint/kinds/check"
	"github.com/setpoint-dev/setpoint/kinds/schema"
	"github.com/setpoint-dev/setpoint/kinds/table"
	"github.com/setpoint-dev/setpoint/kinds/tree"
)

func replicaSet() *kinds.Kind {
	spec, status := appsv1.ReplicaSetSpec{}.SwaggerDoc(), appsv1.ReplicaSetStatus{}.SwaggerDoc()
	return &kinds.Kind{
		Group: "apps", Version: "v1", Kind: "ReplicaSet", Resource: "replicasets", Singular: "replicaset",
		ShortNames: []string{"rs"}, Categories: []string{"all"}, Namespaced: true,
		Schema: schema.Builtin("io.k8s.api.apps.v1.ReplicaSet"),
		Columns: append([]kinds.Column{
			table.Name(),
			table.Count("Desired", spec["replicas"], "spec", "replicas"),
			table.Count("Current", status["replicas"], "status", "replicas"),
			table.Count("Ready", status["readyReplicas"], "status", "readyReplicas"),
			table.Age(),
		}, templateColumns(spec["selector"])...),
		Status:             true,
		Scale:              replicaScale(),
		Generation:         true,
		DefaultPropagation: "Background",
		Strategy: kinds.Strategy{
			Default:                defaultReplicaSet,
			PrepareForCreate:       emptyStatus(map[string]any{"replicas": int64(0)}),
			PrepareForUpdate:       keepStatus,
			PrepareForStatusUpdate: keepSpec,
			Validate:               validateReplicaSet,
			ValidateUpdate:         selectorKept,
			ValidateStatusUpdate:   validateReplicaSetStatus,
			Warnings:               templateWarnings,
		},
	}
}

func defaultReplicaSet(obj kinds.Object) {
	spec := tree.Ensure(obj, "spec")
	tree.Default(spec, int64(1), "replicas")
	pod.DefaultSpec(tree.Ensure(spec, "template", "spec"))
}

func validateReplicaSet(obj kinds.Object) field.ErrorList {
	var e check.Errors
	spec := check.Root(obj).Child("spec")
	e.NotNegative(spec, "replicas")
	e.NotNegative(spec, "minReadySeconds")
	selectorAndTemplate(&e, spec)
	return e.List()
}

// selectorAndTemplate checks that a workload finds the pods it makes, and that those may run for ever.
func selectorAndTemplate(e *check.Errors, spec check.At) {
	path := spec.At("selector")
	selector := check.LabelSelector(spec.Child("selector").Map)
	if selector == nil {
		e.Required(path, "")
	} else {
		e.LabelSelector(spec, "selector")
		if len(selector.MatchLabels)+len(selector.MatchExpressions) == 0 {
			e.Invalid(path, selector, "empty selector is invalid for deployment")
		}
	}
	matches, err := metav1.LabelSelectorAsSelector(selector)
	if err != nil {
		e.Invalid(path, selector, "invalid label selector")
		return
	}
	template := spec.Child("template")
	meta := template.Child("metadata")
	if set := meta.StringMap("labels"); !matches.Empty() && !matches.Matches(labels.Set(set)) {
		e.Invalid(meta.At("labels"), set, "`selector` does not match template `labels`")
	}
	pod.CheckTemplate(e, template)
	inner := template.Child("spec")
	if policy := inner.Str("restartPolicy"); policy != "Always" {
		e.NotSupported(inner.At("restartPolicy"), policy, "Always")
	}
	if inner.Has("activeDeadlineSeconds") {
		e.Forbidden(inner.At("activeDeadlineSeconds"),
			"activeDeadlineSeconds in ReplicaSet is not Supported")
	}
}

// selectorKept checks that a workload goes on finding the pods it has made.
func selectorKept(obj, old kinds.Object) field.ErrorList {
	var e check.Errors
	e.Unchanged(check.Root(obj).Child("spec"), check.Root(old).Child("spec"), "selector")
	return e.List()
}

func validateReplicaSetStatus(obj, _ kinds.Object) field.ErrorList {
	var e check.Errors
	status := check.Root(obj).Child("status")
	for _, name := range []string{
		"replicas", "fullyLabeledReplicas", "readyReplicas", "availableReplicas", "observedGeneration", "terminatingReplicas",
	} {
		e.NotNegative(status, name)
	}
	notMoreThanReplicas(&e, status, "fullyLabeledReplicas", "readyReplicas", "availableReplicas")
	return e.List()
}

// notMoreThanReplicas checks that the counts of some replicas are not more than that of all.
func notMoreThanReplicas(e *check.Errors, status check.At, counts ...string) {
	for _, name := range counts {
		if n := status.Int(name); n > status.Int("replicas") {
			e.Invalid(status.At(name), n, "cannot be greater than status.replicas")
		}
	}
	if n := status.Int("availableReplicas"); n > status.Int("readyReplicas") {
		e.Invalid(status.At("availableReplicas"), n, "cannot be greater than readyReplicas")
	}
}

// templateColumns are those of kinds that make pods, for -o wide.
func templateColumns(selector string) []kinds.Column { return templateColumnsAt(selector, "spec") }

// templateColumnsAt are the same of a template and a selector that are at a path.
func templateColumnsAt(selector string, path ...string) []kinds.Column {
	containers := func(name string) func(kinds.Object, time.Time) any {
		return func(obj kinds.Object, _ time.Time) any {
			return table.Joined(tree.List(tree.Map(obj, path...), "template", "spec", "containers"), name)
		}
	}
	return table.Wide(
		table.Column("Containers", "Names of each container in the template.", containers("name")),
		table.Column("Images", "Images referenced by each container in the template.",
			containers("image")),
		table.Column("Selector", selector, func(obj kinds.Object, _ time.Time) any {
			return table.Selector(tree.Map(obj, path...), "selector")
		}),
	)
}

// templateWarnings are those of kinds that make pods: about the name, which the pods' names are made
// of, and about the template when it changes.
func templateWarnings(obj, old kinds.Object) []string {
	var w []string
	if old == nil {
		w = nameWarnings(obj)
	} else if tree.Equal(tree.Get(obj, "spec", "template"), tree.Get(old, "spec", "template")) {
		return nil
	}
	return append(w, pod.Warnings(check.Root(obj).Child("spec").Child("template"))...)
}

// nameWarnings tells that a name is allowed and makes bad names of pods.
func nameWarnings(obj kinds.Object) []string {
	msgs := validation.IsDNS1123Label(tree.Str(obj, "metadata", "name"))
	if len(msgs) == 0 {
		return nil
	}
	return []string{
		fmt.Sprintf("metadata.name: this is used in Pod names and hostnames, which can result in surprising behavior; a DNS label is recommended: %v", msgs),
	}
}
