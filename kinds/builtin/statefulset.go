package builtin

import (
	"fmt"
	"maps"
	"time"

	apivalidation "k8s.io/apimachinery/pkg/api/validation"
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

func statefulSet() *kinds.Kind {
	return &kinds.Kind{
		Group: "apps", Version: "v1", Kind: "StatefulSet", Resource: "statefulsets", Singular: "statefulset",
		ShortNames: []string{"sts"}, Categories: []string{"all"}, Namespaced: true,
		Schema: schema.Builtin("io.k8s.api.apps.v1.StatefulSet"),
		Columns: append([]kinds.Column{
			table.Name(),
			table.Column("Ready", "Number of the pod with ready state", readyOfReplicas),
			table.Age(),
		}, templateColumns("")[:2]...),
		Status:             true,
		Scale:              replicaScale(),
		Generation:         true,
		DefaultPropagation: "Background",
		NameRule:           apivalidation.NameIsDNSLabel, // pods are called after it, and hosts after them
		Strategy: kinds.Strategy{
			Default: defaultStatefulSet,
			PrepareForCreate: emptyStatus(map[string]any{
				"replicas": int64(0), "availableReplicas": int64(0),
			}),
			PrepareForUpdate:       keepStatus,
			PrepareForStatusUpdate: keepSpec,
			Validate:               validateStatefulSet,
			ValidateCreate:         validateNewStatefulSet,
			ValidateUpdate:         validateStatefulSetUpdate,
			ValidateStatusUpdate:   validateStatefulSetStatus,
			Warnings:               statefulSetWarnings,
		},
	}
}

// readyOfReplicas prints how many are ready of those wanted: "2/3".
func readyOfReplicas(obj kinds.Object, _ time.Time) any {
	return fmt.Sprintf("%d/%d", tree.Int(obj, "status", "readyReplicas"), tree.Int(obj, "spec", "replicas"))
}

func defaultStatefulSet(obj kinds.Object) {
	spec := tree.Ensure(obj, "spec")
	setIfEmpty(spec, "podManagementPolicy", "OrderedReady")
	update := tree.Ensure(spec, "updateStrategy")
	if tree.Str(update, "type") == "" {
		update["type"] = "RollingUpdate"
		tree.Ensure(update, "rollingUpdate")
	}
	if rolling := tree.Map(update, "rollingUpdate"); rolling != nil && update["type"] == "RollingUpdate" {
		tree.Default(rolling, int64(0), "partition")
		tree.Default(rolling, int64(1), "maxUnavailable")
	}
	retention := tree.Ensure(spec, "persistentVolumeClaimRetentionPolicy")
	setIfEmpty(retention, "whenDeleted", "Retain")
	setIfEmpty(retention, "whenScaled", "Retain")
	tree.Default(spec, int64(1), "replicas")
	tree.Default(spec, int64(10), "revisionHistoryLimit")
	pod.DefaultSpec(tree.Ensure(spec, "template", "spec"))
	for _, claim := range tree.Maps(spec, "volumeClaimTemplates") {
		claim["apiVersion"], claim["kind"] = "v1", "PersistentVolumeClaim"
		defaultClaim(claim)
	}
}

func validateStatefulSet(obj kinds.Object) field.ErrorList {
	var e check.Errors
	spec := check.Root(obj).Child("spec")
	switch policy := spec.Str("podManagementPolicy"); policy {
	case "":
		e.Required(spec.At("podManagementPolicy"), "")
	case "OrderedReady", "Parallel":
	default:
		e.Invalid(spec.At("podManagementPolicy"), policy, "must be 'OrderedReady' or 'Parallel'")
	}
	statefulStrategy(&e, spec.Child("updateStrategy"))
	retention := spec.Child("persistentVolumeClaimRetentionPolicy")
	e.Among(retention, "whenDeleted", "Retain", "Delete")
	e.Among(retention, "whenScaled", "Retain", "Delete")
	e.NotNegative(spec, "replicas")
	e.NotNegative(spec, "minReadySeconds")
	if start := tree.Int(spec.Map, "ordinals", "start"); start < 0 {
		e.NotNegative(check.At{Map: map[string]any{"ordinals.start": start}, Path: spec.Path}, "ordinals.start")
	}
	return e.List()
}

// validateNewStatefulSet checks what cannot change afterwards, and so is let be in those that are kept.
func validateNewStatefulSet(obj kinds.Object) field.ErrorList {
	var e check.Errors
	spec := check.Root(obj).Child("spec")
	for _, claim := range spec.Each("volumeClaimTemplates") {
		pod.CheckClaimSpec(&e, claim.Child("spec"), true)
	}
	if name := spec.Str("serviceName"); name != "" {
		e.DNSLabel(spec.At("serviceName"), name)
	}
	statefulSelector(&e, spec)
	return e.List()
}

func statefulStrategy(e *check.Errors, s check.At) {
	rolling := s.Child("rollingUpdate")
	switch s.Str("type") {
	case "":
		e.Required(s.Path, "")
	case "OnDelete":
		if rolling.Exists() {
			e.Invalid(rolling.Path, struct {
				Partition      int64
				MaxUnavailable any
			}{rolling.Int("partition"), rolling.Get("maxUnavailable")}, "only allowed for updateStrategy 'RollingUpdate'")
		}
	case "RollingUpdate":
		if rolling.Exists() {
			statefulRollingUpdate(e, rolling)
		}
	default:
		e.Invalid(s.Path, strategyValue(s, "Partition", "MaxUnavailable"), "must be 'RollingUpdate' or 'OnDelete'")
	}
}

// withAmounts is a strategy whose rolling update says of what it does not say that it is nothing.
func withAmounts(s check.At) check.At {
	s.Map = tree.CopyMap(s.Map)
	if rolling := tree.Map(s.Map, "rollingUpdate"); rolling != nil {
		tree.Default(rolling, int64(0), "maxUnavailable")
		tree.Default(rolling, int64(0), "maxSurge")
	}
	return s
}

// strategyValue is how a strategy looks in a message; fields are those of a rolling update.
func strategyValue(s check.At, fields ...string) any {
	var rolling any
	if r := s.Child("rollingUpdate"); r.Exists() {
		rolling = check.Shown(r.Map, fields...)
	}
	return struct {
		Type          string
		RollingUpdate any
	}{s.Str("type"), rolling}
}

func statefulRollingUpdate(e *check.Errors, r check.At) {
	e.NotNegative(r, "partition")
	if !r.Has("maxUnavailable") {
		return
	}
	intOrPercent(e, r, "maxUnavailable")
	if v := r.Get("maxUnavailable"); amountOf(v) == 0 {
		e.Invalid(r.At("maxUnavailable"), v, "cannot be 0")
	}
	notMoreThanAll(e, r, "maxUnavailable")
}

// notMoreThanAll checks that a percentage is not above a hundred.
func notMoreThanAll(e *check.Errors, a check.At, name string) {
	if v, percent := a.Get(name).(string); percent && amountOf(v) > 100 {
		e.Invalid(a.At(name), v, "must not be greater than 100%")
	}
}

func statefulSelector(e *check.Errors, spec check.At) {
	path := spec.At("selector")
	selector := check.LabelSelector(spec.Child("selector").Map)
	if selector == nil {
		e.Required(path, "")
	} else {
		e.LabelSelector(spec, "selector")
		if len(selector.MatchLabels)+len(selector.MatchExpressions) == 0 {
			e.Invalid(path, selector, "empty selector is invalid for statefulset")
		}
	}
	template := spec.Child("template")
	if matches, err := metav1.LabelSelectorAsSelector(selector); err != nil {
		e.Invalid(path, selector, "")
	} else {
		if set := template.Child("metadata").StringMap("labels"); !matches.Empty() && !matches.Matches(labels.Set(set)) {
			e.Invalid(template.Child("metadata").At("labels"), set, "`selector` does not match template `labels`")
		}
		pod.CheckTemplate(e, asMade(template, spec))
		// Upstream looks at these twice, and tells of them twice.
		pod.CheckTemplateMetadata(e, template)
	}
	runsForEver(e, template.Child("spec"), "StatefulSet")
}

// runsForEver checks that the pods of a workload that is never done are restarted.
func runsForEver(e *check.Errors, spec check.At, kind string) {
	if policy := spec.Str("restartPolicy"); policy != "Always" {
		e.NotSupported(spec.At("restartPolicy"), policy, "Always")
	}
	if spec.Has("activeDeadlineSeconds") {
		e.Forbidden(spec.At("activeDeadlineSeconds"),
			"activeDeadlineSeconds in "+kind+" is not Supported")
	}
}

// asMade is the template as the pods are made from it: named by the controller, with a volume for each
// claim, so that containers may mount those.
func asMade(template, set check.At) check.At {
	inner := template.Child("spec").Map
	claims := map[string]bool{}
	var volumes []any
	for _, claim := range tree.Maps(set.Map, "volumeClaimTemplates") {
		name := tree.Str(claim, "metadata", "name")
		if claims[name] {
			continue
		}
		claims[name] = true
		volumes = append(volumes, map[string]any{
			"name": name, "persistentVolumeClaim": map[string]any{"claimName": name},
		})
	}
	for _, v := range tree.Maps(inner, "volumes") {
		if !claims[tree.Str(v, "name")] {
			volumes = append(volumes, v)
		}
	}
	out, spec := maps.Clone(template.Map), maps.Clone(inner)
	delete(spec, "hostname")
	delete(spec, "subdomain")
	spec["volumes"] = volumes
	out["spec"] = spec
	return check.At{Map: out, Path: template.Path}
}

func validateStatefulSetUpdate(obj, old kinds.Object) field.ErrorList {
	var e check.Errors
	spec, was := check.Root(obj).Child("spec"), check.Root(old).Child("spec")
	statefulSelector(&e, spec)
	for _, name := range []string{"selector", "volumeClaimTemplates", "serviceName", "podManagementPolicy"} {
		e.Unchanged(spec, was, name)
	}
	return e.List()
}

func validateStatefulSetStatus(obj, old kinds.Object) field.ErrorList {
	var e check.Errors
	status := check.Root(obj).Child("status")
	for _, name := range []string{
		"replicas", "readyReplicas", "currentReplicas", "updatedReplicas", "availableReplicas",
		"observedGeneration", "collisionCount",
	} {
		e.NotNegative(status, name)
	}
	for _, name := range []string{"readyReplicas", "currentReplicas", "updatedReplicas", "availableReplicas"} {
		if n := status.Int(name); n > status.Int("replicas") {
			e.Invalid(status.At(name), n, "cannot be greater than status.replicas")
		}
	}
	if n := status.Int("availableReplicas"); n > status.Int("readyReplicas") {
		e.Invalid(status.At("availableReplicas"), n, "cannot be greater than status.readyReplicas")
	}
	collisionsKept(&e, status, old)
	return e.List()
}

// collisionsKept checks that the count of collisions, which names are made of, only rises.
func collisionsKept(e *check.Errors, status check.At, old kinds.Object) {
	if n := status.Int("collisionCount"); n < tree.Int(old, "status", "collisionCount") {
		e.Invalid(status.At("collisionCount"), n, "cannot be decremented")
	}
}

func statefulSetWarnings(obj, old kinds.Object) []string {
	var w []string
	if old == nil || !tree.Equal(tree.Get(obj, "spec"), tree.Get(old, "spec")) {
		w = pod.Warnings(check.Root(obj).Child("spec").Child("template"))
	}
	if n := tree.Int(obj, "spec", "revisionHistoryLimit"); n < 0 {
		w = append(w, "spec.revisionHistoryLimit: a negative value retains all historical revisions; a value >= 0 is recommended")
	}
	return w
}
