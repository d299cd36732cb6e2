package builtin

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	utilnet "k8s.io/utils/net"

	"github.com/setpoint-dev/setpoint/kinds"
	"github.com/setpoint-dev/setpoint/kinds/builtin/pod"
	"github.com/setpoint-dev/setpoint/kinds/check"
	"github.com/setpoint-dev/setpoint/kinds/schema"
	"github.com/setpoint-dev/setpoint/kinds/table"
	"github.com/setpoint-dev/setpoint/kinds/tree"
)

// notReadyTaint is what a new node has until it is seen to be ready.
const notReadyTaint = "node.kubernetes.io/not-ready"

func node() *kinds.Kind {
	return &kinds.Kind{
		Version: "v1", Kind: "Node", Resource: "nodes", Singular: "node", ShortNames: []string{"no"},
		Schema:             schema.Builtin("io.k8s.api.core.v1.Node"),
		Columns:            nodeColumns(),
		Status:             true,
		DefaultPropagation: "Background",
		Fields: map[string]func(kinds.Object) string{
			"spec.unschedulable": func(obj kinds.Object) string {
				return strconv.FormatBool(tree.Bool(obj, "spec", "unschedulable"))
			},
		},
		Subresources: []kinds.Subresource{{
			Name: "proxy", Version: "v1", Kind: "NodeProxyOptions",
			Verbs: []string{"create", "delete", "get", "patch", "update"},
		}},
		Strategy: kinds.Strategy{
			Default:                defaultNode,
			PrepareForCreate:       prepareNode,
			PrepareForUpdate:       prepareNodeUpdate,
			PrepareForStatusUpdate: keepSpec,
			Validate:               validateNode,
			ValidateUpdate:         validateNodeUpdate,
			ValidateStatusUpdate: func(obj, old kinds.Object) field.ErrorList {
				return append(validateNodeStatus(obj), validateNodeUpdate(obj, old)...)
			},
		},
	}
}

// defaultNode offers to pods all there is, and keeps podCIDR the first of podCIDRs.
func defaultNode(obj kinds.Object) {
	if capacity := tree.Map(obj, "status", "capacity"); capacity != nil && !tree.Has(obj, "status", "allocatable") {
		tree.Set(obj, tree.CopyMap(capacity), "status", "allocatable")
	}
	spec := tree.Map(obj, "spec")
	cidr, cidrs := tree.Str(spec, "podCIDR"), tree.Strings(spec, "podCIDRs")
	switch {
	case cidr == "" && len(cidrs) > 0:
		spec["podCIDR"] = cidrs[0]
	case cidr != "" && (len(cidrs) == 0 || cidrs[0] != cidr):
		spec["podCIDRs"] = []any{cidr}
	}
}

// prepareNode takes a new node's status as it is, which other kinds' creates do not.
func prepareNode(_ *kinds.Env, obj kinds.Object) error {
	dropUnsupported(obj, nil)
	if status := tree.Map(obj, "status"); status != nil {
		delete(status, "config")
	}
	taintNewNode(obj)
	return nil
}

func prepareNodeUpdate(env *kinds.Env, obj, old kinds.Object) error {
	dropUnsupported(obj, old)
	return keepStatus(env, obj, old)
}

// dropUnsupported drops fields that no node is configured by, unless they were there before.
func dropUnsupported(obj, old kinds.Object) {
	for _, name := range []string{"configSource", "podPreemptionPolicy"} {
		if spec := tree.Map(obj, "spec"); spec != nil && tree.Get(old, "spec", name) == nil {
			delete(spec, name)
		}
	}
}

func taintNewNode(obj kinds.Object) {
	taints := tree.List(obj, "spec", "taints")
	if tree.Find(taints, "key", notReadyTaint) == nil {
		taint := map[string]any{"key": notReadyTaint, "effect": "NoSchedule"}
		tree.Set(obj, append(slices.Clip(taints), taint), "spec", "taints")
	}
}

