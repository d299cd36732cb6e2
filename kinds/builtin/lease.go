package builtin

import (
	"strings"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/setpoint-dev/setpoint/kinds"
	"github.com/setpoint-dev/setpoint/kinds/check"
	"github.com/setpoint-dev/setpoint/kinds/schema"
	"github.com/setpoint-dev/setpoint/kinds/table"
	"github.com/setpoint-dev/setpoint/kinds/tree"
)

// leaseStrategy is the one way of choosing a leader that Kubernetes names.
const leaseStrategy = "OldestEmulationVersion"

func lease() *kinds.Kind {
	return &kinds.Kind{
		Group: "coordination.k8s.io", Version: "v1", Kind: "Lease", Resource: "leases", Singular: "lease",
		Namespaced: true,
		Schema:     schema.Builtin("io.k8s.api.coordination.v1.Lease"),
		Columns: []kinds.Column{
			table.Name(),
			table.Text("Holder", coordinationv1.LeaseSpec{}.SwaggerDoc()["holderIdentity"],
				"spec", "holderIdentity"),
			table.Age(),
		},
		CreateOnUpdate:      true,
		UpdateNamesRevision: true,
		DefaultPropagation:  "Background",
		Strategy: kinds.Strategy{
			PrepareForCreate: func(_ *kinds.Env, obj kinds.Object) error {
				uncoordinated(obj, nil)
				return nil
			},
			PrepareForUpdate: func(_ *kinds.Env, obj, old kinds.Object) error {
				uncoordinated(obj, old)
				return nil
			},
			Validate: validateLease,
		},
	}
}

// uncoordinated drops what is said of an election by the server, which Kubernetes has behind a gate, unless it
// was there before.
func uncoordinated(obj, old kinds.Object) {
	for _, name := range []string{"strategy", "preferredHolder"} {
		if !tree.Has(old, "spec", name) {
			tree.Delete(obj, "spec", name)
		}
	}
}

func validateLease(obj kinds.Object) field.ErrorList {
	var e check.Errors
	spec := check.Root(obj).Child("spec")
	if n := spec.Int("leaseDurationSeconds"); spec.Has("leaseDurationSeconds") && n <= 0 {
		e.Invalid(spec.At("leaseDurationSeconds"), n, "must be greater than 0")
	}
	e.NotNegative(spec, "leaseTransitions")
	strategy, path := spec.Str("strategy"), spec.At("strategy").Child("strategy")
	if spec.Has("strategy") {
		if strings.Contains(strategy, "/") {
			e.QualifiedName(path, strategy)
		} else if strategy != leaseStrategy {
			e.NotSupported(path, strategy, leaseStrategy)
		}
	}
	if spec.Str("preferredHolder") != "" && strategy == "" {
		e.Forbidden(spec.At("preferredHolder"), "may only be specified if `strategy` is defined")
	}
	return e.List()
}
