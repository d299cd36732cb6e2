package pod

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/setpoint-dev/setpoint/kinds"
	"github.com/setpoint-dev/setpoint/kinds/check"
	"github.com/setpoint-dev/setpoint/kinds/tree"
)

// changesMax is how many changed fields a refusal names.
const changesMax = 10

const updatable = "pod updates may not change fields other than `spec.containers[*].image`," +
	"`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to " +
	"existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was " +
	"previously negative)"

func validate(obj kinds.Object) field.ErrorList {
	var e check.Errors
	spec := check.Root(obj).Child("spec")
	annotations(&e, check.Root(obj).Child("metadata"), spec)
	checkSpec(&e, spec, true)
	if spec.Str("serviceAccountName") == "" {
		for _, v := range spec.Each("volumes") {
			for _, s := range v.Child("projected").Each("sources") {
				if s.Has("serviceAccountToken") {
					e.Forbidden(s.At("serviceAccountToken"),
						"must not be specified when serviceAccountName is not set")
				}
			}
		}
	}
	e.NotNegative(spec, "terminationGracePeriodSeconds")
	for _, list := range []string{"containers", "initContainers"} {
		for _, c := range spec.Each(list) {
			imageHasNoSpace(&e, c)
		}
	}
	return e.List()
}

func validateCreate(obj kinds.Object) field.ErrorList {
	var e check.Errors
	spec := check.Root(obj).Child("spec")
	if spec.Len("ephemeralContainers") > 0 {
		e.Forbidden(spec.At("ephemeralContainers"), "cannot be set on create")
	}
	if spec.Str("nodeName") != "" && spec.Len("schedulingGates") > 0 {
		e.Forbidden(spec.At("nodeName"),
			"cannot be set until all schedulingGates have been cleared")
	}
	return e.List()
}

// validateUpdate lets through what may change in a pod that runs: images, a sooner deadline, further
// tolerations, fewer gates; and where a pod that is still gated may go.
func validateUpdate(obj, old kinds.Object) field.ErrorList {
	var e check.Errors
	annotationsKept(&e, check.Root(obj).Child("metadata"), check.Root(old).Child("metadata"))
	spec, oldSpec := check.Root(obj).Child("spec"), check.Root(old).Child("spec")
	for _, list := range []string{"containers", "initContainers"} {
		if spec.Len(list) != oldSpec.Len(list) {
			e.Forbidden(spec.At(list), "pod updates may not add or remove containers")
			return e.List()
		}
	}
	if !deadline(&e, spec, oldSpec) {
		return e.List()
	}
	tolerationsAdded(&e, spec, oldSpec)
	gatesRemoved(&e, spec, oldSpec)
	if tree.Equal(spec.Map, oldSpec.Map) {
		return e.List()
	}
	rest := withoutUpdatable(spec.Map, oldSpec.Map)
	if oldSpec.Len("schedulingGates") > 0 {
		gatedChanges(&e, spec, oldSpec, rest)
	}
	if changed := tree.Diff(oldSpec.Map, rest, "spec", changesMax); len(changed) > 0 {
		e.Forbidden(spec.Path, updatable+"; changed: "+strings.Join(changed, ", "))
	}
	return e.List()
}

// deadline checks that a deadline was set or came nearer; it returns false if nothing further need
// be said.
func deadline(e *check.Errors, spec, old check.At) bool {
	path, n := spec.At("activeDeadlineSeconds"), spec.Int("activeDeadlineSeconds")
	switch {
	case !spec.Has("activeDeadlineSeconds"):
		if old.Has("activeDeadlineSeconds") {
			e.Invalid(path, nil, "must not update from a positive integer to nil value")
		}
	case n < 0 || n > math.MaxInt32:
		e.Invalid(path, n, validation.InclusiveRangeError(0, math.MaxInt32))
		return false
	case old.Has("activeDeadlineSeconds") && old.Int("activeDeadlineSeconds") < n:
		e.Invalid(path, n, "must be less than or equal to previous value")
		return false
	}
	return true
}

// tolerationsAdded checks that none is missing or was changed, but for its seconds.
func tolerationsAdded(e *check.Errors, spec, old check.At) {
	for _, o := range old.Each("tolerations") {
		kept := false
		for _, n := range spec.Each("tolerations") {
			same := maps.Clone(o.Map)
			tree.Move("tolerationSeconds", n.Map, same)
			kept = kept || tree.Equal(same, n.Map)
		}
		if !kept {
			e.Forbidden(spec.At("tolerations"),
				"existing toleration can not be modified except its tolerationSeconds")
			return
		}
	}
}

func gatesRemoved(e *check.Errors, spec, old check.At) {
	had := sets.Set[string]{}
	for _, g := range old.Each("schedulingGates") {
		had.Insert(g.Str("name"))
	}
	for _, g := range spec.Each("schedulingGates") {
		if name := g.Str("name"); !had.Has(name) {
			e.Forbidden(g.At("name"),
				fmt.Sprintf("only deletion is allowed, but found new scheduling gate '%s'", name))
		}
	}
}

