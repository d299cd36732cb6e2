package builtin

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/setpoint-dev/setpoint/kinds"
	"github.com/setpoint-dev/setpoint/kinds/builtin/pod"
	"github.com/setpoint-dev/setpoint/kinds/check"
	"github.com/setpoint-dev/setpoint/kinds/schema"
	"github.com/setpoint-dev/setpoint/kinds/tree"
)

func limitRange() *kinds.Kind {
	return &kinds.Kind{
		Version: "v1", Kind: "LimitRange", Resource: "limitranges", Singular: "limitrange",
		ShortNames: []string{"limits"}, Namespaced: true,
		Schema:             schema.Builtin("io.k8s.api.core.v1.LimitRange"),
		CreateOnUpdate:     true,
		NullRows:           true,
		DefaultPropagation: "Background",
		Strategy: kinds.Strategy{
			Default:          defaultLimitRange,
			PrepareForCreate: nameLimitRange,
			Validate:         validateLimitRange,
		},
	}
}

// nameLimitRange names one that has no name by its uid.
func nameLimitRange(_ *kinds.Env, obj kinds.Object) error {
	if tree.Str(obj, "metadata", "name") == "" {
		tree.Set(obj, tree.Str(obj, "metadata", "uid"), "metadata", "name")
	}
	return nil
}

// defaultLimitRange makes what a container gets and what is set aside for it from each other and from
// the bounds.
func defaultLimitRange(obj kinds.Object) {
	fill := func(to, from map[string]any) {
		for name, amount := range from {
			tree.Default(to, amount, name)
		}
	}
	for _, limit := range tree.Maps(obj, "spec", "limits") {
		if tree.Str(limit, "type") != "Container" {
			continue
		}
		limits, requests := map[string]any{}, map[string]any{}
		fill(limits, tree.Map(limit, "default"))
		fill(limits, tree.Map(limit, "max"))
		fill(requests, tree.Map(limit, "defaultRequest"))
		fill(requests, limits)
		fill(requests, tree.Map(limit, "min"))
		for name, list := range map[string]map[string]any{"default": limits, "defaultRequest": requests} {
			if len(list) > 0 {
				limit[name] = list
			}
		}
	}
}

// limitLists are the lists of amounts that a limit has.
var limitLists = []string{"max", "min", "default", "defaultRequest", "maxLimitRequestRatio"}

func validateLimitRange(obj kinds.Object) field.ErrorList {
	var e check.Errors
	seen := map[string]bool{}
	for _, limit := range check.Root(obj).Child("spec").Each("limits") {
		kind := limit.Str("type")
		limitType(&e, limit.At("type"), kind)
		if seen[kind] {
			e.Duplicate(limit.At("type"), kind)
		}
		seen[kind] = true
		for _, name := range limitLists {
			limitNames(&e, limit, name)
		}
		if kind == "PersistentVolumeClaim" && !tree.Has(limit.Map, "min", "storage") && !tree.Has(limit.Map, "max", "storage") {
			e.Required(limit.At("limits"), "either minimum or maximum storage value is required, but neither was provided")
		}
		limitAmounts(&e, limit)
	}
	return e.List()
}

func limitType(e *check.Errors, path check.Path, name string) {
	if msgs := validation.IsQualifiedName(name); len(msgs) > 0 {
		e.Messages(path, name, msgs)
		return
	}
	if !strings.Contains(name, "/") && !slices.Contains([]string{"Pod", "Container", "PersistentVolumeClaim"}, name) {
		e.Invalid(path, name, "must be a standard limit type or fully qualified")
	}
}

// limitNames checks the names of the resources in a list.
func limitNames(e *check.Errors, limit check.At, name string) {
	list, kind := limit.Child(name), limit.Str("type")
	if kind == "Pod" && len(list.Map) > 0 && strings.HasPrefix(name, "default") {
		e.Forbidden(list.Path, "may not be specified when `type` is 'Pod'")
		return
	}
	for _, resource := range slices.Sorted(maps.Keys(list.Map)) {
		if kind == "Pod" || kind == "Container" {
			pod.CheckContainerResourceName(e, list.Path.Key(resource), resource)
		} else {
			pod.CheckResourceName(e, list.Path.Key(resource), resource)
		}
	}
}

// amounts are those of one resource in the lists of a limit; nil where it is not in one.
type amounts struct{ min, max, limit, request, ratio *resource.Quantity }

func limitAmounts(e *check.Errors, limit check.At) {
	names := map[string]bool{}
	for _, list := range limitLists {
		for name := range tree.Map(limit.Map, list) {
			names[name] = true
		}
	}
	of := func(list, name string) *resource.Quantity {
		if limit.Str("type") == "Pod" && strings.HasPrefix(list, "default") {
			return nil
		}
		v, ok := tree.Map(limit.Map, list)[name]
		if !ok {
			return nil
		}
		q := pod.Quantity(v)
		return &q
	}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		a := amounts{of("min", name), of("max", name), of("default", name), of("defaultRequest", name), of("maxLimitRequestRatio", name)}
		a.inOrder(e, limit, name)
		a.ratioHolds(e, limit.At("maxLimitRequestRatio").Key(name))
		if !pod.Overcommits(name) && a.limit != nil && a.request != nil && a.limit.Cmp(*a.request) != 0 {
			e.Invalid(limit.At("defaultRequest").Key(name), a.request.String(),
				fmt.Sprintf("default value %s must equal to defaultRequest value %s in %s", a.limit, a.request, name))
		}
	}
}

// inOrder checks that min ≤ request ≤ limit ≤ max, of those that there are.
func (a amounts) inOrder(e *check.Errors, limit check.At, name string) {
	for _, rule := range []struct {
		less, more, shown *resource.Quantity
		list, detail      string
	}{
		{a.min, a.max, a.min, "min", "min value %s is greater than max value %s"},
		{a.min, a.request, a.request, "defaultRequest", "min value %s is greater than default request value %s"},
		{a.request, a.max, a.request, "defaultRequest", "default request value %s is greater than max value %s"},
		{a.request, a.limit, a.request, "defaultRequest", "default request value %s is greater than default limit value %s"},
		{a.min, a.limit, a.min, "default", "min value %s is greater than default value %s"},
		{a.limit, a.max, a.max, "default", "default value %s is greater than max value %s"},
	} {
		if rule.less != nil && rule.more != nil && rule.less.Cmp(*rule.more) > 0 {
			e.Invalid(limit.At(rule.list).Key(name), rule.shown.String(), fmt.Sprintf(rule.detail, rule.less, rule.more))
		}
	}
}

// ratioHolds checks that the bounds let a limit be as many times the request as is allowed.
func (a amounts) ratioHolds(e *check.Errors, path check.Path) {
	if a.ratio == nil {
		return
	}
	if a.ratio.Cmp(resource.MustParse("1")) < 0 {
		e.Invalid(path, a.ratio.String(), fmt.Sprintf("ratio %s is less than 1", a.ratio))
	}
	if a.min == nil || a.max == nil {
		return
	}
	if most := a.max.AsApproximateFloat64() / a.min.AsApproximateFloat64(); a.ratio.AsApproximateFloat64() > most {
		e.Invalid(path, a.ratio.String(), fmt.Sprintf("ratio %s is greater than max/min = %f", a.ratio, most))
	}
}
