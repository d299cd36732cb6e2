package builtin

import (
	"iter"

	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	apicel "k8s.io/apiserver/pkg/cel"
	"k8s.io/dynamic-resource-allocation/cel"

	"github.com/setpoint-dev/setpoint/kinds"
	"github.com/setpoint-dev/setpoint/kinds/check"
	"github.com/setpoint-dev/setpoint/kinds/tree"
)

// deviceExpression compiles what a selector says of devices. One that may cost too much to ask about
// every device is refused.
func deviceExpression(e *check.Errors, path check.Path, expression string) {
	if len(expression) > resourcev1.CELSelectorExpressionMaxLength {
		e.TooLong(path, resourcev1.CELSelectorExpressionMaxLength)
		return
	}
	compiler := cel.GetCompiler(cel.Features{EnableConsumableCapacity: true}) // as of version 1.37
	result := compiler.CompileCELExpression(expression, cel.Options{})
	switch failed := result.Error; {
	case failed == nil:
		if result.MaxCost > resourcev1.CELSelectorExpressionMaxCost {
			e.Forbidden(path, "too complex, exceeds cost limit")
		}
	case failed.Type == apicel.ErrorTypeRequired:
		e.Required(path, failed.Detail)
	case failed.Type == apicel.ErrorTypeInvalid:
		e.Invalid(path, expression, failed.Detail)
	default:
		e.Add(field.InternalError(path.Field(), failed))
	}
}

// adminLabel, on a namespace, lets its claims have devices that others use, to look after them.
const adminLabel = "resource.kubernetes.io/admin-access"

// adminRefused says that one of the requests asks for such access, and the namespace may not have it; nil if
// all is well.
func adminRefused(env *kinds.Env, obj kinds.Object, requests iter.Seq2[int, map[string]any]) *field.Error {
	for i, r := range requests {
		if !tree.Bool(r, "exactly", "adminAccess") {
			continue
		}
		namespace := env.Get("", "namespaces", "", tree.Str(obj, "metadata", "namespace"))
		if tree.Str(namespace, "metadata", "labels", adminLabel) == "true" {
			return nil
		}
		return field.Forbidden(field.NewPath("spec", "devices", "requests").Index(i).Child("adminAccess"),
			"admin access to devices requires the `"+adminLabel+": true` label on the containing namespace")
	}
	return nil
}

// invalidClaim is the answer to a claim, or a template of one, that may not ask what it asks: together with
// what else is wrong with it.
func invalidClaim(kind string, obj kinds.Object, first *field.Error, others field.ErrorList) error {
	return apierrors.NewInvalid(schema.GroupKind{Group: resourceGroup, Kind: kind},
		tree.Str(obj, "metadata", "name"), append(field.ErrorList{first}, others...))
}
