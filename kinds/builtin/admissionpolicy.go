package builtin

import (
	"time"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/setpoint-dev/setpoint/kinds"
	"github.com/setpoint-dev/setpoint/kinds/check"
	"github.com/setpoint-dev/setpoint/kinds/schema"
	"github.com/setpoint-dev/setpoint/kinds/table"
	"github.com/setpoint-dev/setpoint/kinds/tree"
)

func validatingPolicy() *kinds.Kind {
	k := admissionKind("ValidatingAdmissionPolicy", "validatingadmissionpolicies", "validatingadmissionpolicy",
		countItems("Validations", "Validations indicates the number of validation rules defined in this configuration",
			"spec", "validations"),
		paramKindColumn())
	k.Status = true
	k.Strategy = kinds.Strategy{
		Default:                defaultPolicy,
		PrepareForCreate:       emptyStatus(map[string]any{}),
		PrepareForUpdate:       keepStatus,
		PrepareForStatusUpdate: keepSpec,
		Validate:               validateValidatingPolicy,
		ValidateStatusUpdate:   validatePolicyStatus,
	}
	return k
}

func mutatingPolicy() *kinds.Kind {
	k := admissionKind("MutatingAdmissionPolicy", "mutatingadmissionpolicies", "mutatingadmissionpolicy",
		countItems("Mutations", "Mutation indicates the number of mutations rules defined in this configuration",
			"spec", "mutations"),
		paramKindColumn())
	k.Strategy = kinds.Strategy{Default: defaultPolicy, Validate: validateMutatingPolicy}
	return k
}

func validatingPolicyBinding() *kinds.Kind {
	k := policyBinding("ValidatingAdmissionPolicyBinding",
		"validatingadmissionpolicybindings", "validatingadmissionpolicybinding")
	k.Strategy.Validate = validateValidatingBinding
	return k
}

func mutatingPolicyBinding() *kinds.Kind {
	k := policyBinding("MutatingAdmissionPolicyBinding",
		"mutatingadmissionpolicybindings", "mutatingadmissionpolicybinding")
	k.Strategy.Validate = validateMutatingBinding
	return k
}

func policyBinding(kind, resource, singular string) *kinds.Kind {
	k := admissionKind(kind, resource, singular,
		table.Text("PolicyName", "PolicyName indicates the policy definition which the policy binding binded to",
			"spec", "policyName"),
		table.Column("ParamRef", "ParamRef indicates the param resource which sets the configuration param", paramRefCell))
	k.Strategy.Default = func(obj kinds.Object) { defaultMatch(tree.Map(obj, "spec", "matchResources")) }
	return k
}

func admissionKind(kind, resource, singular string, columns ...kinds.Column) *kinds.Kind {
	return &kinds.Kind{
		Group: admissionGroup, Version: "v1", Kind: kind, Resource: resource, Singular: singular,
		Categories:          []string{extensions},
		Schema:              schema.Builtin("io.k8s.api.admissionregistration.v1." + kind),
		Columns:             append(append([]kinds.Column{table.Name()}, columns...), table.Age()),
		Generation:          true,
		UpdateNamesRevision: true,
		DefaultPropagation:  "Background",
	}
}

func paramKindColumn() kinds.Column {
	return table.Column("ParamKind", "ParamKind specifies the kind of resources used to parameterize this policy",
		func(obj kinds.Object, _ time.Time) any {
			kind := tree.Map(obj, "spec", "paramKind")
			if kind == nil {
				return table.Unset
			}
			return tree.Str(kind, "apiVersion") + "/" + tree.Str(kind, "kind")
		})
}

func paramRefCell(obj kinds.Object, _ time.Time) any {
	ref := tree.Map(obj, "spec", "paramRef")
	switch name := tree.Str(ref, "name"); {
	case name != "":
		return table.Or(tree.Str(ref, "namespace"), "*") + "/" + name
	case tree.Has(ref, "selector"):
		return check.LabelSelector(tree.Map(ref, "selector")).String()
	}
	return table.Unset
}

func defaultPolicy(obj kinds.Object) {
	spec := tree.Ensure(obj, "spec")
	tree.Default(spec, "Fail", "failurePolicy")
	defaultMatch(tree.Map(spec, "matchConstraints"))
}

func defaultMatch(m map[string]any) {
	if m == nil {
		return
	}
	tree.Default(m, "Equivalent", "matchPolicy")
	tree.Default(m, map[string]any{}, "namespaceSelector")
	tree.Default(m, map[string]any{}, "objectSelector")
	defaultScopes(m, "resourceRules")
	defaultScopes(m, "excludeResourceRules")
}

func validatePolicyStatus(obj, _ kinds.Object) field.ErrorList {
	var e check.Errors
	status := check.Root(obj).Child("status")
	for _, w := range status.Child("typeChecking").Each("expressionWarnings") {
		if w.Str("warning") == "" {
			e.Required(w.At("warning"), "")
		}
		if w.Str("fieldRef") == "" {
			e.Required(w.At("fieldRef"), "")
		}
	}
	conditions(&e, status)
	return e.List()
}
