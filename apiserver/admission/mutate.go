package admission

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"

	celtypes "github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
	"google.golang.org/protobuf/types/known/structpb"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	plugin "k8s.io/apiserver/pkg/admission/plugin/cel"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	celmutation "k8s.io/apiserver/pkg/cel/mutation"
	"k8s.io/apiserver/pkg/cel/mutation/dynamic"

	"github.com/setpoint-dev/setpoint/apiserver/authz"
	"github.com/setpoint-dev/setpoint/kinds"
	"github.com/setpoint-dev/setpoint/kinds/expression"
	"github.com/setpoint-dev/setpoint/kinds/patch"
	"github.com/setpoint-dev/setpoint/kinds/patch/managed"
	"github.com/setpoint-dev/setpoint/kinds/tree"
)

// mutating lets MutatingAdmissionPolicies change objects.
type mutating struct{ policies }

// MutatingPolicies makes the mutator. Expressions may ask what the authorizer decides.
func MutatingPolicies(a authz.Authorizer) Mutator {
	const kind = "MutatingAdmissionPolicy"
	return &mutating{policies{policy: kind, binding: kind + "Binding", authorizer: a}}
}

// mutation is one change that a policy makes.
type mutation struct {
	change plugin.MutatingEvaluator
	apply  func(s State, k *kinds.Kind, obj kinds.Object, result ref.Val) (kinds.Object, error)
}

func compileMutation(c *expression.Compiler, m map[string]any, s expression.Scope) mutation {
	if tree.Str(m, "patchType") == "JSONPatch" {
		return mutation{c.Patch(expression.JSONPatch(tree.Str(m, "jsonPatch", "expression")), s), applyJSONPatch}
	}
	return mutation{c.Patch(expression.Applied(tree.Str(m, "applyConfiguration", "expression")), s), applyFields}
}

func (m *mutating) Mutate(ctx context.Context, a *Attributes) error {
	if a.Object == nil {
		return nil
	}
	all, wrong, err := m.about(a)
	if err != nil {
		return err
	}
	refused := refusal{a: a}
	for _, w := range wrong {
		refused.add(w.policy, w.binding, w.message(), metav1.StatusReasonForbidden)
	}
	applied := false
	for _, b := range all {
		key := hook{policyHook, b.policy.name, b.binding.name + "/" + tree.Str(b.param, "metadata", "namespace") +
			"/" + tree.Str(b.param, "metadata", "name")}
		if !a.again.due(key) {
			continue
		}
		before := tree.CopyMap(a.Object)
		n, errs := m.run(ctx, a, b)
		for _, err := range errs {
			refused.add(b.policy, b.binding, err.Error(), metav1.StatusReasonInvalid)
		}
		applied = applied || n > 0
		again := tree.Str(b.policy.spec, "reinvocationPolicy") == "IfNeeded"
		a.again.ran(key, !reflect.DeepEqual(before, a.Object), again)
	}
	if applied { // upstream has policies see what the last of them made of the object, its maker too
		a.again.all(policyHook)
	}
	if refused.err == nil {
		return nil
	}
	return refused.err
}

const policyHook = "policy"

// run changes the object as one policy says, and returns how many of its mutations could be applied and
// what is wrong with the others.
func (m *mutating) run(ctx context.Context, a *Attributes, b bound) (applied int, errs []error) {
	p := b.policy.program()
	for i, change := range p.mutations {
		s, err := newSubject(a, b.subject.kind, m.authorizer)
		if err != nil {
			return applied, append(errs, err)
		}
		if i == 0 {
			if ok, err := fulfilled(ctx, p.conditions, s, b.param); err != nil {
				return 0, []error{err}
			} else if !ok {
				return 0, nil
			}
		}
		if err := change.run(ctx, a, s, b.param); err != nil {
			errs = append(errs, err)
			continue
		}
		applied++
	}
	return applied, errs
}

func (m mutation) run(ctx context.Context, a *Attributes, s *subject, param kinds.Object) error {
	if errs := m.change.CompilationErrors(); len(errs) > 0 {
		return errors.Join(errs...)
	}
	vars := plugin.OptionalVariableBindings{VersionedParams: object(param), Authorizer: s.authorizer}
	result, _, err := m.change.ForInput(ctx, s.attributes, s.request, vars, s.namespace, celconfig.RuntimeCELCostBudget)
	if err == nil {
		err = result.Error
	}
	if err != nil {
		return err
	}
	obj, _, err := form(a, s.kind)
	if err != nil {
		return err
	}
	if obj, err = m.apply(a.State, s.kind, obj, result.EvalResult); err != nil {
		return err
	}
	return a.put(s.kind, obj)
}

