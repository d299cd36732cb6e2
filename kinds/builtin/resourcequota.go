package builtin

import (
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/setpoint-dev/setpoint/kinds"
	"github.com/setpoint-dev/setpoint/kinds/builtin/pod"
	"github.com/setpoint-dev/setpoint/kinds/check"
	"github.com/setpoint-dev/setpoint/kinds/schema"
	"github.com/setpoint-dev/setpoint/kinds/table"
	"github.com/setpoint-dev/setpoint/kinds/tree"
)

func resourceQuota() *kinds.Kind {
	return &kinds.Kind{
		Version: "v1", Kind: "ResourceQuota", Resource: "resourcequotas", Singular: "resourcequota",
		ShortNames: []string{"quota"}, Namespaced: true,
		Schema: schema.Builtin("io.k8s.api.core.v1.ResourceQuota"),
		Columns: []kinds.Column{
			table.Name(),
			table.Column("Request", "Request represents a minimum amount of cpu/memory that a container may consume.",
				quotaCell(false)),
			table.Column("Limit", "Limits control the maximum amount of cpu/memory that a container may use independent of contention on the node.",
				quotaCell(true)),
			table.Age(),
		},
		Status:             true,
		ReturnDeleted:      true,
		DefaultPropagation: "Background",
		Strategy: kinds.Strategy{
			PrepareForCreate:       emptyStatus(map[string]any{}),
			PrepareForUpdate:       keepStatus,
			PrepareForStatusUpdate: keepSpec,
			Validate:               validateQuota,
			ValidateUpdate:         scopesKept,
			ValidateStatusUpdate: func(obj, _ kinds.Object) field.ErrorList {
				var e check.Errors
				status := check.Root(obj).Child("status")
				quotaAmounts(&e, status, "hard")
				quotaAmounts(&e, status, "used")
				return e.List()
			},
		},
	}
}

// quotaCell prints what is used of what there is, of limits or of the rest: "pods: 1/10".
func quotaCell(limits bool) func(kinds.Object, time.Time) any {
	return func(obj kinds.Object, _ time.Time) any {
		hard := tree.Map(obj, "status", "hard")
		var words []string
		for _, name := range slices.Sorted(maps.Keys(hard)) {
			if strings.HasPrefix(name, "limits.") == limits {
				used := table.Or(tree.Str(tree.Map(obj, "status", "used"), name), "0")
				words = append(words, name+": "+used+"/"+tree.Str(hard, name))
			}
		}
		return strings.Join(words, ", ")
	}
}

// What a scope can be about: pods, what they compute with, and claims.
var (
	computeQuotas = []string{"cpu", "memory", "limits.cpu", "limits.memory", "requests.cpu", "requests.memory"}
	claimQuotas   = []string{"persistentvolumeclaims", "requests.storage"}
	otherQuotas   = []string{
		"ephemeral-storage", "requests.ephemeral-storage", "limits.ephemeral-storage", "pods", "resourcequotas",
		"services", "replicationcontrollers", "secrets", "configmaps", "services.nodeports",
		"services.loadbalancers",
	}
)

// quotaScopes are the known scopes, and what of those each can be about.
var quotaScopes = map[string][]string{
	"BestEffort":                {"pods"},
	"NotBestEffort":             append([]string{"pods"}, computeQuotas...),
	"Terminating":               append([]string{"pods"}, computeQuotas...),
	"NotTerminating":            append([]string{"pods"}, computeQuotas...),
	"PriorityClass":             append([]string{"pods"}, computeQuotas...),
	"CrossNamespacePodAffinity": append([]string{"pods"}, computeQuotas...),
	"VolumeAttributesClass":     claimQuotas,
}

// oppositeScopes are pairs of which no pod is in both.
var oppositeScopes = [][2]string{{"BestEffort", "NotBestEffort"}, {"Terminating", "NotTerminating"}}

func isStandardQuota(name string) bool {
	return slices.Contains(computeQuotas, name) || slices.Contains(claimQuotas, name) ||
		slices.Contains(otherQuotas, name) || strings.HasPrefix(name, "hugepages-") ||
		strings.HasPrefix(name, "requests.hugepages-")
}