// withoutUpdatable returns the new spec with the old one's values where they may change.
func withoutUpdatable(spec, old map[string]any) map[string]any {
	rest := maps.Clone(spec)
	for _, name := range []string{"activeDeadlineSeconds", "tolerations", "schedulingGates"} {
		tree.Move(name, old, rest)
	}
	for _, list := range []string{"containers", "initContainers"} {
		was := tree.List(old, list)
		now := slices.Clone(tree.List(spec, list))
		for i := range now {
			c, ok := now[i].(map[string]any)
			o, okOld := was[i].(map[string]any)
			if ok && okOld {
				c = maps.Clone(c)
				tree.Move("image", o, c)
				now[i] = c
			}
		}
		if now != nil {
			rest[list] = now
		}
	}
	if tree.Int(old, "terminationGracePeriodSeconds") < 0 && tree.Int(rest, "terminationGracePeriodSeconds") == 1 {
		tree.Move("terminationGracePeriodSeconds", old, rest)
	}
	return rest
}

// gatedChanges lets a pod that nobody schedules yet become choosier about nodes. What it lets
// through it puts back in rest.
func gatedChanges(e *check.Errors, spec, old check.At, rest map[string]any) {
	was := tree.Map(old.Map, "nodeSelector")
	for k, v := range was {
		if !tree.Equal(tree.Get(spec.Map, "nodeSelector", k), v) {
			e.Invalid(spec.At("nodeSelector"), spec.Get("nodeSelector"),
				"only additions to spec.nodeSelector are allowed (no mutations or deletions)")
			break
		}
	}
	tree.Move("nodeSelector", old.Map, rest)

	nodes := tree.Map(spec.Map, "affinity", "nodeAffinity")
	oldNodes := tree.Map(old.Map, "affinity", "nodeAffinity")
	if tree.Equal(nodes, oldNodes) {
		return
	}
	nodeTermsOnlyAdded(e, spec.Child("affinity").Child("nodeAffinity").Child(required),
		tree.List(oldNodes, required, "nodeSelectorTerms"))
	affinity := maps.Clone(tree.Map(spec.Map, "affinity"))
	if affinity == nil {
		affinity = map[string]any{}
	}
	tree.Move("nodeAffinity", tree.Map(old.Map, "affinity"), affinity)
	if len(affinity) == 0 && !old.Has("affinity") {
		delete(rest, "affinity")
	} else {
		rest["affinity"] = affinity
	}
}

func nodeTermsOnlyAdded(e *check.Errors, selector check.At, old []any) {
	path, terms := selector.At("nodeSelectorTerms"), tree.List(selector.Map, "nodeSelectorTerms")
	if len(old) > 0 && len(old) != len(terms) {
		e.Invalid(path, terms,
			"no additions/deletions to non-empty NodeSelectorTerms list are allowed")
		return
	}
	for i := range old {
		was, _ := old[i].(map[string]any)
		now, _ := terms[i].(map[string]any)
		if !termOnlyGrew(now, was) {
			e.Invalid(path.Index(i), now, "only additions are allowed (no mutations or deletions)")
		}
	}
}

// termOnlyGrew says whether a term asks for all it did; an empty one, which matches nothing, cannot
// grow.
func termOnlyGrew(now, was map[string]any) bool {
	grew, empty := false, true
	for _, name := range []string{"matchExpressions", "matchFields"} {
		n, w := tree.List(now, name), tree.List(was, name)
		if len(n) < len(w) || !tree.Equal(n[:len(w)], w) {
			return false
		}
		grew = grew || len(n) > len(w)
		empty = empty && len(w) == 0
	}
	return !(empty && grew)
}

// annotationsKept checks those that say how a pod came to be.
func annotationsKept(e *check.Errors, meta, old check.At) {
	now, was := meta.StringMap("annotations"), old.StringMap("annotations")
	path := meta.At("annotations")
	for _, key := range slices.Sorted(maps.Keys(was)) {
		if v, ok := now[key]; ok && v == was[key] {
			continue
		}
		switch {
		case strings.HasPrefix(key, appArmorAnnotation):
			e.Forbidden(path.Key(key), "may not remove or update AppArmor annotations")
		case key == mirrorAnnotation:
			e.Forbidden(path.Key(key), "may not remove or update mirror pod annotation")
		}
	}
	for _, key := range slices.Sorted(maps.Keys(now)) {
		if _, ok := was[key]; ok {
			continue
		}
		switch {
		case strings.HasPrefix(key, appArmorAnnotation):
			e.Forbidden(path.Key(key), "may not add AppArmor annotations")
		case key == mirrorAnnotation:
			e.Forbidden(path.Key(key), "may not add mirror pod annotation")
		}
	}
}

func validateEphemeralContainersUpdate(obj, old kinds.Object) field.ErrorList {
	var e check.Errors
	spec := check.Root(obj).Child("spec")
	if _, mirror := tree.Map(obj, "metadata", "annotations")[mirrorAnnotation]; mirror {
		e.Forbidden(check.Path{}, "static pods do not support ephemeral containers")
	}
	now := tree.List(obj, "spec", "ephemeralContainers")
	for _, was := range tree.Maps(old, "spec", "ephemeralContainers") {
		name := tree.Str(was, "name")
		switch c := tree.Find(now, "name", name); {
		case c == nil:
			e.Forbidden(spec.At("ephemeralContainers"),
				fmt.Sprintf("existing ephemeral containers %q may not be removed", name))
		case !tree.Equal(c, was):
			e.Forbidden(spec.At("ephemeralContainers"),
				fmt.Sprintf("existing ephemeral containers %q may not be changed", name))
		}
	}
	return e.List()
}
