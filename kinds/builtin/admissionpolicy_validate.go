package builtin

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/api/validate/content"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/setpoint-dev/setpoint/kinds"
	"github.com/setpoint-dev/setpoint/kinds/check"
	"github.com/setpoint-dev/setpoint/kinds/expression"
	"github.com/setpoint-dev/setpoint/kinds/tree"
)

// Upstream's bounds on audit annotations; an expression's is in bytes.
const (
	auditAnnotationsMax     = 20
	auditAnnotationBytesMax = 5 << 10
)

func validateValidatingPolicy(obj kinds.Object) field.ErrorList {
	var e check.Errors
	p := policy{errs: &e}
	spec := p.spec(obj, false)
	if spec.Len("validations") == 0 && spec.Len("auditAnnotations") == 0 {
		for _, name := range []string{"validations", "auditAnnotations"} {
			e.Required(spec.At(name), "validations or auditAnnotations must contain at least one item")
		}
		return e.List()
	}
	for _, v := range spec.Each("validations") {
		p.validation(v)
	}
	p.auditAnnotations(spec, tree.Str(obj, "metadata", "name"))
	return e.List()
}

// policy is one whose expressions are compiled as it is checked.
type policy struct {
	errs     *check.Errors
	compiler expression.Compiler
	params   bool // whether it has any
}

// scope is what the policy's expressions may name.
func (p *policy) scope() expression.Scope {
	return expression.Scope{Params: p.params, Authorizer: true}
}

// compile checks an expression.
func (p *policy) compile(path check.Path, e *expression.Expression, s expression.Scope) {
	if err := p.compiler.Check(path.Field(), e, s); err != nil {
		p.errs.Add(err)
	}
}

// spec checks what both kinds of policies have.
func (p *policy) spec(obj kinds.Object, mutates bool) check.At {
	e := p.errs
	spec := check.Root(obj).Child("spec")
	spec.Path = check.NewPath("spec")
	e.OptionalOneOf(spec, "failurePolicy", "Fail", "Ignore")
	if kind := spec.Child("paramKind"); kind.Exists() {
		p.params = true
		paramKind(e, kind)
	}
	match := spec.Child("matchConstraints")
	if !match.Exists() {
		e.Required(spec.At("matchConstraints"), "")
	} else {
		matchResources(e, match)
		if match.Len("resourceRules") == 0 {
			e.Required(match.At("resourceRules"), "")
		}
		if mutates {
			mutableOperations(e, match)
		}
	}
	matchConditions(e, spec, p.scope())
	for _, v := range spec.Each("variables") {
		p.variable(v)
	}
	return spec
}

func paramKind(e *check.Errors, kind check.At) {
	text, path := kind.Str("apiVersion"), kind.At("apiVersion")
	group, version, found := strings.Cut(text, "/")
	if !found {
		group, version = "", text
	}
	switch {
	case text == "":
		e.Required(path, "")
	case strings.Count(text, "/") > 1:
		e.Invalid(path, text, "unexpected GroupVersion string: "+text)
	default:
		if messages := validation.IsDNS1123Subdomain(group); group != "" && len(messages) > 0 {
			e.Invalid(path, group, strings.Join(messages, ","))
		}
		if version == "" {
			e.Invalid(path, text, "version must be specified")
		} else if messages := validation.IsDNS1035Label(version); len(messages) > 0 {
			e.Invalid(path, version, strings.Join(messages, ","))
		}
	}
	name := kind.Str("kind")
	if name == "" {
		e.Required(kind.At("kind"), "")
	} else if messages := validation.IsDNS1035Label(strings.ToLower(name)); len(messages) > 0 {
		e.Invalid(kind.At("kind"), name, "may have mixed case, but should otherwise match: "+strings.Join(messages, ","))
	}
}

// celWords cannot be names of variables.
var celWords = []string{
	"true", "false", "null", "in", "as", "break", "const", "continue", "else", "for", "function", "if", "import",
	"let", "loop", "package", "namespace", "return", "var", "void", "while",
}

