package workergroup

import (
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/setpoint-dev/setpoint/kinds"
	"github.com/setpoint-dev/setpoint/kinds/check"
	"github.com/setpoint-dev/setpoint/kinds/schema"
	"github.com/setpoint-dev/setpoint/kinds/table"
)

// replicasMax bounds a group: a typing error should not be a thousand processes.
const replicasMax = 100

// Kind is the record by which a server serves WorkerGroups as it serves anything else.
func Kind() *kinds.Kind {
	defaults := map[string]any{"spec.replicas": int64(1)}
	return &kinds.Kind{
		Group: GroupVersion.Group, Version: GroupVersion.Version, Kind: "WorkerGroup",
		Resource: "workergroups", Singular: "workergroup", ShortNames: []string{"wg"},
		Namespaced: true,
		Schema:     schema.OfGo("dev.example.v1.WorkerGroup", &WorkerGroup{}).WithDefaults(defaults),
		Status:     true,
		Scale:      &kinds.Scale{SpecReplicas: "spec.replicas", StatusReplicas: "status.existing"},
		Generation: true,
		Columns: []kinds.Column{
			table.Name(),
			table.Count("Desired", "How many workers there should be", "spec", "replicas"),
			table.Count("Existing", "How many there are", "status", "existing"),
			table.Count("Scheduled", "How many have a node", "status", "scheduled"),
			table.Count("Started", "How many have a process", "status", "started"),
			table.Count("Ready", "How many work", "status", "ready"),
			table.Age(),
		},
		DefaultPropagation: "Background",
		Strategy:           kinds.Strategy{Validate: validate},
	}
}

// validate says what is wrong with a group, by field.
func validate(obj kinds.Object) field.ErrorList {
	var e check.Errors
	spec := check.Root(obj).Child("spec")
	if n := spec.Int("replicas"); n < 0 || n > replicasMax {
		e.Invalid(spec.At("replicas"), n, "must be from 0 to 100")
	}
	if spec.Len("command") == 0 {
		e.Required(spec.At("command"), "a worker needs something to run")
	}
	return e.List()
}
