package admission

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	celtypes "github.com/google/cel-go/common/types"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	plugin "k8s.io/apiserver/pkg/admission/plugin/cel"
	celconfig "k8s.io/apiserver/pkg/apis/cel"

	"github.com/setpoint-dev/setpoint/apiserver/authz"
	"github.com/setpoint-dev/setpoint/kinds"
	"github.com/setpoint-dev/setpoint/kinds/check"
	"github.com/setpoint-dev/setpoint/kinds/expression"
	"github.com/setpoint-dev/setpoint/kinds/tree"
)

// policies are those of one kind, and what binds them to writes.
type policies struct {
	policy, binding string // kinds
	authorizer      authz.Authorizer

	policiesRead cache[*policy]
	bindingsRead cache[*binding]
}

// policy is one that was read. Its expressions are compiled when it is first asked about a write.
type policy struct {
	name    string
	spec    map[string]any
	match   *match
	lenient bool // its mistakes let writes through
	program func() *program
}

// program is a policy's expressions.
type program struct {
	conditions                         plugin.ConditionEvaluator // nil if there are none
	validations, messages, annotations plugin.ConditionEvaluator
	mutations                          []mutation
}

type binding struct {
	name, policy string
	spec         map[string]any
	match        *match
}

// bound is a policy and a binding of it that are about a write, with one of the binding's
// parameters, which is nil if there are none.
type bound struct {
	policy  *policy
	binding *binding
	subject *subject
	param   kinds.Object
}

// problem is a policy that cannot be asked.
type problem struct {
	policy  *policy
	binding *binding // nil if it is the policy itself
	err     error
}

func (p problem) message() string {
	what := "binding"
	if p.binding == nil {
		what = "policy"
	}
	return fmt.Sprintf("failed to configure %s: %v", what, p.err)
}

func readPolicy(obj kinds.Object) *policy {
	spec := tree.Map(obj, "spec")
	p := &policy{
		name: tree.Str(obj, "metadata", "name"), spec: spec, lenient: tree.Str(spec, "failurePolicy") == "Ignore",
		match: readMatch(tree.Map(spec, "matchConstraints"), "resourceRules", "excludeResourceRules"),
	}
	p.program = sync.OnceValue(func() *program { return compile(spec) })
	return p
}

func readBinding(obj kinds.Object) *binding {
	spec := tree.Map(obj, "spec")
	return &binding{
		name: tree.Str(obj, "metadata", "name"), policy: tree.Str(spec, "policyName"), spec: spec,
		match: readMatch(tree.Map(spec, "matchResources"), "resourceRules", "excludeResourceRules"),
	}
}

func compile(spec map[string]any) *program {
	var c expression.Compiler
	scope := expression.Scope{Params: tree.Has(spec, "paramKind"), Authorizer: true}
	for _, v := range tree.Maps(spec, "variables") {
		c.Store(expression.Variable(tree.Str(v, "name"), tree.Str(v, "expression")), scope)
	}
	p := &program{conditions: compileConditions(&c, spec, scope)}
	var validations, messages, annotations []*expression.Expression
	for _, v := range tree.Maps(spec, "validations") {
		validations = append(validations, expression.Condition("", tree.Str(v, "expression")))
		var message *expression.Expression
		if text := tree.Str(v, "messageExpression"); text != "" {
			message = expression.Text(text)
		}
		messages = append(messages, message)
	}
	for _, a := range tree.Maps(spec, "auditAnnotations") {
		annotations = append(annotations, expression.Annotation(tree.Str(a, "valueExpression")))
	}
	p.validations, p.annotations = c.Conditions(validations, scope), c.Conditions(annotations, scope)
	p.messages = c.Conditions(messages, expression.Scope{Params: scope.Params})
	for _, m := range tree.Maps(spec, "mutations") {
		p.mutations = append(p.mutations, compileMutation(&c, m, scope))
	}
	return p
}

// compileConditions compiles the conditions under which a write is looked at; nil if there are none.
func compileConditions(c *expression.Compiler, m map[string]any, s expression.Scope) plugin.ConditionEvaluator {
	var all []*expression.Expression
	for _, v := range tree.Maps(m, "matchConditions") {
		all = append(all, expression.Condition(tree.Str(v, "name"), tree.Str(v, "expression")))
	}
	if all == nil {
		return nil
	}
	return c.Conditions(all, s)
}

// fulfilled says whether all conditions are true. A false one is decisive, whatever is wrong with
// others.
func fulfilled(ctx context.Context, conditions plugin.ConditionEvaluator, s *subject, param kinds.Object) (bool, error) {
	if conditions == nil {
		return true, nil
	}
	results, _, err := conditions.ForInput(ctx, s.attributes, s.request,
		plugin.OptionalVariableBindings{VersionedParams: object(param), Authorizer: s.authorizer},
		nil, celconfig.RuntimeCELCostBudgetMatchConditions)
	if err != nil {
		return false, err
	}
	var wrong []error
	for _, r := range results {
		if r.Error != nil {
			wrong = append(wrong, r.Error)
		} else if r.EvalResult == celtypes.False {
			return false, nil
		}
	}
	return true, utilerrors.NewAggregate(wrong)
}

