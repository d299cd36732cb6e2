package pod

import (
	"fmt"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/setpoint-dev/setpoint/kinds"
	"github.com/setpoint-dev/setpoint/kinds/check"
	"github.com/setpoint-dev/setpoint/kinds/tree"
)

// keepAllButResources lets only the resources of the pod and of its containers through. If the containers
// are not those of before, the rules are to see them as they were asked for.
func keepAllButResources(_ *kinds.Env, obj, old kinds.Object) error {
	asked, was := tree.Map(obj, "spec"), tree.Map(old, "spec")
	if len(tree.List(asked, "containers")) != len(tree.List(was, "containers")) ||
		len(tree.List(asked, "initContainers")) != len(tree.List(was, "initContainers")) {
		return nil
	}
	spec := tree.CopyMap(was)
	if tree.Has(asked, "resources") {
		tree.Move("resources", asked, spec)
	}
	for _, list := range []string{"containers", "initContainers"} {
		if len(tree.List(was, list)) > 0 {
			spec[list] = resizedContainers(tree.List(asked, list), tree.List(spec, list))
		}
	}
	obj["spec"] = spec
	keepRest(obj, old)
	return nil
}

// keepRest keeps what subresources about the spec do not change: the status, and what people and
// controllers write of metadata.
func keepRest(obj, old kinds.Object) {
	tree.Move("status", old, obj)
	for _, name := range []string{"labels", "annotations", "finalizers", "ownerReferences"} {
		tree.Move(name, tree.Map(old, "metadata"), tree.Ensure(obj, "metadata"))
	}
}

// resizedContainers gives containers the resources that are asked for, unless others are asked for.
func resizedContainers(asked, containers []any) []any {
	for i, c := range containers {
		if tree.Str(asMap(asked[i]), "name") != tree.Str(asMap(c), "name") {
			return asked
		}
	}
	for i, c := range containers {
		tree.Move("resources", asMap(asked[i]), asMap(c))
		tree.Move("resizePolicy", asMap(asked[i]), asMap(c))
	}
	return containers
}

func asMap(v any) map[string]any {
	m, _ := v.(map[string]any)
	return m
}

// validateResize checks that only what can be resized was, and that it does not make the pod another
// class of guest.
func validateResize(obj, old kinds.Object) field.ErrorList {
	var e check.Errors
	if unsizable := neverResized(old); unsizable != "" {
		e.Forbidden(check.Path{}, unsizable)
		return e.List()
	}
	spec, was := check.Root(obj).Child("spec"), check.Root(old).Child("spec")
	if QOSClass(spec.Map) != QOSClass(was.Map) {
		e.Invalid(spec.Path, QOSClass(spec.Map), "Pod QOS Class may not change as a result of resizing")
	}
	resizedPod(&e, spec, was)
	if !sameContainers(&e, spec, was, "containers") || !sameContainers(&e, spec, was, "initContainers") {
		return e.List()
	}
	for i, c := range spec.Each("initContainers") {
		before := at(was, "initContainers", i)
		nothingRemoved(&e, c.Child("resources"), before.Child("resources"), "resource")
		if !onlyComputeChanged(c, before) {
			e.Forbidden(c.Path, "only cpu and memory resources for init or sidecar containers are mutable")
		}
		if c.Str("restartPolicy") != "Always" && !tree.Equal(c.Map, before.Map) {
			for _, p := range c.Each("resizePolicy") {
				if p.Str("restartPolicy") == "RestartContainer" {
					e.Forbidden(c.Path,
						"non-sidecar init containers with a resize policy of RestartContainer cannot be resized")
				}
			}
		}
	}
	for i, c := range spec.Each("containers") {
		before := at(was, "containers", i)
		nothingRemoved(&e, c.Child("resources"), before.Child("resources"), "resource")
		if !onlyComputeChanged(c, before) {
			e.Forbidden(spec.Path, "only cpu and memory resources are mutable")
		}
	}
	return e.List()
}

// neverResized says why a pod cannot be resized at all; "" if it can.
func neverResized(obj kinds.Object) string {
	if _, mirror := tree.Map(obj, "metadata", "annotations")[mirrorAnnotation]; mirror {
		return "static pods cannot be resized"
	}
	if tree.Str(obj, "spec", "os", "name") == "windows" {
		return "windows pods cannot be resized"
	}
	return ""
}

// resizedPod checks the resources that the containers of a pod have together.
func resizedPod(e *check.Errors, spec, was check.At) {
	if !was.Has("resources") {
		return
	}
	nothingRemoved(e, spec.Child("resources"), was.Child("resources"), "pod-level resource")
	if !tree.Equal(withoutCompute(spec.Child("resources").Map), withoutCompute(was.Child("resources").Map)) {
		e.Forbidden(spec.Path, "only cpu and memory resources are mutable at pod-level")
	}
}

// sameContainers checks that a list has the containers of before, in their order.
func sameContainers(e *check.Errors, spec, was check.At, list string) bool {
	if spec.Len(list) != was.Len(list) {
		e.Forbidden(spec.At(list), list+" may not be added or removed on resize")
		return false
	}
	same := true
	for i, c := range spec.Each(list) {
		if c.Str("name") != at(was, list, i).Str("name") {
			e.Forbidden(c.At("name"), list+" may not be renamed or reordered on resize")
			same = false
		}
	}
	return same
}

func at(spec check.At, list string, i int) check.At {
	return check.At{Map: asMap(tree.List(spec.Map, list)[i])}
}

// nothingRemoved checks that requests and limits are there that were.
func nothingRemoved(e *check.Errors, now, was check.At, what string) {
	for _, kind := range []string{"requests", "limits"} {
		for name := range was.Child(kind).Map {
			if !now.Child(kind).Has(name) {
				e.Forbidden(now.At(kind), fmt.Sprintf("%s %s cannot be removed", what, kind))
				break
			}
		}
	}
}

// onlyComputeChanged says whether two containers differ in how much cpu and memory they get, at most.
func onlyComputeChanged(now, was check.At) bool {
	a, b := tree.CopyMap(now.Map), tree.CopyMap(was.Map)
	a["resources"] = withoutCompute(tree.Map(a, "resources"))
	b["resources"] = withoutCompute(tree.Map(b, "resources"))
	return tree.Equal(a, b)
}

// withoutCompute returns resources without cpu and memory.
func withoutCompute(resources map[string]any) map[string]any {
	out := tree.CopyMap(resources)
	for _, kind := range []string{"requests", "limits"} {
		list := tree.Map(out, kind)
		delete(list, "cpu")
		delete(list, "memory")
		if len(list) == 0 {
			delete(out, kind)
		}
	}
	return out
}
