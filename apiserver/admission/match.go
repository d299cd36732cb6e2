package admission

import (
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/setpoint-dev/setpoint/kinds"
	"github.com/setpoint-dev/setpoint/kinds/check"
	"github.com/setpoint-dev/setpoint/kinds/tree"
)

// match says which writes a policy, a binding or a webhook is about.
type match struct {
	rules, excluded []rule
	exact           bool
	inNamespaces    labels.Selector
	ofObjects       labels.Selector
	err             error // a selector cannot be read
}

type rule struct {
	operations, groups, versions, resources, names []string
	scope                                          string
}

// readMatch reads what MatchResources and a webhook have alike; nil matches everything.
func readMatch(m map[string]any, rules, excluded string) *match {
	out := &match{
		rules: readRules(m, rules), excluded: readRules(m, excluded), exact: tree.Str(m, "matchPolicy") == "Exact",
	}
	var err error
	out.inNamespaces, out.err = readSelector(m, "namespaceSelector")
	if out.ofObjects, err = readSelector(m, "objectSelector"); err != nil {
		out.err = err
	}
	return out
}

func readSelector(m map[string]any, name string) (labels.Selector, error) {
	selector := tree.Map(m, name)
	if len(selector) == 0 {
		return labels.Everything(), nil
	}
	return metav1.LabelSelectorAsSelector(check.LabelSelector(selector))
}

func readRules(m map[string]any, field string) []rule {
	var out []rule
	for _, r := range tree.Maps(m, field) {
		out = append(out, rule{
			operations: tree.Strings(r, "operations"), groups: tree.Strings(r, "apiGroups"),
			versions: tree.Strings(r, "apiVersions"), resources: tree.Strings(r, "resources"),
			names: tree.Strings(r, "resourceNames"), scope: tree.Str(r, "scope"),
		})
	}
	return out
}

// covers says whether a write through a kind is one of those that the rule names.
func (r *rule) covers(a *Attributes, k *kinds.Kind) bool {
	any := func(list []string, what string) bool {
		return slices.Contains(list, "*") || slices.Contains(list, what)
	}
	inNamespace := k.Namespaced && a.Namespace != ""
	return (r.scope == "" || r.scope == "*" || (r.scope == "Namespaced") == inNamespace) &&
		any(r.operations, string(a.Operation)) && any(r.groups, k.Group) && any(r.versions, k.Version) &&
		slices.ContainsFunc(r.resources, func(text string) bool {
			resource, sub, _ := strings.Cut(text, "/")
			return (resource == "*" || resource == k.Resource) && (sub == "*" || sub == a.Subresource)
		}) && (len(r.names) == 0 || slices.Contains(r.names, a.Name))
}

// through returns the kind through which rules are about a write, or nil if they are not: that of the
// request, or one through which the same objects are seen.
func (m *match) through(rules []rule, a *Attributes) *kinds.Kind {
	covered := func(k *kinds.Kind) bool {
		return slices.ContainsFunc(rules, func(r rule) bool { return r.covers(a, k) })
	}
	if covered(a.Kind) {
		return a.Kind
	}
	if m.exact || len(rules) == 0 {
		return nil
	}
	for _, k := range a.State.Equivalents(a.Kind) {
		if covered(k) {
			return k
		}
	}
	return nil
}

// find returns the kind in whose form a write is to be looked at, or nil if it is none of those
// that are meant. Without rules every write is meant.
func (m *match) find(a *Attributes) (*kinds.Kind, error) {
	if m.through(m.excluded, a) != nil {
		return nil, nil
	}
	k := a.Kind
	if len(m.rules) > 0 {
		k = m.through(m.rules, a)
	}
	if k == nil {
		return nil, nil
	}
	if m.err != nil {
		return nil, m.err
	}
	if !m.ofObjects.Empty() && !m.ofObjects.Matches(labels.Set(labelsOf(a.Object))) &&
		(a.Old == nil || !m.ofObjects.Matches(labels.Set(labelsOf(a.Old)))) {
		return nil, nil
	}
	found, err := m.namespace(a)
	if err != nil || !found {
		return nil, err
	}
	return k, nil
}

// namespace says whether the write is in a namespace that is meant, or is of one.
func (m *match) namespace(a *Attributes) (bool, error) {
	if m.inNamespaces.Empty() {
		return true, nil
	}
	var of map[string]string
	switch {
	case isNamespace(a.Kind) && a.Object != nil:
		of = labelsOf(a.Object)
	case isNamespace(a.Kind):
		of = labelsOf(a.Old)
	case a.Namespace == "":
		return true, nil
	default:
		ns := readNamespace(a)
		if ns == nil {
			return false, apierrors.NewNotFound(namespaces, a.Namespace)
		}
		of = labelsOf(ns)
	}
	return m.inNamespaces.Matches(labels.Set(of)), nil
}

func isNamespace(k *kinds.Kind) bool { return k.Group == "" && k.Kind == "Namespace" }

// readNamespace returns the namespace of the object, or nil if it has none.
func readNamespace(a *Attributes) kinds.Object {
	k := kindOf(a.State, "", "v1", "Namespace")
	if k == nil || a.Namespace == "" || isNamespace(a.Kind) {
		return nil
	}
	return read(a.State, k, "", a.Namespace)
}

// read returns an object, or nil if there is none that can be read.
func read(s State, k *kinds.Kind, namespace, name string) kinds.Object {
	if k == nil {
		return nil
	}
	e := s.Entry(k, namespace, name)
	if e == nil {
		return nil
	}
	obj, err := s.Read(k, e)
	if err != nil {
		return nil
	}
	return obj
}

// form returns a write's object and its old state in the form of a kind.
func form(a *Attributes, k *kinds.Kind) (obj, old kinds.Object, err error) {
	if k == a.Kind || !a.Body.Empty() {
		return a.Object, a.Old, nil
	}
	if a.Object != nil {
		if obj, err = a.State.Convert(a.Object, a.Kind, k); err != nil {
			return nil, nil, fmt.Errorf("failed to convert object version: %w", err)
		}
	}
	if a.Old != nil {
		if old, err = a.State.Convert(a.Old, a.Kind, k); err != nil {
			return nil, nil, fmt.Errorf("failed to convert object version: %w", err)
		}
	}
	return obj, old, nil
}
