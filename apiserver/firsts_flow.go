package apiserver

import (
	"fmt"
	"time"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/apis/flowcontrol/bootstrap"

	"github.com/setpoint-dev/setpoint/kinds"
	"github.com/setpoint-dev/setpoint/kinds/tree"
)

// Who writes the flow schemas and priority levels of a new cluster, and who their status.
const (
	flowProducer = "api-priority-and-fairness-config-producer-v1"
	flowConsumer = "api-priority-and-fairness-config-consumer-v1"
)

// flows are the priority levels and flow schemas that every cluster of this version has: those that
// must be there, and those that are proposed.
func (s *Server) flows() []first {
	var all []first
	for _, levels := range [][]*flowcontrolv1.PriorityLevelConfiguration{
		bootstrap.MandatoryPriorityLevelConfigurations, bootstrap.SuggestedPriorityLevelConfigurations,
	} {
		for _, level := range levels {
			all = append(all, flow("PriorityLevelConfiguration", level, nil))
		}
	}
	for _, schemas := range [][]*flowcontrolv1.FlowSchema{
		bootstrap.MandatoryFlowSchemas, bootstrap.SuggestedFlowSchemas,
	} {
		for _, schema := range schemas {
			all = append(all, flow("FlowSchema", schema, s.notDangling(schema)))
		}
	}
	return all
}

// flow is one of flows. Its object is the package's own, and is copied.
func flow(kind string, obj runtime.Object, status kinds.Object) first {
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(obj)
	if err != nil {
		panic(fmt.Sprintf("apiserver: %s of a new cluster: %v", kind, err)) // it is no input
	}
	return first{
		gvk: flowcontrolv1.SchemeGroupVersion.WithKind(kind),
		obj: kinds.Object{
			"metadata": map[string]any{
				"name": tree.Str(fields, "metadata", "name"),
				"annotations": map[string]any{
					flowcontrolv1.AutoUpdateAnnotationKey: "true",
				},
			},
			"spec": fields["spec"],
		},
		manager:       flowProducer,
		status:        status,
		statusManager: flowConsumer,
	}
}

// notDangling is the status of a flow schema whose priority level is there.
func (s *Server) notDangling(schema *flowcontrolv1.FlowSchema) kinds.Object {
	return kinds.Object{"conditions": []any{map[string]any{
		"type":   string(flowcontrolv1.FlowSchemaConditionDangling),
		"status": string(metav1.ConditionFalse),
		"reason": "Found",
		"message": fmt.Sprintf("This FlowSchema references the PriorityLevelConfiguration object named %q and it exists",
			schema.Spec.PriorityLevelConfiguration.Name),
		"lastTransitionTime": s.clock.Now().UTC().Format(time.RFC3339),
	}}}
}
