package pod

import (
	"fmt"
	"slices"
	"strings"

	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/setpoint-dev/setpoint/kinds/check"
)

const (
	required  = "requiredDuringSchedulingIgnoredDuringExecution"
	preferred = "preferredDuringSchedulingIgnoredDuringExecution"

	badOperator = "not a valid selector operator"
)

// affinity checks what a pod says about nodes and other pods near it.
func affinity(e *check.Errors, spec check.At) {
	a := spec.Child("affinity")
	if node := a.Child("nodeAffinity"); node.Exists() {
		if sel := node.Child(required); sel.Exists() {
			CheckNodeSelector(e, sel)
		}
		for _, p := range node.Each(preferred) {
			weight(e, p)
			nodeTerm(e, p.Child("preference"), false)
		}
	}
	for _, name := range []string{"podAffinity", "podAntiAffinity"} {
		pods := a.Child(name)
		for _, term := range pods.Each(required) {
			podTerm(e, term)
		}
		for _, p := range pods.Each(preferred) {
			weight(e, p)
			podTerm(e, p.Child("podAffinityTerm"))
		}
	}
}

// CheckNodeSelector checks a selector of nodes at its place.
func CheckNodeSelector(e *check.Errors, sel check.At) {
	if sel.Len("nodeSelectorTerms") == 0 {
		e.Required(sel.At("nodeSelectorTerms"), "must have at least one node selector term")
	}
	for _, term := range sel.Each("nodeSelectorTerms") {
		nodeTerm(e, term, true)
	}
}

func weight(e *check.Errors, p check.At) {
	if n := p.Int("weight"); n < 1 || n > 100 {
		e.Invalid(p.At("weight"), n, "must be in the range 1-100")
	}
}

// nodeTerm checks a term of a node selector; the values of labels are not checked in a preference,
// which does no harm if nothing matches it.
func nodeTerm(e *check.Errors, term check.At, checkValues bool) {
	for _, r := range term.Each("matchExpressions") {
		nodeRequirement(e, r, checkValues)
	}
	for _, r := range term.Each("matchFields") {
		if op := r.Str("operator"); op != "In" && op != "NotIn" {
			e.Invalid(r.At("operator"), op, badOperator)
		} else if r.Len("values") != 1 {
			e.Required(r.At("values"),
				"must be only one value when `operator` is 'In' or 'NotIn' for node field selector")
		}
		if key := r.Str("key"); key != "metadata.name" {
			e.Invalid(r.At("key"), key, "not a valid field selector key")
			continue
		}
		for i, v := range r.Strings("values") {
			e.Messages(r.At("values").Index(i), v, apivalidation.NameIsDNSSubdomain(v, false))
		}
	}
}

func nodeRequirement(e *check.Errors, r check.At, checkValues bool) {
	n, path := r.Len("values"), r.At("values")
	switch op := r.Str("operator"); op {
	case "In", "NotIn":
		if n == 0 {
			e.Required(path, "must be specified when `operator` is 'In' or 'NotIn'")
		}
	case "Exists", "DoesNotExist":
		if n > 0 {
			e.Forbidden(path, "may not be specified when `operator` is 'Exists' or 'DoesNotExist'")
		}
	case "Gt", "Lt":
		if n != 1 {
			e.Required(path, "must be specified single value when `operator` is 'Lt' or 'Gt'")
		}
	default:
		e.Invalid(r.At("operator"), op, badOperator)
	}
	e.QualifiedName(r.At("key"), r.Str("key"))
	if checkValues {
		for i, v := range r.Strings("values") {
			e.Messages(path.Index(i), v, validation.IsValidLabelValue(v))
		}
	}
}

func podTerm(e *check.Errors, term check.At) {
	e.LabelSelector(term, "labelSelector")
	e.LabelSelector(term, "namespaceSelector")
	for _, name := range term.Strings("namespaces") {
		e.Messages(term.At("namespace"), name, apivalidation.ValidateNamespaceName(name, false))
	}
	matchLabelKeys(e, term)
	key := term.Str("topologyKey")
	if key == "" {
		e.Required(term.At("topologyKey"), "can not be empty")
	}
	e.QualifiedName(term.At("topologyKey"), key)
}

