package builtin

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/validate/content"

	"github.com/setpoint-dev/setpoint/kinds/check"
	"github.com/setpoint-dev/setpoint/kinds/expression"
)

// matchConditionsMax is upstream's bound.
const matchConditionsMax = 64

// operations are what a rule of admission can be about; the last cannot be mutated.
var operations = []string{"*", "CONNECT", "CREATE", "UPDATE", "DELETE"}

// operationRule checks which requests a webhook or a policy is for.
func operationRule(e *check.Errors, rule check.At) {
	ops, path := rule.Strings("operations"), rule.At("operations")
	if len(ops) == 0 {
		e.Required(path, "")
	}
	if len(ops) > 1 && slices.Contains(ops, "*") {
		e.Invalid(path, ops, "if '*' is present, must not specify other operations")
	}
	for i, op := range ops {
		if !slices.Contains(operations, op) {
			e.NotSupported(path.Index(i), op, "*", "CONNECT", "CREATE", "DELETE", "UPDATE")
		}
	}
	starOrMore(e, rule, "apiGroups", "API groups")
	starOrMore(e, rule, "apiVersions", "API versions")
	for i, version := range rule.Strings("apiVersions") {
		if version == "" {
			e.Required(rule.At("apiVersions").Index(i), "")
		}
	}
	ruleResources(e, rule)
	e.OptionalOneOf(rule, "scope", "*", "Cluster", "Namespaced")
}

// starOrMore checks a list that may hold "*" alone.
func starOrMore(e *check.Errors, rule check.At, field, what string) {
	list := rule.Strings(field)
	if len(list) == 0 {
		e.Required(rule.At(field), "")
	}
	if len(list) > 1 && slices.Contains(list, "*") {
		e.Invalid(rule.At(field), list, "if '*' is present, must not specify other "+what)
	}
}

// ruleResources checks that no resource is named that a wildcard covers.
func ruleResources(e *check.Errors, rule check.At) {
	list, path := rule.Strings("resources"), rule.At("resources")
	if len(list) == 0 {
		e.Required(path, "")
	}
	var wholly, everywhere []string // resources with "/*", and subresources with "*/"
	plain := false
	for i, name := range list {
		if name == "" {
			e.Required(path.Index(i), "")
			continue
		}
		resource, sub, found := strings.Cut(name, "/")
		if !found {
			plain = name != "*"
			continue
		}
		if slices.Contains(wholly, resource) {
			e.Invalid(path.Index(i), name, fmt.Sprintf("if '%s/*' is present, must not specify %s", resource, name))
		}
		if slices.Contains(everywhere, sub) {
			e.Invalid(path.Index(i), name, fmt.Sprintf("if '*/%s' is present, must not specify %s", sub, name))
		}
		if sub == "*" {
			wholly = append(wholly, resource)
		}
		if resource == "*" {
			everywhere = append(everywhere, sub)
		}
	}
	if len(list) > 1 && slices.Contains(list, "*/*") {
		e.Invalid(path, list, "if '*/*' is present, must not specify other resources")
	}
	if slices.Contains(list, "*") && plain {
		e.Invalid(path, list, "if '*' is present, must not specify other resources without subresources")
	}
}

// matchConditions checks the conditions under which a request is looked at.
func matchConditions(e *check.Errors, a check.At, s expression.Scope) {
	path := a.At("matchConditions")
	if n := a.Len("matchConditions"); n > matchConditionsMax {
		e.TooMany(path, n, matchConditionsMax)
	}
	var names []string
	for _, c := range a.Each("matchConditions") {
		path, text := c.At("expression"), strings.TrimSpace(c.Str("expression"))
		if text == "" {
			e.Required(path, "")
		} else if err := expression.CheckCondition(path.Field(), expression.Condition("", text), s); err != nil {
			e.Add(err)
		}
		name := c.Str("name")
		if name == "" {
			e.Required(c.At("name"), "")
			continue
		}
		e.QualifiedName(c.At("name"), name)
		if slices.Contains(names, name) {
			e.Duplicate(c.At("name"), name)
		}
		names = append(names, name)
	}
}

// matchResources checks which objects a policy or its binding is for, if it says so.
func matchResources(e *check.Errors, m check.At) {
	if !m.Exists() {
		return
	}
	e.OneOf(m, "matchPolicy", "Equivalent", "Exact")
	e.LabelSelector(m, "namespaceSelector")
	e.LabelSelector(m, "objectSelector")
	for _, field := range []string{"resourceRules", "excludeResourceRules"} {
		for _, rule := range m.Each(field) {
			names := rule.Strings("resourceNames")
			for i, name := range names {
				e.Messages(rule.At("resourceNames").Index(i), name, content.IsPathSegmentName(name))
				if slices.Index(names, name) < i {
					e.Duplicate(rule.At("resourceNames").Index(i), name)
				}
			}
			operationRule(e, rule)
		}
	}
}

// mutableOperations checks that a policy that changes objects is for requests that have some.
func mutableOperations(e *check.Errors, m check.At) {
	for _, rule := range m.Each("resourceRules") {
		for _, op := range rule.Strings("operations") {
			if !slices.Contains(operations[:4], op) {
				e.NotSupported(m.At("resourceRules").Child("operations"), op, "*", "CONNECT", "CREATE", "UPDATE")
			}
		}
	}
}
