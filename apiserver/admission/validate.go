package admission

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	celtypes "github.com/google/cel-go/common/types"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	plugin "k8s.io/apiserver/pkg/admission/plugin/cel"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	apicel "k8s.io/apiserver/pkg/cel"

	"github.com/setpoint-dev/setpoint/apiserver/authz"
	"github.com/setpoint-dev/setpoint/kinds/tree"
)

const validatingPolicy = "ValidatingAdmissionPolicy"

// validating lets ValidatingAdmissionPolicies judge writes.
type validating struct{ policies }

// ValidatingPolicies makes the validator. Expressions may ask what the authorizer decides.
func ValidatingPolicies(a authz.Authorizer) Validator {
	return &validating{policies{policy: validatingPolicy, binding: validatingPolicy + "Binding", authorizer: a}}
}

// verdict is what is to be said against a write.
type verdict struct {
	expression int
	message    string
	reason     metav1.StatusReason
	strict     bool // it refuses the write, whatever the binding says
}

// failure is a verdict as an audit annotation has it.
type failure struct {
	Message           string   `json:"message"`
	Policy            string   `json:"policy"`
	Binding           string   `json:"binding"`
	ExpressionIndex   int      `json:"expressionIndex"`
	ValidationActions []string `json:"validationActions"`
}

// failuresMax bounds an annotation, as upstream does.
const failuresMax = 50

func (v *validating) Validate(ctx context.Context, a *Attributes) error {
	all, wrong, err := v.about(a)
	if err != nil {
		return err
	}
	var refused error
	for _, w := range wrong {
		if !w.policy.lenient && refused == nil {
			refused = a.refuse(validatingPolicy, w.policy, w.binding, w.message(), "")
		}
	}
	var failures []failure
	notes := map[string][]string{}
	for _, b := range all {
		actions := tree.Strings(b.binding.spec, "validationActions")
		for _, said := range b.judge(ctx, notes) {
			if (said.strict || slices.Contains(actions, "Deny")) && refused == nil {
				refused = a.refuse(validatingPolicy, b.policy, b.binding, said.message, said.reason)
			}
			if said.strict {
				continue
			}
			if slices.Contains(actions, "Warn") {
				a.Warn(fmt.Sprintf("Validation failed for ValidatingAdmissionPolicy '%s' with binding '%s': %s",
					b.policy.name, b.binding.name, said.message))
			}
			if slices.Contains(actions, "Audit") && len(failures) < failuresMax {
				failures = append(failures,
					failure{said.message, b.policy.name, b.binding.name, said.expression, actions})
			}
		}
	}
	annotate(a, notes, failures)
	return refused
}

func annotate(a *Attributes, notes map[string][]string, failures []failure) {
	for key, values := range notes {
		a.State.Annotate(key, strings.Join(values, ", "))
	}
	if len(failures) > 0 {
		text, _ := json.Marshal(failures) // strings and numbers always have a form
		a.State.Annotate("validation.policy.admission.k8s.io/validation_failure", string(text))
	}
}

// judge returns what a policy has against a write, and adds its notes for the audit.
func (b *bound) judge(ctx context.Context, notes map[string][]string) []verdict {
	p := b.policy.program()
	if ok, err := fulfilled(ctx, p.conditions, b.subject, b.param); err != nil {
		return b.mistake(0, err.Error())
	} else if !ok {
		return nil
	}
	full := plugin.OptionalVariableBindings{VersionedParams: object(b.param), Authorizer: b.subject.authorizer}
	bare := plugin.OptionalVariableBindings{VersionedParams: object(b.param)}
	s := b.subject
	results, left, err := p.validations.ForInput(ctx, s.attributes, s.request, full, s.namespace, celconfig.RuntimeCELCostBudget)
	if err != nil {
		return b.mistake(0, err.Error())
	}
	messages, _, unsaid := p.messages.ForInput(ctx, s.attributes, s.request, bare, s.namespace, left)
	var out []verdict
	for i, r := range results {
		switch {
		case r.Error != nil:
			out = append(out, b.mistake(i, r.Error.Error())...)
		case errors.Is(unsaid, apicel.ErrInternal) || errors.Is(unsaid, apicel.ErrOutOfBudget):
			out = append(out, b.mistake(i, fmt.Sprintf("failed messageExpression: %s", unsaid))...)
		case r.EvalResult != celtypes.True:
			said := tree.List(b.policy.spec, "validations")[i].(map[string]any)
			out = append(out, verdict{
				expression: i, message: message(said, messages, i), reason: metav1.StatusReason(tree.Str(said, "reason")),
			})
		}
	}
	return append(out, b.note(ctx, notes, full)...)
}

// mistake is the verdict on an expression that has no result, none if the policy is lenient.
func (b *bound) mistake(expression int, text string) []verdict {
	if b.policy.lenient {
		return nil
	}
	return []verdict{{expression: expression, message: text}}
}

// message words what a validation found: by its expression for that, by its fixed text, or by itself.
func message(said map[string]any, messages []plugin.EvaluationResult, i int) string {
	if i < len(messages) && messages[i].Error == nil && messages[i].EvalResult != nil {
		text, _ := messages[i].EvalResult.Value().(string)
		text = strings.TrimSpace(text)
		if text != "" && len(text) <= celconfig.MaxEvaluatedMessageExpressionSizeBytes && !strings.Contains(text, "\n") {
			return text
		}
	}
	if text := strings.TrimSpace(tree.Str(said, "message")); text != "" {
		return text
	}
	return "failed expression: " + strings.TrimSpace(tree.Str(said, "expression"))
}

// noteBytesMax bounds an audit annotation, as upstream does.
const noteBytesMax = 10 << 10

// note evaluates the annotations of a policy.
func (b *bound) note(ctx context.Context, notes map[string][]string, vars plugin.OptionalVariableBindings) []verdict {
	p, s := b.policy.program(), b.subject
	results, _, err := p.annotations.ForInput(ctx, s.attributes, s.request, vars, s.namespace, celconfig.RuntimeCELCostBudget)
	if err != nil {
		return b.mistake(0, err.Error())
	}
	var out []verdict
	for i, r := range results {
		if r.Error != nil {
			for _, m := range b.mistake(i, r.Error.Error()) {
				m.strict = true
				out = append(out, m)
			}
			continue
		}
		text, _ := r.EvalResult.Value().(string)
		if text = strings.TrimSpace(text); text == "" {
			continue
		}
		said, _ := tree.List(b.policy.spec, "auditAnnotations")[i].(map[string]any)
		key := b.policy.name + "/" + tree.Str(said, "key")
		if text = text[:min(len(text), noteBytesMax)]; !slices.Contains(notes[key], text) {
			notes[key] = append(notes[key], text)
		}
	}
	return out
}