var celIdentifier = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^[_a-zA-Z][_a-zA-Z0-9]*$`)
})

func (p *policy) variable(v check.At) {
	e, name := p.errs, v.Str("name")
	if strings.TrimSpace(name) == "" {
		e.Required(v.At("name"), "name is not specified")
	} else if !celIdentifier().MatchString(name) || slices.Contains(celWords, name) {
		e.Invalid(v.At("name"), name, "must be a valid CEL identifier")
	}
	text, path := v.Str("expression"), v.At("expression")
	if strings.TrimSpace(text) == "" {
		e.Required(path, "expression is not specified")
	} else if err := p.compiler.Variable(path.Field(), expression.Variable(name, text), p.scope()); err != nil {
		e.Add(err)
	}
}

func (p *policy) validation(v check.At) {
	e := p.errs
	if text, path := v.Str("expression"), v.At("expression"); strings.TrimSpace(text) == "" {
		e.Required(path, "expression is not specified")
	} else {
		p.compile(path, expression.Condition("", text), p.scope())
	}
	for _, name := range []string{"messageExpression", "message"} {
		switch text := v.Str(name); {
		case text != "" && strings.TrimSpace(text) == "":
			e.Invalid(v.At(name), text, "must be non-empty if specified")
		case text != "" && name == "messageExpression":
			p.compile(v.At(name), expression.Text(text), expression.Scope{Params: p.params})
		}
	}
	if text := strings.TrimSpace(v.Str("message")); strings.ContainsAny(text, "\r\n") {
		e.Invalid(v.At("message"), v.Str("message"), "must not contain line breaks")
	}
	e.OptionalOneOf(v, "reason", "Forbidden", "Invalid", "RequestEntityTooLarge")
}

func (p *policy) auditAnnotations(spec check.At, policy string) {
	e := p.errs
	if n := spec.Len("auditAnnotations"); n > auditAnnotationsMax {
		e.Invalid(spec.At("auditAnnotations"), spec.Get("auditAnnotations"),
			fmt.Sprintf("must not have more than %d auditAnnotations", auditAnnotationsMax))
	}
	var keys []string
	for _, a := range spec.Each("auditAnnotations") {
		key, text := a.Str("key"), strings.TrimSpace(a.Str("valueExpression"))
		e.QualifiedName(a.At("key"), policy+"/"+key)
		if text == "" {
			e.Required(a.At("valueExpression"), "valueExpression is not specified")
		} else if len(text) > auditAnnotationBytesMax {
			e.Required(a.At("valueExpression"),
				fmt.Sprintf("must not exceed %d bytes in length", auditAnnotationBytesMax))
		} else {
			p.compile(a.At("valueExpression"), expression.Annotation(text), p.scope())
		}
		if slices.Contains(keys, key) {
			e.Duplicate(a.At("key"), key)
		}
		keys = append(keys, key)
	}
}

func validateMutatingPolicy(obj kinds.Object) field.ErrorList {
	var e check.Errors
	p := policy{errs: &e}
	spec := p.spec(obj, true)
	if spec.Len("mutations") == 0 {
		e.Required(spec.At("mutations"), "mutations must contain at least one item")
	}
	for _, m := range spec.Each("mutations") {
		p.mutation(m)
	}
	e.OneOf(spec, "reinvocationPolicy", "IfNeeded", "Never")
	return e.List()
}

func (p *policy) mutation(m check.At) {
	e, mine, other := p.errs, "applyConfiguration", "jsonPatch"
	changes := expression.Applied
	switch kind := m.Str("patchType"); kind {
	case "JSONPatch":
		mine, other, changes = other, mine, expression.JSONPatch
		fallthrough
	case "ApplyConfiguration":
		if patch := m.Child(mine); !patch.Exists() {
			e.Required(m.At(mine), "must be specified when patchType is "+kind)
		} else if text := strings.TrimSpace(patch.Str("expression")); text == "" {
			e.Required(patch.At("expression"), "")
		} else {
			p.compile(patch.At("expression"), changes(text),
				expression.Scope{Params: p.params, Authorizer: true, Patches: true})
		}
		if m.Has(other) {
			e.Invalid(m.At(other), "{"+other+"}", "must not be specified when patchType is "+kind)
		}
	default:
		e.OneOf(m, "patchType", "ApplyConfiguration", "JSONPatch")
	}
}

func validateValidatingBinding(obj kinds.Object) field.ErrorList {
	var e check.Errors
	spec := bindingSpec(&e, e.Later(), obj)
	actions, path := spec.Strings("validationActions"), spec.At("validationActions")
	for i, action := range actions {
		if action != "Audit" && action != "Deny" && action != "Warn" {
			e.NotSupported(path.Index(i), action, "Audit", "Deny", "Warn")
		}
		if slices.Index(actions, action) < i {
			e.Duplicate(path.Index(i), action)
		}
	}
	if slices.Contains(actions, "Deny") && slices.Contains(actions, "Warn") {
		e.Invalid(path, actions, "must not contain both Deny and Warn (repeating the same validation failure "+
			"information in the API response and headers serves no purpose)")
	}
	if len(actions) == 0 {
		e.Later().Required(path, "")
	}
	return e.List()
}

func validateMutatingBinding(obj kinds.Object) field.ErrorList {
	var e check.Errors
	mutableOperations(&e, bindingSpec(&e, &e, obj).Child("matchResources"))
	return e.List()
}

// bindingSpec checks what both kinds of bindings have. That no policy is named is said in the list missing.
func bindingSpec(e, missing *check.Errors, obj kinds.Object) check.At {
	spec := check.Root(obj).Child("spec")
	spec.Path = check.NewPath("spec")
	if name := spec.Str("policyName"); name == "" {
		missing.Required(spec.At("policyName"), "")
	} else {
		e.Messages(spec.At("policyName"), name, apivalidation.NameIsDNSSubdomain(name, false))
	}
	paramRef(e, spec.Child("paramRef"))
	matchResources(e, spec.Child("matchResources"))
	return spec
}

func paramRef(e *check.Errors, ref check.At) {
	if !ref.Exists() {
		return
	}
	name, selects := ref.Str("name"), ref.Has("selector")
	if name != "" {
		e.Messages(ref.At("name"), name, content.IsPathSegmentName(name))
		if selects {
			e.Forbidden(ref.At("name"), "name and selector are mutually exclusive")
		}
	}
	e.LabelSelector(ref, "selector")
	switch {
	case selects && name != "":
		e.Forbidden(ref.At("selector"), "name and selector are mutually exclusive")
	case !selects && name == "":
		e.Required(ref.Path, "one of name or selector must be specified")
	}
	e.OneOf(ref, "parameterNotFoundAction", "Deny", "Allow")
}