func validateQuota(obj kinds.Object) field.ErrorList {
	var e check.Errors
	spec := check.Root(obj).Child("spec")
	quotaAmounts(&e, spec, "hard")
	scopes := spec.Strings("scopes")
	for _, scope := range scopes {
		if _, ok := quotaScopes[scope]; !ok {
			e.Invalid(spec.At("scopes"), scopes, "unsupported scope")
		}
		if misplaced(spec, scope) {
			e.Invalid(spec.At("scopes"), scopes, "unsupported scope applied to resource")
		}
	}
	if conflict(scopes) {
		e.Invalid(spec.At("scopes"), scopes, "conflicting scopes")
	}
	if spec.Has("scopeSelector") {
		scopeSelector(&e, spec)
	}
	return e.List()
}

func quotaAmounts(e *check.Errors, a check.At, name string) {
	list := a.Child(name)
	for _, resource := range slices.Sorted(maps.Keys(list.Map)) {
		path := list.Path.Key(resource)
		pod.CheckResourceName(e, path, resource)
		if !strings.Contains(resource, "/") && !isStandardQuota(resource) {
			e.Invalid(path, resource, "must be a standard resource for quota")
		}
		pod.CheckAmount(e, path, resource, pod.Quantity(list.Get(resource)))
	}
}

// misplaced says whether a quota is of resources that a scope cannot be about.
func misplaced(spec check.At, scope string) bool {
	about, known := quotaScopes[scope]
	for resource := range tree.Map(spec.Map, "hard") {
		if known && isStandardQuota(resource) && !slices.Contains(about, resource) {
			return true
		}
	}
	return false
}

func conflict(scopes []string) bool {
	return slices.ContainsFunc(oppositeScopes, func(pair [2]string) bool {
		return slices.Contains(scopes, pair[0]) && slices.Contains(scopes, pair[1])
	})
}

// scopeSelectorValue is how a selector of scopes looks in a message.
func scopeSelectorValue(selector check.At) any {
	type expression struct {
		ScopeName, Operator string
		Values              []string
	}
	out := struct{ MatchExpressions []expression }{}
	for _, e := range selector.Each("matchExpressions") {
		out.MatchExpressions = append(out.MatchExpressions,
			expression{e.Str("scopeName"), e.Str("operator"), e.Strings("values")})
	}
	return out
}

// scopeSelector checks the scopes that are chosen by an expression. Upstream's paths leave out the index.
func scopeSelector(e *check.Errors, spec check.At) {
	selector := spec.Child("scopeSelector")
	at := selector.At("matchExpressions")
	var scopes []string
	for _, expr := range selector.Each("matchExpressions") {
		scope, op, values := expr.Str("scopeName"), expr.Str("operator"), expr.Strings("values")
		scopes = append(scopes, scope)
		if _, ok := quotaScopes[scope]; !ok {
			e.Invalid(at.Child("scopeName"), scope, "unsupported scope")
		}
		if misplaced(spec, scope) {
			e.Invalid(at, scopeSelectorValue(selector), "unsupported scope applied to resource")
		}
		switch scope {
		case "BestEffort", "NotBestEffort", "Terminating", "NotTerminating", "CrossNamespacePodAffinity":
			if op != "Exists" {
				e.Invalid(at.Child("operator"), op, "must be 'Exists' when scope is any of ResourceQuotaScopeTerminating, ResourceQuotaScopeNotTerminating, ResourceQuotaScopeBestEffort, ResourceQuotaScopeNotBestEffort or ResourceQuotaScopeCrossNamespacePodAffinity")
			}
		}
		switch op {
		case "In", "NotIn":
			if len(values) == 0 {
				e.Required(at.Child("values"), "must be at least one value when `operator` is 'In' or 'NotIn' for scope selector")
			}
		case "Exists", "DoesNotExist":
			if len(values) > 0 {
				e.Invalid(at.Child("values"), values, "must be no value when `operator` is 'Exist' or 'DoesNotExist' for scope selector")
			}
		default:
			e.Invalid(at.Child("operator"), op, "not a valid selector operator")
		}
	}
	if conflict(scopes) {
		e.Invalid(at, spec.Strings("scopes"), "conflicting scopes")
	}
}

// scopesKept checks that a quota goes on counting the same objects.
func scopesKept(obj, old kinds.Object) field.ErrorList {
	var e check.Errors
	set := func(o kinds.Object) []string {
		list := tree.Strings(o, "spec", "scopes")
		slices.Sort(list)
		return slices.Compact(list)
	}
	if !slices.Equal(set(obj), set(old)) {
		e.Invalid(check.NewPath("spec", "scopes"), tree.Strings(obj, "spec", "scopes"), check.Immutable)
	}
	return e.List()
}
