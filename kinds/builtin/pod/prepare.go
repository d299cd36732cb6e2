package pod

import (
	"fmt"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/setpoint-dev/setpoint/kinds"
	"github.com/setpoint-dev/setpoint/kinds/tree"
)

// defaultAccountName is the account of a pod that names none. It needs no object.
const defaultAccountName = "default"

// evictAfterSeconds is how long a pod stays on a node that is not there, unless it says.
const evictAfterSeconds = 300

// prepareForCreate gives a new pod its first status, and what upstream's admission gives it: an
// account, a priority, and the time it stays on a node that has gone.
func prepareForCreate(env *kinds.Env, obj kinds.Object) error {
	spec := tree.Ensure(obj, "spec")
	status := map[string]any{"phase": "Pending"}
	obj["status"] = status
	if len(tree.List(spec, "schedulingGates")) > 0 {
		status["conditions"] = []any{gatedCondition(env.Now)}
	}
	if err := admitAccount(env, obj, spec); err != nil {
		return err
	}
	if err := admitPriority(env, obj, spec); err != nil {
		return err
	}
	adoptAppArmor(env, obj, spec)
	tolerateLostNodes(spec)
	mergeLabelKeys(spec, tree.Map(obj, "metadata", "labels"))
	status["qosClass"] = QOSClass(spec)
	return nil
}

// adoptAppArmor makes fields of annotations that used to say how containers are confined.
func adoptAppArmor(env *kinds.Env, obj, spec map[string]any) {
	annotations := tree.Map(obj, "metadata", "annotations")
	if len(annotations) == 0 || tree.Str(spec, "os", "name") == "windows" {
		return
	}
	for _, list := range containerLists {
		for _, c := range tree.Maps(spec, list) {
			key := appArmorAnnotation + tree.Str(c, "name")
			said, ok := annotations[key].(string)
			if !ok || tree.Has(c, "securityContext", "appArmorProfile") {
				continue
			}
			profile := appArmorProfile(said)
			if profile != nil && tree.Equal(profile, tree.Get(spec, "securityContext", "appArmorProfile")) {
				continue
			}
			if profile != nil {
				tree.Set(c, profile, "securityContext", "appArmorProfile")
			}
			if env.Warn != nil {
				env.Warn(fmt.Sprintf("metadata.annotations[%s]: %s", key, appArmorText))
			}
		}
	}
}

// appArmorProfile is the field that says what an annotation says; nil if it says nothing that is known.
func appArmorProfile(annotation string) map[string]any {
	switch name, local := strings.CutPrefix(annotation, "localhost/"); {
	case annotation == "unconfined":
		return map[string]any{"type": "Unconfined"}
	case annotation == "runtime/default":
		return map[string]any{"type": "RuntimeDefault"}
	case local && strings.TrimSpace(name) == name && name != "":
		return map[string]any{"type": "Localhost", "localhostProfile": name}
	}
	return nil
}

func gatedCondition(now time.Time) map[string]any {
	return map[string]any{
		"type": "PodScheduled", "status": "False", "reason": "SchedulingGated",
		"message":            "Scheduling is blocked due to non-empty scheduling gates",
		"lastProbeTime":      nil,
		"lastTransitionTime": now.UTC().Format(time.RFC3339),
	}
}

// admitAccount sets the account's name and takes over its pull secrets.
func admitAccount(env *kinds.Env, obj, spec map[string]any) error {
	if _, mirror := tree.Map(obj, "metadata", "annotations")[mirrorAnnotation]; mirror {
		return nil
	}
	setIfEmpty(spec, "serviceAccountName", defaultAccountName)
	defaultAccount(spec)
	name, namespace := tree.Str(spec, "serviceAccountName"), tree.Str(obj, "metadata", "namespace")
	account := env.Get("", "serviceaccounts", namespace, name)
	if account == nil {
		if name == defaultAccountName {
			return nil
		}
		return forbidden(obj, "error looking up service account %s/%s: serviceaccount %q not found",
			namespace, name, name)
	}
	if len(tree.List(spec, "imagePullSecrets")) == 0 {
		if secrets := tree.List(account, "imagePullSecrets"); len(secrets) > 0 {
			spec["imagePullSecrets"] = tree.Copy(secrets)
		}
	}
	return nil
}

// systemPriorities are those of the classes that are always there.
var systemPriorities = map[string]int64{
	"system-cluster-critical": 2_000_000_000,
	"system-node-critical":    2_000_001_000,
}

// admitPriority sets the priority that the pod's class has; a client cannot choose another.
func admitPriority(env *kinds.Env, obj, spec map[string]any) error {
	priority, policy := int64(0), "PreemptLowerPriority"
	if name := tree.Str(spec, "priorityClassName"); name != "" {
		var ok bool
		if priority, ok = systemPriorities[name]; !ok {
			class := env.Get("scheduling.k8s.io", "priorityclasses", "", name)
			if class == nil {
				return forbidden(obj, "no PriorityClass with name %s was found", name)
			}
			priority = tree.Int(class, "value")
			if p := tree.Str(class, "preemptionPolicy"); p != "" {
				policy = p
			}
		}
	}
	if tree.Has(spec, "priority") && tree.Int(spec, "priority") != priority {
		return forbidden(obj,
			"the integer value of priority (%d) must not be provided in pod spec; "+
				"priority admission controller computed %d from the given PriorityClass name",
			tree.Int(spec, "priority"), priority)
	}
	spec["priority"] = priority
	if said := tree.Str(spec, "preemptionPolicy"); said != "" && said != policy {
		return forbidden(obj,
			"the string value of PreemptionPolicy (%s) must not be provided in pod spec; "+
				"priority admission controller computed %s from the given PriorityClass name", said, policy)
	}
	tree.Default(spec, policy, "preemptionPolicy")
	return nil
}