// about returns the policies that a write is to be judged by, in order of their names, and those of
// which this cannot be said.
func (p *policies) about(a *Attributes) (all []bound, wrong []problem, err error) {
	if !admittable(a) {
		return nil, nil, nil
	}
	found, err := p.policiesRead.list(a.State, kindOf(a.State, admissionGroup, "v1", p.policy), "", readPolicy)
	if len(found) == 0 || err != nil {
		return nil, nil, err
	}
	bindings, err := p.bindingsRead.list(a.State, kindOf(a.State, admissionGroup, "v1", p.binding), "", readBinding)
	if err != nil {
		return nil, nil, err
	}
	for _, one := range found {
		k, err := one.match.find(a)
		if err != nil {
			wrong = append(wrong, problem{one, nil, err})
		}
		if k == nil {
			continue
		}
		mine := slices.DeleteFunc(slices.Clone(bindings), func(b *binding) bool { return b.policy != one.name })
		if err := a.knowsParams(tree.Map(one.spec, "paramKind")); err != nil && len(mine) > 0 {
			wrong = append(wrong, problem{one, nil, err})
			continue
		}
		for _, b := range mine {
			by, err := p.bind(a, one, b, k)
			if err != nil {
				wrong = append(wrong, problem{one, b, err})
			}
			all = append(all, by...)
		}
	}
	return all, wrong, nil
}

// bind returns a policy with each of a binding's parameters, if the binding is about the write.
func (p *policies) bind(a *Attributes, one *policy, b *binding, k *kinds.Kind) ([]bound, error) {
	if matched, err := b.match.find(a); matched == nil || err != nil {
		return nil, err
	}
	params, err := paramsOf(a, tree.Map(one.spec, "paramKind"), tree.Map(b.spec, "paramRef"))
	if len(params) == 0 || err != nil {
		return nil, err
	}
	s, err := newSubject(a, k, p.authorizer)
	if err != nil {
		return nil, err
	}
	all := make([]bound, len(params))
	for i, param := range params {
		all[i] = bound{one, b, s, param}
	}
	return all, nil
}

func paramKind(kind map[string]any) schema.GroupVersionKind {
	return groupVersion(tree.Str(kind, "apiVersion")).WithKind(tree.Str(kind, "kind"))
}

// knowsParams says what is wrong with the kind of a policy's parameters, if it has any.
func (a *Attributes) knowsParams(kind map[string]any) error {
	if kind == nil || a.State.Kinds().Kind(paramKind(kind)) != nil {
		return nil
	}
	return fmt.Errorf("failed to find resource referenced by paramKind: '%s'", paramKind(kind))
}

// paramsOf finds a binding's parameters, of a kind that is known: a nil one if the policy has none, no one
// if they are not there and need not be.
func paramsOf(a *Attributes, kind, ref map[string]any) ([]kinds.Object, error) {
	if kind == nil || ref == nil {
		return []kinds.Object{nil}, nil
	}
	k := a.State.Kinds().Kind(paramKind(kind))
	namespace := tree.Str(ref, "namespace")
	switch {
	case !k.Namespaced && namespace != "":
		return nil, errors.New("paramRef.namespace must not be provided for a cluster-scoped `paramKind`")
	case k.Namespaced && namespace == "":
		if namespace = a.namespaceSeen(); namespace == "" {
			return nil, errors.New("cannot use namespaced paramRef in policy binding that matches cluster-scoped resources")
		}
	}
	found, err := findParams(a.State, k, namespace, ref)
	if err == nil && len(found) == 0 && tree.Str(ref, "parameterNotFoundAction") == "Deny" {
		err = errors.New("no params found for policy binding with `Deny` parameterNotFoundAction")
	}
	return found, err
}

func findParams(s State, k *kinds.Kind, namespace string, ref map[string]any) ([]kinds.Object, error) {
	if name := tree.Str(ref, "name"); name != "" {
		e := s.Entry(k, namespace, name)
		if e == nil {
			return nil, nil
		}
		obj, err := s.Read(k, e)
		return []kinds.Object{obj}, err
	}
	selector, err := metav1.LabelSelectorAsSelector(check.LabelSelector(tree.Map(ref, "selector")))
	if err != nil {
		return nil, err
	}
	var found []kinds.Object
	for _, e := range s.Entries(k, namespace) {
		obj, err := s.Read(k, e)
		if err != nil {
			return nil, err
		}
		if selector.Matches(labels.Set(labelsOf(obj))) {
			found = append(found, obj)
		}
	}
	return found, nil
}

// refuse is the answer to a write that a policy refuses.
func (a *Attributes) refuse(kind string, p *policy, b *binding, message string, reason metav1.StatusReason) error {
	by := ""
	if b != nil {
		by = fmt.Sprintf(" with binding '%s'", b.name)
	}
	text := fmt.Sprintf("%s '%s'%s denied request: %s", kind, p.name, by, message)
	refused := a.forbid("%s", text)
	if reason == "" {
		reason = metav1.StatusReasonInvalid
	}
	refused.ErrStatus.Reason, refused.ErrStatus.Code = reason, codes[reason]
	refused.ErrStatus.Details.Causes = append(refused.ErrStatus.Details.Causes, metav1.StatusCause{Message: text})
	return refused
}

// codes are those of the reasons that a policy may give.
var codes = map[metav1.StatusReason]int32{
	metav1.StatusReasonForbidden: 403, metav1.StatusReasonUnauthorized: 401,
	metav1.StatusReasonRequestEntityTooLarge: 413, metav1.StatusReasonInvalid: 422,
}
