package builtin

import (
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/setpoint-dev/setpoint/kinds"
	"github.com/setpoint-dev/setpoint/kinds/builtin/pod"
	"github.com/setpoint-dev/setpoint/kinds/check"
	"github.com/setpoint-dev/setpoint/kinds/schema"
	"github.com/setpoint-dev/setpoint/kinds/table"
	"github.com/setpoint-dev/setpoint/kinds/tree"
)

func replicationController() *kinds.Kind {
	spec, status := corev1.ReplicationControllerSpec{}.SwaggerDoc(), corev1.ReplicationControllerStatus{}.SwaggerDoc()
	return &kinds.Kind{
		Version: "v1", Kind: "ReplicationController",
		Resource: "replicationcontrollers", Singular: "replicationcontroller",
		ShortNames: []string{"rc"}, Categories: []string{"all"}, Namespaced: true,
		Schema: schema.Builtin("io.k8s.api.core.v1.ReplicationController"),
		Columns: append([]kinds.Column{
			table.Name(),
			table.Count("Desired", spec["replicas"], "spec", "replicas"),
			table.Count("Current", status["replicas"], "status", "replicas"),
			table.Count("Ready", status["readyReplicas"], "status", "readyReplicas"),
			table.Age(),
		}, append(templateColumns("")[:2], table.Wide(
			table.Column("Selector", spec["selector"], labelsCell("spec", "selector")))...)...),
		Status:             true,
		Scale:              replicaScale(),
		Generation:         true,
		DefaultPropagation: "Orphan", // as it was before there was a collector
		Fields: map[string]func(kinds.Object) string{
			"status.replicas": func(obj kinds.Object) string {
				return strconv.FormatInt(tree.Int(obj, "status", "replicas"), 10)
			},
		},
		NameRule: func(string, bool) []string { return nil }, // validateNewReplicationController
		Strategy: kinds.Strategy{
			Default:                defaultReplicationController,
			PrepareForCreate:       emptyStatus(map[string]any{"replicas": int64(0)}),
			PrepareForUpdate:       keepStatus,
			PrepareForStatusUpdate: keepSpec,
			Validate:               validateReplicationController,
			ValidateCreate:         validateNewReplicationController,
			ValidateStatusUpdate:   validateReplicaSetStatus,
			Warnings:               templateWarnings,
		},
	}
}

// labelsCell prints the labels at a path: "a=b,c=d".
func labelsCell(path ...string) func(kinds.Object, time.Time) any {
	return func(obj kinds.Object, _ time.Time) any { return labels.FormatLabels(tree.StringMap(obj, path...)) }
}

func defaultReplicationController(obj kinds.Object) {
	spec := tree.Ensure(obj, "spec")
	if labels := tree.Map(spec, "template", "metadata", "labels"); labels != nil {
		if len(tree.Map(spec, "selector")) == 0 {
			spec["selector"] = tree.CopyMap(labels)
		}
		if len(tree.Map(obj, "metadata", "labels")) == 0 {
			tree.Set(obj, tree.CopyMap(labels), "metadata", "labels")
		}
	}
	tree.Default(spec, int64(1), "replicas")
	if template := tree.Map(spec, "template"); template != nil {
		pod.DefaultSpec(tree.Ensure(template, "spec"))
	}
}

// validateNewReplicationController checks the name, which is told of last.
func validateNewReplicationController(obj kinds.Object) field.ErrorList {
	var e check.Errors
	if name := tree.Str(obj, "metadata", "name"); name != "" {
		e.DNSSubdomain(check.NewPath("metadata", "name"), name)
	}
	return e.List()
}

func validateReplicationController(obj kinds.Object) field.ErrorList {
	var e check.Errors
	spec := check.Root(obj).Child("spec")
	e.NotNegative(spec, "minReadySeconds")
	selector := labels.Set(spec.StringMap("selector")).AsSelector()
	if selector.Empty() {
		e.Required(spec.At("selector"), "")
	}
	e.NotNegative(spec, "replicas")
	template := spec.Child("template")
	if !template.Exists() {
		e.Required(template.Path, "")
		return e.List()
	}
	meta := template.Child("metadata")
	if set := meta.StringMap("labels"); !selector.Empty() && !selector.Matches(labels.Set(set)) {
		e.Invalid(meta.At("labels"), set, "`selector` does not match template `labels`")
	}
	pod.CheckTemplate(&e, template)
	runsForEver(&e, template.Child("spec"), "ReplicationController")
	return e.List()
}

func podTemplate() *kinds.Kind {
	containers := func(name string) func(kinds.Object, time.Time) any {
		return func(obj kinds.Object, _ time.Time) any {
			return table.Joined(tree.List(obj, "template", "spec", "containers"), name)
		}
	}
	return &kinds.Kind{
		Version: "v1", Kind: "PodTemplate", Resource: "podtemplates", Singular: "podtemplate", Namespaced: true,
		Schema: schema.Builtin("io.k8s.api.core.v1.PodTemplate"),
		Columns: []kinds.Column{
			table.Name(),
			table.Column("Containers", "Names of each container in the template.", containers("name")),
			table.Column("Images", "Images referenced by each container in the template.", containers("image")),
			table.Column("Pod Labels", "The labels for the pod template.",
				labelsCell("template", "metadata", "labels")),
		},
		Generation:         true,
		ReturnDeleted:      true,
		DefaultPropagation: "Background",
		Strategy: kinds.Strategy{
			Default: func(obj kinds.Object) { pod.DefaultSpec(tree.Ensure(obj, "template", "spec")) },
			Validate: func(obj kinds.Object) field.ErrorList {
				var e check.Errors
				pod.CheckTemplate(&e, check.Root(obj).Child("template"))
				return e.List()
			},
			Warnings: func(obj, old kinds.Object) []string {
				if old != nil && tree.Equal(obj["template"], old["template"]) {
					return nil
				}
				return pod.Warnings(check.Root(obj).Child("template"))
			},
		},
	}
}
