package builtin

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/setpoint-dev/setpoint/kinds"
	"github.com/setpoint-dev/setpoint/kinds/builtin/pod"
	"github.com/setpoint-dev/setpoint/kinds/check"
	"github.com/setpoint-dev/setpoint/kinds/schema"
	"github.com/setpoint-dev/setpoint/kinds/table"
	"github.com/setpoint-dev/setpoint/kinds/tree"
)

func deployment() *kinds.Kind {
	status := appsv1.DeploymentStatus{}.SwaggerDoc()
	return &kinds.Kind{
		Group: "apps", Version: "v1", Kind: "Deployment", Resource: "deployments", Singular: "deployment",
		ShortNames: []string{"deploy"}, Categories: []string{"all"}, Namespaced: true,
		Schema: schema.Builtin("io.k8s.api.apps.v1.Deployment"),
		Columns: append([]kinds.Column{
			table.Name(),
			table.Column("Ready", "Number of the pod with ready state", func(obj kinds.Object, _ time.Time) any {
				return fmt.Sprintf("%d/%d", tree.Int(obj, "status", "readyReplicas"),
					tree.Int(obj, "spec", "replicas"))
			}),
			countText("Up-to-date", status["updatedReplicas"], "status", "updatedReplicas"),
			countText("Available", status["availableReplicas"], "status", "availableReplicas"),
			table.Age(),
		}, templateColumns(appsv1.DeploymentSpec{}.SwaggerDoc()["selector"])...),
		Status:     true,
		Scale:      replicaScale(),
		Generation: true,
		// A Deployment's annotations are copied to its ReplicaSets, so they are something to act on.
		Bumps: func(obj, old kinds.Object) bool {
			return !tree.Equal(tree.Get(obj, "metadata", "annotations"),
				tree.Get(old, "metadata", "annotations"))
		},
		DefaultPropagation: "Background",
		Strategy: kinds.Strategy{
			Default:                defaultDeployment,
			PrepareForCreate:       emptyStatus(map[string]any{}),
			PrepareForUpdate:       keepStatus,
			PrepareForStatusUpdate: keepSpec,
			Validate:               validateDeployment,
			ValidateUpdate:         selectorKept,
			ValidateStatusUpdate:   validateDeploymentStatus,
			Warnings:               templateWarnings,
		},
	}
}

// countText is a column of numbers that is declared as text, as kubectl has always had it.
func countText(name, description string, path ...string) kinds.Column {
	return table.Column(name, description,
		func(obj kinds.Object, _ time.Time) any { return tree.Int(obj, path...) })
}

func replicaScale() *kinds.Scale {
	return &kinds.Scale{SpecReplicas: "spec.replicas", StatusReplicas: "status.replicas", LabelSelector: "spec.selector"}
}

func defaultDeployment(obj kinds.Object) {
	spec := tree.Ensure(obj, "spec")
	tree.Default(spec, int64(1), "replicas")
	setIfEmpty(tree.Ensure(spec, "strategy"), "type", "RollingUpdate")
	if tree.Str(spec, "strategy", "type") == "RollingUpdate" {
		tree.Default(spec, "25%", "strategy", "rollingUpdate", "maxUnavailable")
		tree.Default(spec, "25%", "strategy", "rollingUpdate", "maxSurge")
	}
	tree.Default(spec, int64(10), "revisionHistoryLimit")
	tree.Default(spec, int64(600), "progressDeadlineSeconds")
	pod.DefaultSpec(tree.Ensure(spec, "template", "spec"))
}

func validateDeployment(obj kinds.Object) field.ErrorList {
	var e check.Errors
	spec := check.Root(obj).Child("spec")
	e.NotNegative(spec, "replicas")
	selectorAndTemplate(&e, spec)
	strategy(&e, spec.Child("strategy"))
	e.NotNegative(spec, "minReadySeconds")
	e.NotNegative(spec, "revisionHistoryLimit")
	e.NotNegative(spec, "progressDeadlineSeconds")
	if n := spec.Int("progressDeadlineSeconds"); n <= spec.Int("minReadySeconds") {
		e.Invalid(spec.At("progressDeadlineSeconds"), n, "must be greater than minReadySeconds")
	}
	return e.List()
}

func strategy(e *check.Errors, s check.At) {
	rolling := s.Child("rollingUpdate")
	switch s.Str("type") {
	case "Recreate":
		if rolling.Exists() {
			e.Forbidden(rolling.Path, "may not be specified when strategy `type` is 'Recreate'")
		}
	case "RollingUpdate":
		rollingUpdate(e, rolling)
	default:
		e.NotSupported(s.Path, strategyValue(withAmounts(s), "MaxUnavailable", "MaxSurge"), "Recreate", "RollingUpdate")
	}
}

// rollingUpdate checks how many pods may be too few or too many during a roll-out: if neither, nothing
// could ever change.
func rollingUpdate(e *check.Errors, r check.At) {
	intOrPercent(e, r, "maxUnavailable")
	intOrPercent(e, r, "maxSurge")
	unavailable, path := r.Get("maxUnavailable"), r.At("maxUnavailable")
	if amountOf(unavailable) == 0 && amountOf(r.Get("maxSurge")) == 0 {
		e.Invalid(path, unavailable, "may not be 0 when `maxSurge` is 0")
	}
	if _, percent := unavailable.(string); percent && amountOf(unavailable) > 100 {
		e.Invalid(path, unavailable, "must not be greater than 100%")
	}
}

func intOrPercent(e *check.Errors, a check.At, name string) {
	if text, ok := a.Get(name).(string); ok {
		e.Messages(a.At(name), text, validation.IsValidPercent(text))
		return
	}
	e.NotNegative(a, name)
}

// amountOf is the number in an integer or a percentage; zero for what is neither.
func amountOf(v any) int64 {
	switch v := v.(type) {
	case int64:
		return v
	case string:
		var n int64
		if len(validation.IsValidPercent(v)) == 0 {
			n, _ = strconv.ParseInt(strings.TrimSuffix(v, "%"), 10, 32)
		}
		return n
	}
	return 0
}

func validateDeploymentStatus(obj, old kinds.Object) field.ErrorList {
	var e check.Errors
	status := check.Root(obj).Child("status")
	for _, name := range []string{
		"observedGeneration", "replicas", "updatedReplicas", "readyReplicas", "availableReplicas",
		"unavailableReplicas", "terminatingReplicas", "collisionCount",
	} {
		e.NotNegative(status, name)
	}
	notMoreThanReplicas(&e, status, "updatedReplicas", "readyReplicas", "availableReplicas")
	if n := status.Int("collisionCount"); n < tree.Int(old, "status", "collisionCount") {
		e.Invalid(status.At("collisionCount"), n, "cannot be decremented")
	}
	return e.List()
}
