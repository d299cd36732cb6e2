package admission

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	podresources "k8s.io/component-helpers/resource"

	"github.com/setpoint-dev/setpoint/kinds"
	"github.com/setpoint-dev/setpoint/kinds/builtin/pod"
	"github.com/setpoint-dev/setpoint/kinds/tree"
)

// LimitRanges gives containers what the limit ranges of their namespace say of those that say nothing,
// and refuses pods and claims that are not within them.
type LimitRanges struct{ read cache[kinds.Object] }

// limitsSet is the annotation that says what a container was given.
const limitsSet = "kubernetes.io/limit-ranger"

func (l *LimitRanges) of(a *Attributes) ([]kinds.Object, error) {
	return l.read.list(a.State, kindOf(a.State, "", "v1", "LimitRange"), a.Namespace, keep)
}

// Mutate gives the containers of a pod that is new or resized their defaults.
func (l *LimitRanges) Mutate(_ context.Context, a *Attributes) error {
	if a.Object == nil || !sizesPod(a) {
		return nil
	}
	all, err := l.of(a)
	if err != nil {
		return err
	}
	for _, r := range all {
		defaultResources(a.Object, r)
	}
	return nil
}

// sizesPod says whether a write is about what a pod may use.
func sizesPod(a *Attributes) bool {
	return a.Kind.Group == "" && a.Kind.Kind == "Pod" &&
		(a.Operation == Create && a.Subresource == "" || a.Subresource == "resize")
}

func defaultResources(obj, limitRange kinds.Object) {
	requests, limits := map[string]any{}, map[string]any{}
	for _, limit := range tree.Maps(limitRange, "spec", "limits") {
		if tree.Str(limit, "type") == "Container" {
			maps.Copy(requests, tree.Map(limit, "defaultRequest"))
			maps.Copy(limits, tree.Map(limit, "default"))
		}
	}
	var said []string
	for _, list := range []struct{ field, name string }{{"containers", "container"}, {"initContainers", "init container"}} {
		for _, c := range tree.Maps(obj, "spec", list.field) {
			for _, part := range []struct {
				field, name string
				values      map[string]any
			}{{"requests", "request", requests}, {"limits", "limit", limits}} {
				if set := setMissing(c, part.field, part.values); len(set) > 0 {
					said = append(said, fmt.Sprintf("%s %s for %s %s",
						strings.Join(set, ", "), part.name, list.name, tree.Str(c, "name")))
				}
			}
		}
	}
	if len(said) > 0 {
		text := "LimitRanger plugin set: " + strings.Join(said, "; ")
		tree.Set(obj, text, "metadata", "annotations", limitsSet)
	}
}

// setMissing sets what a container does not say of its resources, and returns the names.
func setMissing(container map[string]any, field string, values map[string]any) (set []string) {
	for _, name := range slices.Sorted(maps.Keys(values)) {
		if !tree.Has(container, "resources", field, name) {
			tree.Set(container, values[name], "resources", field, name)
			set = append(set, name)
		}
	}
	return set
}

// Validate refuses what is not within the limits.
func (l *LimitRanges) Validate(_ context.Context, a *Attributes) error {
	claim := a.is("", "PersistentVolumeClaim")
	if a.Object == nil || !claim && !sizesPod(a) || tree.Has(a.Old, "metadata", "deletionTimestamp") {
		return nil
	}
	all, err := l.of(a)
	if err != nil {
		return err
	}
	for _, r := range all {
		var errs []error
		for _, limit := range tree.Maps(r, "spec", "limits") {
			kind := tree.Str(limit, "type")
			switch {
			case claim && kind == "PersistentVolumeClaim":
				errs = append(errs, claimWithin(limit, a.Object)...)
			case sizesPod(a) && kind == "Container":
				for _, list := range []string{"containers", "initContainers"} {
					for _, c := range tree.Maps(a.Object, "spec", list) {
						errs = append(errs, within(kind, limit, amountsOf(c, "requests"), amountsOf(c, "limits"))...)
					}
				}
			case sizesPod(a) && kind == "Pod":
				errs = append(errs, podWithin(limit, a.Object)...)
			}
		}
		if len(errs) > 0 {
			return a.forbid("%w", utilerrors.NewAggregate(errs))
		}
	}
	return nil
}

type resources map[string]resource.Quantity

func amountsOf(obj map[string]any, field string) resources {
	out := resources{}
	for name, v := range tree.Map(obj, "resources", field) {
		out[name] = pod.Quantity(v)
	}
	return out
}

