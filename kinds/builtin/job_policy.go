package builtin

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/setpoint-dev/setpoint/kinds/check"
	"github.com/setpoint-dev/setpoint/kinds/tree"
)

// Upstream's bounds on the policies of a Job: each is looked at for every pod that ends.
const (
	policyRulesMax       = 20
	exitCodesMax         = 255
	conditionPatternsMax = 20
	succeededIndexesMax  = 64 * 1024 // bytes
)

func podFailurePolicy(e *check.Errors, spec check.At) {
	policy := spec.Child("podFailurePolicy")
	if n := policy.Len("rules"); n > policyRulesMax {
		e.TooMany(policy.At("rules"), n, policyRulesMax)
	}
	var containers []string
	for _, list := range []string{"containers", "initContainers"} {
		for _, c := range tree.Maps(spec.Map, "template", "spec", list) {
			containers = append(containers, tree.Str(c, "name"))
		}
	}
	for _, rule := range policy.Each("rules") {
		failureAction(e, rule, spec.Has("backoffLimitPerIndex"))
		codes, conditions := rule.Child("onExitCodes"), rule.Len("onPodConditions")
		if codes.Exists() {
			exitCodes(e, codes, containers)
		}
		if conditions > conditionPatternsMax {
			e.TooMany(rule.At("onPodConditions"), conditions, conditionPatternsMax)
		}
		for _, pattern := range rule.Each("onPodConditions") {
			e.QualifiedName(pattern.At("type"), pattern.Str("type"))
			oneOfValues(e, pattern, "status", "False", "True", "Unknown")
		}
		if codes.Exists() && conditions > 0 {
			e.Invalid(rule.Path, field.OmitValueType{},
				"specifying both OnExitCodes and OnPodConditions is not supported")
		}
		if !codes.Exists() && conditions == 0 {
			e.Invalid(rule.Path, field.OmitValueType{},
				"specifying one of OnExitCodes and OnPodConditions is required")
		}
	}
}

// oneOfValues is OneOf in the words of Jobs.
func oneOfValues(e *check.Errors, a check.At, name string, allowed ...string) {
	if a.Str(name) == "" {
		e.Required(a.At(name), fmt.Sprintf("valid values: %q", allowed))
		return
	}
	e.OptionalOneOf(a, name, allowed...)
}

func failureAction(e *check.Errors, rule check.At, perIndex bool) {
	if rule.Str("action") == "FailIndex" && !perIndex {
		e.Invalid(rule.At("action"), "FailIndex", "requires the backoffLimitPerIndex to be set")
	}
	oneOfValues(e, rule, "action", "Count", "FailIndex", "FailJob", "Ignore")
}

func exitCodes(e *check.Errors, codes check.At, containers []string) {
	oneOfValues(e, codes, "operator", "In", "NotIn")
	if name := codes.Str("containerName"); codes.Has("containerName") && !slices.Contains(containers, name) {
		e.Invalid(codes.At("containerName"), name,
			"must be one of the container or initContainer names in the pod template")
	}
	path, values := codes.At("values"), tree.List(codes.Map, "values")
	switch n := len(values); {
	case n == 0:
		e.Invalid(path, []any{}, "at least one value is required")
	case n > exitCodesMax:
		e.TooMany(path, n, exitCodesMax)
		return
	}
	ordered := true
	for i, v := range values {
		n, _ := v.(int64)
		if n == 0 && codes.Str("operator") == "In" {
			e.Invalid(path.Index(i), n, "must not be 0 for the In operator")
		}
		if slices.Contains(values[:i], v) {
			e.Duplicate(path.Index(i), n)
		}
		if i > 0 {
			before, _ := values[i-1].(int64)
			ordered = ordered && before <= n
		}
	}
	if !ordered {
		e.Invalid(path, values, "must be ordered")
	}
}

func successPolicy(e *check.Errors, policy check.At, completions int64) {
	path := policy.At("rules")
	switch n := policy.Len("rules"); {
	case n == 0:
		e.Required(path, "at least one rules must be specified when the successPolicy is specified")
	case n > policyRulesMax:
		e.TooMany(path, n, policyRulesMax)
	}
	for _, rule := range policy.Each("rules") {
		successRule(e, rule, completions)
	}
}