// matchLabelKeys checks the labels whose values are taken from the pod itself: they need a selector
// to be added to, must not be in it, and must not be asked for both ways.
func matchLabelKeys(e *check.Errors, term check.At) {
	selector := check.LabelSelector(term.Child("labelSelector").Map)
	for _, field := range []string{"matchLabelKeys", "mismatchLabelKeys"} {
		keys := term.Strings(field)
		if len(keys) > 0 && selector == nil {
			e.Forbidden(term.At(field), "must not be specified when labelSelector is not set")
			continue
		}
		for i, key := range keys {
			e.QualifiedName(term.At(field).Index(i), key)
		}
	}
	match := term.Strings("matchLabelKeys")
	if selector != nil && len(match) > 0 {
		selected := sets.KeySet(selector.MatchLabels)
		for _, expr := range selector.MatchExpressions {
			for i, key := range match {
				if key == expr.Key && selected.Has(key) {
					e.Invalid(term.Path.Index(i), key,
						"exists in both matchLabelKeys and labelSelector")
				}
			}
			selected.Insert(expr.Key)
		}
	}
	mismatch := sets.New(term.Strings("mismatchLabelKeys")...)
	for i, key := range match {
		if mismatch.Has(key) {
			e.Invalid(term.At("matchLabelKeys").Index(i), key,
				"exists in both matchLabelKeys and mismatchLabelKeys")
		}
	}
}

// tolerations checks which taints a pod puts up with.
func tolerations(e *check.Errors, spec check.At) {
	for _, t := range spec.Each("tolerations") {
		key, op, value, effect := t.Str("key"), t.Str("operator"), t.Str("value"), t.Str("effect")
		if key != "" {
			e.QualifiedName(t.At("key"), key)
		}
		if key == "" && op != "Exists" {
			e.Invalid(t.At("operator"), op,
				"operator must be Exists when `key` is empty, which means \"match all values and all keys\"")
		}
		if t.Has("tolerationSeconds") && effect != "NoExecute" {
			e.Invalid(t.At("effect"), effect,
				"effect must be 'NoExecute' when `tolerationSeconds` is set")
		}
		switch op {
		case "", "Equal":
			if msgs := validation.IsValidLabelValue(value); len(msgs) > 0 {
				e.Invalid(t.At("operator"), value, strings.Join(msgs, ";"))
			}
		case "Exists":
			if value != "" {
				e.Invalid(t.At("operator"), value,
					"value must be empty when `operator` is 'Exists'")
			}
		case "Lt", "Gt":
			e.NotSupported(t.At("operator"), op, "Equal", "Exists", "Lt", "Gt")
		default:
			e.NotSupported(t.At("operator"), op, "Equal", "Exists")
		}
		if effect != "" {
			TaintEffect(e, t)
		}
	}
}

// TaintEffect checks the effect of a taint or a toleration.
func TaintEffect(e *check.Errors, t check.At) {
	e.OneOf(t, "effect", "NoSchedule", "PreferNoSchedule", "NoExecute")
}

// spread checks how evenly a pod wants to be placed among its like.
func spread(e *check.Errors, spec check.At) {
	var pairs []string // a topology key and what to do are one kind of constraint
	for _, c := range spec.Each("topologySpreadConstraints") {
		pairs = append(pairs,
			fmt.Sprintf("{%s, %s}", c.Str("topologyKey"), c.Str("whenUnsatisfiable")))
	}
	next := 0
	for _, c := range spec.Each("topologySpreadConstraints") {
		next++
		positive(e, c, "maxSkew")
		if c.Str("topologyKey") == "" {
			e.Required(c.At("topologyKey"), "can not be empty")
		}
		when := c.Str("whenUnsatisfiable")
		if when != "DoNotSchedule" && when != "ScheduleAnyway" {
			e.NotSupported(c.At("whenUnsatisfiable"), when, "DoNotSchedule", "ScheduleAnyway")
		}
		if slices.Contains(pairs[next:], pairs[next-1]) {
			e.Duplicate(c.At("{topologyKey, whenUnsatisfiable}"), pairs[next-1])
		}
		if c.Has("minDomains") {
			positive(e, c, "minDomains")
			if when != "DoNotSchedule" {
				e.Invalid(c.At("minDomains"), c.Int("minDomains"),
					"can only use minDomains if whenUnsatisfiable=DoNotSchedule, not "+when)
			}
		}
		e.OptionalOneOf(c, "nodeAffinityPolicy", "Honor", "Ignore")
		e.OptionalOneOf(c, "nodeTaintsPolicy", "Honor", "Ignore")
		matchLabelKeys(e, c)
		e.LabelSelector(c, "labelSelector")
	}
}

func positive(e *check.Errors, a check.At, name string) {
	if n := a.Int(name); n <= 0 {
		e.Invalid(a.At(name), n, "must be greater than zero")
	}
}

func readinessGates(e *check.Errors, spec check.At) {
	for _, g := range spec.Each("readinessGates") {
		e.QualifiedName(g.At("conditionType"), g.Str("conditionType"))
	}
}

func schedulingGates(e *check.Errors, spec check.At) {
	seen := sets.Set[string]{}
	for _, g := range spec.Each("schedulingGates") {
		name := g.Str("name")
		e.QualifiedName(g.Path, name)
		if seen.Has(name) {
			e.Duplicate(g.Path, name)
		}
		seen.Insert(name)
	}
}