// put makes an object in the form of a kind the write's own.
func (a *Attributes) put(k *kinds.Kind, obj kinds.Object) error {
	if k != a.Kind && a.Body.Empty() {
		var err error
		if obj, err = a.State.Convert(obj, k, a.Kind); err != nil {
			return fmt.Errorf("failed to convert object version: %w", err)
		}
	}
	if err := a.State.Settle(a, obj); err != nil {
		return err
	}
	clear(a.Object)
	maps.Copy(a.Object, obj)
	return nil
}

// applyFields merges what an expression wants of an object into it.
func applyFields(s State, k *kinds.Kind, obj kinds.Object, result ref.Val) (kinds.Object, error) {
	fields, ok := result.(*dynamic.ObjectVal)
	if !ok {
		return nil, fmt.Errorf("unsupported return type from ApplyConfiguration expression: %v", result.Type())
	}
	if err := fields.CheckTypeNamesMatchFieldPathNames(); err != nil {
		return nil, fmt.Errorf("type mismatch: %w", err)
	}
	config, ok := fields.Value().(map[string]any)
	if !ok {
		return nil, fmt.Errorf("invalid return type: %T", fields.Value())
	}
	config["apiVersion"], config["kind"] = obj["apiVersion"], obj["kind"]
	merged, err := managed.Merge(s.Type(k), obj, config)
	if err != nil {
		return nil, fmt.Errorf("error applying patch: %w", err)
	}
	return merged, nil
}

// applyJSONPatch applies operations to an object. If one of them is a test that fails, the object
// stays as it was.
func applyJSONPatch(_ State, _ *kinds.Kind, obj kinds.Object, result ref.Val) (kinds.Object, error) {
	list, ok := result.(traits.Lister)
	if !ok {
		return nil, errors.New("type mismatch: JSONPatchType.expression should evaluate to array")
	}
	ops := []map[string]any{}
	for it := list.Iterator(); it.HasNext() == celtypes.True; {
		op, err := operation(it.Next())
		if err != nil {
			return nil, err
		}
		ops = append(ops, op)
	}
	text, err := json.Marshal(ops)
	if err != nil {
		return nil, fmt.Errorf("JSON Patch: %w", err)
	}
	parsed, _, err := patch.ParseJSON(text)
	if err != nil {
		return nil, fmt.Errorf("JSON Patch: %w", err)
	}
	patched, err := parsed.Apply(tree.CopyMap(obj))
	if errors.Is(err, patch.ErrTestFailed) {
		return obj, nil
	}
	if err != nil {
		return nil, fmt.Errorf("JSON Patch: %w", err)
	}
	return patched, nil
}

func operation(v ref.Val) (map[string]any, error) {
	native, err := v.ConvertToNative(reflect.TypeFor[*celmutation.JSONPatchVal]())
	if err != nil {
		return nil, fmt.Errorf("type mismatch: JSONPatchType.expression should evaluate to array of JSONPatch: %w", err)
	}
	said, ok := native.(*celmutation.JSONPatchVal)
	if !ok {
		return nil, fmt.Errorf("type mismatch: JSONPatchType.expression should evaluate to array of JSONPatch, "+
			"got element of %T", native)
	}
	op := map[string]any{"op": said.Op, "path": said.Path}
	if said.From != "" {
		op["from"] = said.From
	}
	if said.Val == nil {
		return op, nil
	}
	if obj, ok := said.Val.(*dynamic.ObjectVal); ok {
		if err := obj.CheckTypeNamesMatchFieldPathNames(); err != nil {
			return nil, fmt.Errorf("type mismatch: %w", err)
		}
	}
	value, err := said.Val.ConvertToNative(reflect.TypeFor[*structpb.Value]())
	if err != nil {
		return nil, fmt.Errorf("JSONPath valueExpression evaluated to a type that could not marshal to JSON: %w", err)
	}
	op["value"] = value
	return op, nil
}

// refusal is the answer to a write that policies should have changed and could not. The first of them
// has the word, and all are named.
type refusal struct {
	a   *Attributes
	err *apierrors.StatusError // nil if nothing is wrong
}

// add notes what is wrong with a policy, or with its binding if that is not nil.
func (r *refusal) add(p *policy, b *binding, what string, reason metav1.StatusReason) {
	if p.lenient {
		return
	}
	text := fmt.Sprintf("policy %q denied request: %s", p.name, what)
	if b != nil {
		text = fmt.Sprintf("policy '%s' with binding '%s' denied request: %s", p.name, b.name, what)
	}
	if r.err == nil {
		r.err = r.a.forbid("admission request denied by policy")
		r.err.ErrStatus.Message, r.err.ErrStatus.Reason = text, reason
	}
	r.err.ErrStatus.Details.Causes = append(r.err.ErrStatus.Details.Causes, metav1.StatusCause{Message: text})
}
