package builtin

import (
	apivalidation "k8s.io/apimachinery/pkg/api/validation"

	"github.com/setpoint-dev/setpoint/kinds"
	"github.com/setpoint-dev/setpoint/kinds/schema"
	"github.com/setpoint-dev/setpoint/kinds/table"
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
	}
}
