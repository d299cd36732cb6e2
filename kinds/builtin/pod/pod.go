// Package pod is the record of pods, and what other kinds that have a pod's template need of it:
// defaults, rules and warnings for a pod's spec.
//
// The rules are Kubernetes 1.37's with all its feature gates at their defaults, in its words and its
// order. Of volumes that only a cluster's storage can provide no more is checked than that they name
// what they want.
package pod

import (
	"strconv"

	"github.com/setpoint-dev/setpoint/kinds"
	"github.com/setpoint-dev/setpoint/kinds/schema"
	"github.com/setpoint-dev/setpoint/kinds/tree"
)

// Kind makes the record.
func Kind() *kinds.Kind {
	return &kinds.Kind{
		Version: "v1", Kind: "Pod", Resource: "pods", Singular: "pod",
		ShortNames: []string{"po"}, Categories: []string{"all"}, Namespaced: true,
		Schema:             schema.Builtin("io.k8s.api.core.v1.Pod"),
		Columns:            columns(),
		Status:             true,
		Generation:         true,
		ReturnDeleted:      true,
		DefaultPropagation: "Background",
		GracePeriod:        gracePeriod,
		Fields:             fields(),
		Subresources: []kinds.Subresource{
			{Name: "attach", Version: "v1", Kind: "PodAttachOptions", Verbs: []string{"create", "get"}},
			{Name: "binding", Version: "v1", Kind: "Binding", Verbs: []string{"create"}},
			{Name: "ephemeralcontainers", Verbs: []string{"get", "patch", "update"}, Strategy: &kinds.Strategy{
				Default:          defaultPod,
				PrepareForUpdate: keepAllButEphemeralContainers,
				Validate:         validate,
				ValidateUpdate:   validateEphemeralContainersUpdate,
			}},
			{Name: "eviction", Group: "policy", Version: "v1", Kind: "Eviction", Verbs: []string{"create"}},
			{Name: "exec", Version: "v1", Kind: "PodExecOptions", Verbs: []string{"create", "get"}},
			{Name: "log", Verbs: []string{"get"}},
			{Name: "portforward", Version: "v1", Kind: "PodPortForwardOptions", Verbs: []string{"create", "get"}},
			{Name: "proxy", Version: "v1", Kind: "PodProxyOptions", Verbs: []string{"create", "delete", "get", "patch", "update"}},
			{Name: "resize", Verbs: []string{"get", "patch", "update"}, Strategy: &kinds.Strategy{
				Default:          defaultPod,
				PrepareForUpdate: keepAllButResources,
				Validate:         validate,
				ValidateUpdate:   validateResize,
			}},
		},
		Strategy: kinds.Strategy{
			Default:                defaultPod,
			PrepareForCreate:       prepareForCreate,
			PrepareForUpdate:       prepareForUpdate,
			PrepareForStatusUpdate: prepareForStatusUpdate,
			Validate:               validate,
			ValidateCreate:         validateCreate,
			ValidateUpdate:         validateUpdate,
			ValidateStatusUpdate:   validateStatusUpdate,
			Warnings:               warnings,
		},
	}
}

func fields() map[string]func(kinds.Object) string {
	text := func(path ...string) func(kinds.Object) string {
		return func(obj kinds.Object) string { return tree.Str(obj, path...) }
	}
	return map[string]func(kinds.Object) string{
		"spec.nodeName":            text("spec", "nodeName"),
		"spec.host":                text("spec", "nodeName"), // what old clients call it
		"spec.restartPolicy":       text("spec", "restartPolicy"),
		"spec.schedulerName":       text("spec", "schedulerName"),
		"spec.serviceAccountName":  text("spec", "serviceAccountName"),
		"status.phase":             text("status", "phase"),
		"status.podIP":             text("status", "podIP"),
		"status.podIPs":            text("status", "podIP"),
		"status.nominatedNodeName": text("status", "nominatedNodeName"),
		"spec.hostNetwork": func(obj kinds.Object) string {
			return strconv.FormatBool(tree.Bool(obj, "spec", "hostNetwork"))
		},
	}
}

// gracePeriod is what was asked for, or what the pod says; nothing for a pod that nobody runs.
func gracePeriod(obj kinds.Object, asked *int64) int64 {
	period := tree.Int(obj, "spec", "terminationGracePeriodSeconds")
	if asked != nil {
		period = *asked
	}
	phase := tree.Str(obj, "status", "phase")
	if tree.Str(obj, "spec", "nodeName") == "" || phase == "Failed" || phase == "Succeeded" {
		return 0
	}
	if period < 0 {
		return 1
	}
	return period
}
