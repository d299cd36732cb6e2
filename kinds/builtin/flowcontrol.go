package builtin

import (
	"cmp"
	"time"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/setpoint-dev/setpoint/kinds"
	"github.com/setpoint-dev/setpoint/kinds/check"
	"github.com/setpoint-dev/setpoint/kinds/schema"
	"github.com/setpoint-dev/setpoint/kinds/table"
	"github.com/setpoint-dev/setpoint/kinds/tree"
)

const flowcontrolGroup = "flowcontrol.apiserver.k8s.io"

// What a priority level and a flow schema are unless they say otherwise.
const (
	precedence       = 1000
	shares           = 30
	handSize         = 8
	queues           = 64
	queueLengthLimit = 50
)

func flowSchema() *kinds.Kind {
	doc := flowcontrolv1.FlowSchemaSpec{}.SwaggerDoc()
	return &kinds.Kind{
		Group: flowcontrolGroup, Version: "v1", Kind: "FlowSchema", Resource: "flowschemas", Singular: "flowschema",
		Schema: schema.Builtin("io.k8s.api.flowcontrol.v1.FlowSchema"),
		Columns: []kinds.Column{
			table.Name(),
			table.Text("PriorityLevel", flowcontrolv1.PriorityLevelConfigurationReference{}.SwaggerDoc()["name"],
				"spec", "priorityLevelConfiguration", "name"),
			countText("MatchingPrecedence", doc["matchingPrecedence"], "spec", "matchingPrecedence"),
			table.Column("DistinguisherMethod", doc["distinguisherMethod"], func(obj kinds.Object, _ time.Time) any {
				return table.Or(tree.Str(obj, "spec", "distinguisherMethod", "type"), table.None)
			}),
			table.Age(),
			table.Column("MissingPL", "references a broken or non-existent PriorityLevelConfiguration",
				func(obj kinds.Object, _ time.Time) any {
					dangling := tree.Find(tree.List(obj, "status", "conditions"), "type", "Dangling")
					return table.Or(tree.Str(dangling, "status"), "?")
				}),
		},
		RowOrder: func(a, b kinds.Object) int { // those that are asked first
			return cmp.Compare(tree.Int(a, "spec", "matchingPrecedence"), tree.Int(b, "spec", "matchingPrecedence"))
		},
		Status:             true,
		Generation:         true,
		DefaultPropagation: "Background",
		Strategy: kinds.Strategy{
			Default: func(obj kinds.Object) {
				if spec := tree.Ensure(obj, "spec"); tree.Int(spec, "matchingPrecedence") == 0 {
					spec["matchingPrecedence"] = int64(precedence)
				}
			},
			PrepareForCreate:       emptyStatus(map[string]any{}),
			PrepareForUpdate:       keepStatus,
			PrepareForStatusUpdate: keepSpec,
			Validate:               validateFlowSchema,
			ValidateStatusUpdate:   typedConditions,
		},
	}
}

func priorityLevel() *kinds.Kind {
	queuing := flowcontrolv1.QueuingConfiguration{}.SwaggerDoc()
	return &kinds.Kind{
		Group: flowcontrolGroup, Version: "v1", Kind: "PriorityLevelConfiguration",
		Resource: "prioritylevelconfigurations", Singular: "prioritylevelconfiguration",
		Schema: schema.Builtin("io.k8s.api.flowcontrol.v1.PriorityLevelConfiguration"),
		Columns: []kinds.Column{
			table.Name(),
			table.Text("Type", flowcontrolv1.PriorityLevelConfigurationSpec{}.SwaggerDoc()["type"], "spec", "type"),
			countOrNone("NominalConcurrencyShares",
				flowcontrolv1.LimitedPriorityLevelConfiguration{}.SwaggerDoc()["nominalConcurrencyShares"],
				"nominalConcurrencyShares"),
			countOrNone("Queues", queuing["queues"], "limitResponse", "queuing", "queues"),
			countOrNone("HandSize", queuing["handSize"], "limitResponse", "queuing", "handSize"),
			countOrNone("QueueLengthLimit", queuing["queueLengthLimit"], "limitResponse", "queuing", "queueLengthLimit"),
			table.Age(),
		},
		Status:             true,
		Generation:         true,
		DefaultPropagation: "Background",
		Strategy: kinds.Strategy{
			Default:                defaultPriorityLevel,
			PrepareForCreate:       emptyStatus(map[string]any{}),
			PrepareForUpdate:       keepStatus,
			PrepareForStatusUpdate: keepSpec,
			Validate:               validatePriorityLevel,
			ValidateStatusUpdate:   typedConditions,
		},
	}
}

// countOrNone is a column of a number of a limited priority level.
func countOrNone(name, description string, path ...string) kinds.Column {
	return table.Column(name, description, func(obj kinds.Object, _ time.Time) any {
		if n, ok := tree.Get(tree.Map(obj, "spec", "limited"), path...).(int64); ok {
			return n
		}
		return table.None
	})
}

func defaultPriorityLevel(obj kinds.Object) {
	spec := tree.Ensure(obj, "spec")
	if exempt := tree.Map(spec, "exempt"); exempt != nil {
		tree.Default(exempt, int64(0), "nominalConcurrencyShares")
		tree.Default(exempt, int64(0), "lendablePercent")
	}
	limited := tree.Map(spec, "limited")
	if limited == nil {
		return
	}
	tree.Default(limited, int64(shares), "nominalConcurrencyShares")
	tree.Default(limited, int64(0), "lendablePercent")
	if q := tree.Map(limited, "limitResponse", "queuing"); q != nil {
		for name, value := range map[string]int64{
			"handSize": handSize, "queues": queues, "queueLengthLimit": queueLengthLimit,
		} {
			if tree.Int(q, name) == 0 {
				q[name] = value
			}
		}
	}
}

// typedConditions checks conditions that say little more than their type.
func typedConditions(obj, _ kinds.Object) field.ErrorList {
	var e check.Errors
	seen := map[string]bool{}
	for _, c := range check.Root(obj).Child("status").Each("conditions") {
		kind := c.Str("type")
		if seen[kind] {
			e.Duplicate(c.At("type"), kind)
		}
		if seen[kind] = true; kind == "" {
			e.Required(c.At("type"), "")
		}
	}
	return e.List()
}
