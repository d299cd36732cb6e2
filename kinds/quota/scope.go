package quota

import (
	"maps"
	"slices"
	"strings"

	"github.com/setpoint-dev/setpoint/kinds"
	"github.com/setpoint-dev/setpoint/kinds/builtin/pod"
	"github.com/setpoint-dev/setpoint/kinds/tree"
)

// scope is one condition on the objects of a quota.
type scope struct {
	name, operator string
	values         []string
}

func readScopes(spec map[string]any) []scope {
	var out []scope
	for _, name := range tree.Strings(spec, "scopes") {
		out = append(out, scope{name: name, operator: "Exists"})
	}
	for _, e := range tree.Maps(spec, "scopeSelector", "matchExpressions") {
		out = append(out, scope{tree.Str(e, "scopeName"), tree.Str(e, "operator"), tree.Strings(e, "values")})
	}
	return out
}

// About says whether a quota is about an object: whether all its scopes are the object's. The
// scopes of pods are about pods alone, and those of claims about claims.
func (q *Quota) About(k *kinds.Kind, obj kinds.Object) bool {
	for _, s := range q.scopes {
		if obj == nil || k.Group != "" || !s.has(k, obj) {
			return false
		}
	}
	return obj != nil
}

func (s scope) has(k *kinds.Kind, obj kinds.Object) bool {
	spec := tree.Map(obj, "spec")
	if k.Kind == "PersistentVolumeClaim" {
		return s.name == "VolumeAttributesClass" && s.among(attributesClasses(obj)...)
	}
	if k.Kind != "Pod" {
		return false
	}
	ends := tree.Has(spec, "activeDeadlineSeconds") && tree.Int(spec, "activeDeadlineSeconds") >= 0
	switch s.name {
	case "Terminating":
		return ends
	case "NotTerminating":
		return !ends
	case "BestEffort":
		return pod.QOSClass(spec) == "BestEffort"
	case "NotBestEffort":
		return pod.QOSClass(spec) != "BestEffort"
	case "PriorityClass":
		return s.among(tree.Str(spec, "priorityClassName"))
	case "CrossNamespacePodAffinity":
		return crossesNamespaces(spec)
	}
	return false
}

// among says whether one of the names that an object has, if any, is as the scope wants it.
func (s scope) among(names ...string) bool {
	names = slices.DeleteFunc(names, func(name string) bool { return name == "" })
	in := slices.ContainsFunc(names, func(name string) bool { return slices.Contains(s.values, name) })
	switch s.operator {
	case "Exists":
		return len(names) > 0
	case "DoesNotExist":
		return len(names) == 0
	case "In":
		return in
	case "NotIn":
		return !in
	}
	return false
}

func attributesClasses(obj kinds.Object) []string {
	return []string{
		tree.Str(obj, "spec", "volumeAttributesClassName"), tree.Str(obj, "status", "currentVolumeAttributesClassName"),
		tree.Str(obj, "status", "modifyVolumeStatus", "targetVolumeAttributesClassName"),
	}
}

// crossesNamespaces says whether a pod wants to be near, or far from, pods of other namespaces.
func crossesNamespaces(spec map[string]any) bool {
	crosses := func(term map[string]any) bool {
		return len(tree.List(term, "namespaces")) > 0 || tree.Has(term, "namespaceSelector")
	}
	for _, name := range []string{"podAffinity", "podAntiAffinity"} {
		a := tree.Map(spec, "affinity", name)
		for _, term := range tree.Maps(a, "requiredDuringSchedulingIgnoredDuringExecution") {
			if crosses(term) {
				return true
			}
		}
		for _, p := range tree.Maps(a, "preferredDuringSchedulingIgnoredDuringExecution") {
			if crosses(tree.Map(p, "podAffinityTerm")) {
				return true
			}
		}
	}
	return false
}

// containerResources are those that every container must ask for, or be limited in, where a quota is
// of them.
var containerResources = []string{"cpu", "limits.cpu", "limits.memory", "memory", "requests.cpu", "requests.memory"}

// Missing says what a pod's containers do not say and must, since the quota is of it: "cpu for:
// a,b; memory for: a"; "" if nothing.
func (q *Quota) Missing(k *kinds.Kind, obj kinds.Object) string {
	if k.Group != "" || k.Kind != "Pod" || len(tree.Map(obj, "spec", "resources")) > 0 {
		return ""
	}
	missing := map[string][]string{}
	for _, list := range []string{"containers", "initContainers"} {
		for _, c := range tree.Maps(obj, "spec", list) {
			for _, name := range containerResources {
				if _, limited := q.Hard[name]; limited && !says(c, name) {
					missing[name] = append(missing[name], tree.Str(c, "name"))
				}
			}
		}
	}
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(missing)) {
		slices.Sort(missing[name])
		parts = append(parts, name+" for: "+strings.Join(slices.Compact(missing[name]), ","))
	}
	return strings.Join(parts, "; ")
}

// says says whether a container says something of a resource, as a quota names it.
func says(container map[string]any, name string) bool {
	list := "requests"
	if rest, ok := strings.CutPrefix(name, "limits."); ok {
		list, name = "limits", rest
	}
	return tree.Has(container, "resources", list, strings.TrimPrefix(name, "requests."))
}