func validateNode(obj kinds.Object) field.ErrorList {
	var e check.Errors
	// Upstream reports taints and swap under metadata, and so do we.
	spec := check.At{Map: tree.Map(obj, "spec"), Path: check.NewPath("metadata")}
	taints(&e, spec)
	e.Add(validateNodeStatus(obj)...)
	cidrs := tree.Strings(obj, "spec", "podCIDRs")
	path := check.NewPath("spec", "podCIDRs")
	for i, cidr := range cidrs {
		e.CIDR(path.Index(i), cidr)
	}
	if _, err := utilnet.IsDualStackCIDRStrings(cidrs); err != nil && len(cidrs) > 1 {
		e.Add(field.InternalError(path.Field(), fmt.Errorf("invalid PodCIDRs. failed to check with dual stack with error:%w", err)),
			field.Invalid(path.Field(), cidrs, "may specify no more than one CIDR for each IP family"))
	} else if !oneOfEachFamily(cidrs) {
		e.Invalid(path, cidrs, "may specify no more than one CIDR for each IP family")
	}
	return e.List()
}

func taints(e *check.Errors, spec check.At) {
	type pair struct{ key, effect string }
	seen := sets.Set[pair]{}
	for _, t := range spec.Each("taints") {
		key, value := t.Str("key"), t.Str("value")
		e.QualifiedName(t.At("key"), key)
		if msgs := validation.IsValidLabelValue(value); len(msgs) > 0 {
			e.Invalid(t.At("value"), value, strings.Join(msgs, ";"))
		}
		pod.TaintEffect(e, t)
		p := pair{key, t.Str("effect")}
		if seen.Has(p) {
			err := field.Duplicate(t.Path.Field(), struct {
				Key, Value, Effect string
				TimeAdded          any
			}{key, value, t.Str("effect"), t.Get("timeAdded")})
			err.Detail = "taints must be unique by key and effect pair"
			e.Add(err)
		}
		seen.Insert(p)
	}
}

func validateNodeStatus(obj kinds.Object) field.ErrorList {
	var e check.Errors
	for _, list := range []string{"capacity", "allocatable"} {
		amounts := tree.StringMap(obj, "status", list)
		for _, name := range slices.Sorted(maps.Keys(amounts)) {
			if q, err := resource.ParseQuantity(amounts[name]); err == nil {
				pod.CheckAmount(&e, check.NewPath("status", list, name), name, q)
			}
		}
	}
	declaredFeatures(&e, tree.Strings(obj, "status", "declaredFeatures"))
	return e.List()
}

var declaredFeature = regexp.MustCompile(`^[A-Z][a-zA-Z0-9]*(/[a-zA-Z][a-zA-Z0-9]*)*$`)

// declaredFeatures checks what a node says it can do: names, in order and each once.
func declaredFeatures(e *check.Errors, names []string) {
	path := check.NewPath("status", "declaredFeatures")
	for i, name := range names {
		switch {
		case len(name) > validation.DNS1123SubdomainMaxLength:
			e.Invalid(path.Index(i), name, fmt.Sprintf("invalid feature name %q: must be no more than %d characters",
				name, validation.DNS1123SubdomainMaxLength))
		case !declaredFeature.MatchString(name):
			e.Invalid(path.Index(i), name, fmt.Sprintf("invalid feature name %q: must start with an UpperCamelCase segment, "+
				"with subsequent segments separated by '/' (e.g., MyFeature or MyFeature/mySubFeature), and contain only "+
				"alphanumeric characters and slashes", name))
		}
		if i+1 == len(names) {
			return
		}
		switch next := names[i+1]; {
		case name == next:
			e.Duplicate(path.Index(i+1), next)
		case name > next:
			e.Invalid(path.Index(i+1), next, "list must be sorted alphabetically")
		}
	}
}