// successPolicyValue is how a policy looks in a message.
func successPolicyValue(policy check.At) any {
	type rule struct{ SucceededIndexes, SucceededCount any }
	out := struct{ Rules []rule }{}
	for _, r := range policy.Each("rules") {
		out.Rules = append(out.Rules, rule{r.Get("succeededIndexes"), r.Get("succeededCount")})
	}
	return out
}

func successRule(e *check.Errors, rule check.At, completions int64) {
	count, indexes := rule.Int("succeededCount"), rule.Str("succeededIndexes")
	if !rule.Has("succeededCount") && !rule.Has("succeededIndexes") {
		e.Required(rule.Path, "at least one of succeededCount or succeededIndexes must be specified")
	}
	if len(indexes) > succeededIndexesMax {
		e.TooLong(rule.At("succeededIndexes"), succeededIndexesMax)
	}
	total, err := countIndexes(indexes, completions)
	if err != nil {
		e.Invalid(rule.At("succeededIndexes"), indexes, "error parsing succeededIndexes: "+err.Error())
	}
	if !rule.Has("succeededCount") {
		return
	}
	path := rule.At("succeededCount")
	e.NotNegative(rule, "succeededCount")
	if count > completions {
		e.Invalid(path, count,
			fmt.Sprintf("must be less than or equal to %d (the number of specified completions)", completions))
	}
	if rule.Has("succeededIndexes") && count > total {
		e.Invalid(path, count,
			fmt.Sprintf("must be less than or equal to %d (the number of indexes in the specified succeededIndexes field)", total))
	}
}

// countIndexes counts the indexes in a text such as "0-2,5", which must rise and stay below completions.
func countIndexes(text string, completions int64) (int64, error) {
	if text == "" {
		return 0, nil
	}
	var total int64
	last := int64(-1)
	for part := range strings.SplitSeq(text, ",") {
		r, err := parseIndexes(part, completions)
		if err != nil {
			return 0, err
		}
		if last >= r.first {
			return 0, fmt.Errorf("non-increasing order, previous: %d, current: %d", last, r.first)
		}
		total += r.last - r.first + 1
		last = r.last
	}
	return total, nil
}

// indexRange is a part of such a text, both ends included.
type indexRange struct{ first, last int64 }

func parseIndexes(text string, completions int64) (indexRange, error) {
	ends := strings.Split(text, "-")
	if len(ends) > 2 {
		return indexRange{}, fmt.Errorf("the fragment %q violates the requirement that an index interval can have at most two parts separated by '-'", text)
	}
	first, err := parseIndex(ends[0], completions)
	if err != nil || len(ends) == 1 {
		return indexRange{first, first}, err
	}
	last, err := parseIndex(ends[1], completions)
	if err == nil && first >= last {
		err = fmt.Errorf("non-increasing order, previous: %d, current: %d", first, last)
	}
	return indexRange{first, last}, err
}

func parseIndex(text string, completions int64) (int64, error) {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("cannot convert string to integer for index: %q", text)
	}
	if n >= completions {
		return 0, fmt.Errorf("too large index: %q", text)
	}
	return n, nil
}

// commonIndex returns an index that is in both of two texts. Parts that cannot be read are left out.
func commonIndex(a, b string, completions int64) (int64, bool) {
	p, q := indexRanges(a, completions), indexRanges(b, completions)
	for len(p) > 0 && len(q) > 0 {
		if p[0].first <= q[0].last && q[0].first <= p[0].last {
			return max(p[0].first, q[0].first), true
		}
		if p[0].first <= q[0].first {
			p = p[1:]
		} else {
			q = q[1:]
		}
	}
	return 0, false
}

func indexRanges(text string, completions int64) (out []indexRange) {
	for part := range strings.SplitSeq(text, ",") {
		if r, err := parseIndexes(part, completions); err == nil {
			out = append(out, r)
		}
	}
	return out
}