func forbidden(obj kinds.Object, format string, args ...any) error {
	return apierrors.NewForbidden(schema.GroupResource{Resource: "pods"},
		tree.Str(obj, "metadata", "name"),
		fmt.Errorf(format, args...))
}

// tolerateLostNodes lets a pod that does not say otherwise stay for a while on a node that is not
// ready or not reachable.
func tolerateLostNodes(spec map[string]any) {
	for _, key := range []string{"node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"} {
		list := tree.List(spec, "tolerations")
		said := slices.ContainsFunc(list, func(v any) bool {
			t, _ := v.(map[string]any)
			k, effect := tree.Str(t, "key"), tree.Str(t, "effect")
			return (k == key || k == "") && (effect == "NoExecute" || effect == "")
		})
		if !said {
			spec["tolerations"] = append(slices.Clip(list), map[string]any{
				"key": key, "operator": "Exists", "effect": "NoExecute",
				"tolerationSeconds": int64(evictAfterSeconds),
			})
		}
	}
}

// mergeLabelKeys writes the values of the pod's own labels into the selectors that ask for them.
func mergeLabelKeys(spec, labels map[string]any) {
	for _, name := range []string{"podAffinity", "podAntiAffinity"} {
		a := tree.Map(spec, "affinity", name)
		for _, p := range tree.Maps(a, preferred) {
			mergeTerm(tree.Map(p, "podAffinityTerm"), labels)
		}
		for _, term := range tree.Maps(a, required) {
			mergeTerm(term, labels)
		}
	}
	for _, c := range tree.Maps(spec, "topologySpreadConstraints") {
		mergeTerm(c, labels)
	}
}

func mergeTerm(term, labels map[string]any) {
	selector := tree.Map(term, "labelSelector")
	if selector == nil {
		return
	}
	for _, by := range []struct{ field, operator string }{{"matchLabelKeys", "In"}, {"mismatchLabelKeys", "NotIn"}} {
		for _, key := range tree.Strings(term, by.field) {
			value, ok := labels[key]
			if !ok {
				continue
			}
			selector["matchExpressions"] = append(slices.Clip(tree.List(selector, "matchExpressions")),
				map[string]any{"key": key, "operator": by.operator, "values": []any{value}})
		}
	}
}

func prepareForUpdate(_ *kinds.Env, obj, old kinds.Object) error {
	tree.Move("status", old, obj)
	spec, oldSpec := tree.Ensure(obj, "spec"), tree.Map(old, "spec")
	if !tree.Has(spec, "resources") {
		tree.Move("resources", oldSpec, spec) // dropped by clients that do not know it
	}
	tolerateLostNodes(spec)
	return nil
}

func prepareForStatusUpdate(_ *kinds.Env, obj, old kinds.Object) {
	tree.Move("spec", old, obj)
	status, oldStatus := tree.Ensure(obj, "status"), tree.Map(old, "status")
	defaultStatus(status)
	for _, name := range []string{
		"qosClass", "observedGeneration", "resourceClaimStatuses", "extendedResourceClaimStatus",
	} {
		if !tree.Has(status, name) && tree.Has(oldStatus, name) {
			status[name] = oldStatus[name]
		}
	}
}

// keepAllButEphemeralContainers lets only new ephemeral containers through.
func keepAllButEphemeralContainers(_ *kinds.Env, obj, old kinds.Object) error {
	spec := tree.CopyMap(tree.Map(old, "spec"))
	tree.Move("ephemeralContainers", tree.Map(obj, "spec"), spec)
	obj["spec"] = spec
	keepRest(obj, old)
	return nil
}

// QOSClass is how a pod is treated when its node runs short: it is Guaranteed what it asks for if
// every container's limits are its requests, BestEffort if none asks for anything, else Burstable.
func QOSClass(spec map[string]any) string {
	if whole := tree.Map(spec, "resources"); whole != nil {
		return qosOf(whole)
	}
	class := ""
	for _, list := range []string{"initContainers", "containers"} {
		for _, c := range tree.Maps(spec, list) {
			class = worse(class, qosOf(tree.Map(c, "resources")))
		}
	}
	if class == "" {
		return "BestEffort"
	}
	return class
}

func qosOf(resources map[string]any) string {
	class := ""
	for _, name := range []string{"cpu", "memory"} {
		request, limit := Quantity(tree.Get(resources, "requests", name)), Quantity(tree.Get(resources, "limits", name))
		switch {
		case request.IsZero() && limit.IsZero():
			class = worse(class, "BestEffort")
		case request.Cmp(limit) == 0:
			class = worse(class, "Guaranteed")
		default:
			class = worse(class, "Burstable")
		}
	}
	return class
}

func worse(a, b string) string {
	if a == "" || a == b {
		return b
	}
	return "Burstable"
}
