package builtin

import (
	apivalidation "k8s.io/apimachinery/pkg/api/validation"

	"github.com/setpoint-dev/setpoint/kinds"
	"github.com/setpoint-dev/setpoint/kinds/schema"
	"github.com/setpoint-dev/setpoint/kinds/table"
	"github.com/setpoint-dev/setpoint/kinds/tree"
)

func serviceAccount() *kinds.Kind {
	return &kinds.Kind{
		Version: "v1", Kind: "ServiceAccount", Resource: "serviceaccounts", Singular: "serviceaccount",
		ShortNames: []string{"sa"}, Namespaced: true,
		Schema:             schema.Builtin("io.k8s.api.core.v1.ServiceAccount"),
		Columns:            []kinds.Column{table.Name(), table.Age()},
		ReturnDeleted:      true,
		DefaultPropagation: "Background",
		NameRule:           apivalidation.ValidateServiceAccountName,
		Strategy: kinds.Strategy{
			Warnings: func(obj, old kinds.Object) []string {
				const key = "kubernetes.io/enforce-mountable-secrets"
				if tree.Has(old, "metadata", "annotations", key) || !tree.Has(obj, "metadata", "annotations", key) {
					return nil
				}
				return []string{"metadata.annotations[" + key + "]: deprecated in v1.32+; prefer separate namespaces to " +
					"isolate access to mounted secrets"}
			},
			PrepareForCreate: func(_ *kinds.Env, obj kinds.Object) error {
				nameSecretsOnly(obj)
				return nil
			},
			PrepareForUpdate: func(_ *kinds.Env, obj, _ kinds.Object) error {
				nameSecretsOnly(obj)
				return nil
			},
		},
	}
}

// nameSecretsOnly drops what an account says of its secrets beside their names.
func nameSecretsOnly(obj kinds.Object) {
	for i, ref := range tree.Maps(obj, "secrets") {
		kept := map[string]any{}
		if name := tree.Str(ref, "name"); name != "" {
			kept["name"] = name
		}
		tree.List(obj, "secrets")[i] = kept
	}
}