func podWithin(limit map[string]any, obj kinds.Object) []error {
	var p corev1.Pod
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(obj, &p); err != nil {
		return []error{err}
	}
	opts := podresources.PodResourcesOptions{ExcludeOverhead: true}
	return within("Pod", limit, plain(podresources.PodRequests(&p, opts)), plain(podresources.PodLimits(&p, opts)))
}

func plain(list corev1.ResourceList) resources {
	out := resources{}
	for name, q := range list {
		out[string(name)] = q
	}
	return out
}

// claimWithin checks a claim, which has requests only.
func claimWithin(limit map[string]any, obj kinds.Object) (errs []error) {
	const kind = "PersistentVolumeClaim"
	requests := amountsOf(tree.Map(obj, "spec"), "requests")
	for name, least := range each(limit, "min") {
		errs = appendError(errs, atLeast(kind, name, least, requests, nil))
	}
	for name, most := range each(limit, "max") {
		asked, ok := requests[name]
		switch {
		case !ok:
			errs = append(errs, fmt.Errorf("maximum %s usage per %s is %s.  No request is specified", name, kind, &most))
		case asked.Cmp(most) > 0:
			errs = append(errs, fmt.Errorf("maximum %s usage per %s is %s, but request is %s", name, kind, &most, &asked))
		}
	}
	return errs
}

// within checks requests and limits against the bounds of a limit, in order of the resources' names.
func within(kind string, limit map[string]any, requests, limits resources) (errs []error) {
	for name, least := range each(limit, "min") {
		errs = appendError(errs, atLeast(kind, name, least, requests, limits))
	}
	for name, most := range each(limit, "max") {
		errs = appendError(errs, atMost(kind, name, most, requests, limits))
	}
	for name, ratio := range each(limit, "maxLimitRequestRatio") {
		errs = appendError(errs, inRatio(kind, name, ratio, requests, limits))
	}
	return errs
}

func appendError(errs []error, err error) []error {
	if err == nil {
		return errs
	}
	return append(errs, err)
}

// each goes through a list of amounts in order of their names.
func each(limit map[string]any, field string) func(yield func(string, resource.Quantity) bool) {
	return func(yield func(string, resource.Quantity) bool) {
		list := tree.Map(limit, field)
		for _, name := range slices.Sorted(maps.Keys(list)) {
			if !yield(name, pod.Quantity(list[name])) {
				return
			}
		}
	}
}

func atLeast(kind, name string, least resource.Quantity, requests, limits resources) error {
	asked, ok := requests[name]
	limit, limited := limits[name]
	switch {
	case !ok:
		return fmt.Errorf("minimum %s usage per %s is %s.  No request is specified", name, kind, &least)
	case asked.Cmp(least) < 0:
		return fmt.Errorf("minimum %s usage per %s is %s, but request is %s", name, kind, &least, &asked)
	case limited && limit.Cmp(least) < 0:
		return fmt.Errorf("minimum %s usage per %s is %s, but limit is %s", name, kind, &least, &limit)
	}
	return nil
}

func atMost(kind, name string, most resource.Quantity, requests, limits resources) error {
	asked, ok := requests[name]
	limit, limited := limits[name]
	switch {
	case !limited:
		return fmt.Errorf("maximum %s usage per %s is %s.  No limit is specified", name, kind, &most)
	case limit.Cmp(most) > 0:
		return fmt.Errorf("maximum %s usage per %s is %s, but limit is %s", name, kind, &most, &limit)
	case ok && asked.Cmp(most) > 0:
		return fmt.Errorf("maximum %s usage per %s is %s, but request is %s", name, kind, &most, &asked)
	}
	return nil
}

func inRatio(kind, name string, most resource.Quantity, requests, limits resources) error {
	asked, limit := requests[name], limits[name]
	text := fmt.Sprintf("%s max limit to request ratio per %s is %s, but ", name, kind, &most)
	switch {
	case asked.IsZero():
		return fmt.Errorf("%sno request is specified or request is 0", text)
	case limit.IsZero():
		return fmt.Errorf("%sno limit is specified or limit is 0", text)
	}
	ratio := limit.AsApproximateFloat64() / asked.AsApproximateFloat64()
	if ratio > most.AsApproximateFloat64() {
		return fmt.Errorf("%sprovided ratio is %f", text, ratio)
	}
	return nil
}