func validateNodeUpdate(obj, old kinds.Object) field.ErrorList {
	var e check.Errors
	status := check.Root(obj).Child("status")
	seen := sets.Set[[2]string]{}
	for _, a := range status.Each("addresses") {
		key := [2]string{a.Str("type"), a.Str("address")}
		if seen.Has(key) {
			e.Duplicate(a.Path, a.Map)
		}
		seen.Insert(key)
	}
	spec, oldSpec := check.Root(obj).Child("spec"), check.Root(old).Child("spec")
	if oldSpec.Len("podCIDRs") > 0 && !tree.Equal(spec.Get("podCIDRs"), oldSpec.Get("podCIDRs")) {
		e.Forbidden(spec.At("podCIDRs"),
			"node updates may not change podCIDR except from \"\" to valid")
	}
	if was, is := oldSpec.Str("providerID"), spec.Str("providerID"); was != "" && was != is {
		if is == "" {
			e.Invalid(spec.At("providerID"), nil, "field cannot be cleared once set")
		} else {
			e.Invalid(spec.At("providerID"), nil, "field cannot be modified once set")
		}
	}
	if spec.Str("externalID") != oldSpec.Str("externalID") {
		e.Forbidden(spec.At("externalID"), "may not be updated")
	}
	return e.List()
}

// oneOfEachFamily says whether blocks or addresses are at most one of IPv4 and one of IPv6.
func oneOfEachFamily(list []string) bool {
	isV6 := func(s string) bool { return strings.Contains(s, ":") }
	return len(list) < 2 || len(list) == 2 && isV6(list[0]) != isV6(list[1])
}

func nodeColumns() []kinds.Column {
	status := corev1.NodeStatus{}.SwaggerDoc()
	info := corev1.NodeSystemInfo{}.SwaggerDoc()
	address := func(kind string) func(kinds.Object, time.Time) any {
		return func(obj kinds.Object, _ time.Time) any {
			a := tree.Find(tree.List(obj, "status", "addresses"), "type", kind)
			return table.Or(tree.Str(a, "address"), table.None)
		}
	}
	known := func(name string) func(kinds.Object, time.Time) any {
		return func(obj kinds.Object, _ time.Time) any {
			return table.Or(tree.Str(obj, "status", "nodeInfo", name), table.Unknown)
		}
	}
	return append([]kinds.Column{
		table.Name(),
		table.Column("Status", "The status of the node", nodeStatus),
		table.Column("Roles", "The roles of the node", nodeRoles),
		table.Age(),
		table.Text("Version", info["kubeletVersion"], "status", "nodeInfo", "kubeletVersion"),
	}, table.Wide(
		table.Column("Internal-IP", status["addresses"], address("InternalIP")),
		table.Column("External-IP", status["addresses"], address("ExternalIP")),
		table.Column("OS-Image", info["osImage"], known("osImage")),
		table.Column("Kernel-Version", info["kernelVersion"], func(obj kinds.Object, now time.Time) any {
			version := known("kernelVersion")(obj, now).(string)
			if arch := tree.Str(obj, "status", "nodeInfo", "architecture"); arch != "" {
				version += " (" + arch + ")"
			}
			return version
		}),
		table.Column("Container-Runtime", info["containerRuntimeVersion"],
			known("containerRuntimeVersion")),
	)...)
}

func nodeStatus(obj kinds.Object, _ time.Time) any {
	text := "Unknown"
	if ready := tree.Find(tree.List(obj, "status", "conditions"), "type", "Ready"); ready != nil {
		text = "NotReady"
		if tree.Str(ready, "status") == "True" {
			text = "Ready"
		}
	}
	if tree.Bool(obj, "spec", "unschedulable") {
		text += ",SchedulingDisabled"
	}
	return text
}

// nodeRoles are told by labels: node-role.kubernetes.io/NAME, or the older kubernetes.io/role=NAME.
func nodeRoles(obj kinds.Object, _ time.Time) any {
	roles := sets.Set[string]{}
	for key, value := range tree.StringMap(obj, "metadata", "labels") {
		if role, ok := strings.CutPrefix(key, "node-role.kubernetes.io/"); ok && role != "" {
			roles.Insert(role)
		}
		if key == "kubernetes.io/role" && value != "" {
			roles.Insert(value)
		}
	}
	return table.Or(strings.Join(sets.List(roles), ","), table.None)
}
