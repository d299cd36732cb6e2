package builtin

import (
	"slices"
	"strings"

	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/setpoint-dev/setpoint/kinds"
	"github.com/setpoint-dev/setpoint/kinds/check"
	"github.com/setpoint-dev/setpoint/kinds/schema"
	"github.com/setpoint-dev/setpoint/kinds/table"
	"github.com/setpoint-dev/setpoint/kinds/tree"
)

// ownFinalizer keeps a namespace until everything in it is gone.
const ownFinalizer = "kubernetes"

func namespace() *kinds.Kind {
	return &kinds.Kind{
		Version: "v1", Kind: "Namespace", Resource: "namespaces", Singular: "namespace",
		ShortNames: []string{"ns"},
		Verbs:      []string{"create", "delete", "get", "list", "patch", "update", "watch"},
		Schema:     schema.Builtin("io.k8s.api.core.v1.Namespace"),
		Columns: []kinds.Column{
			table.Name(),
			table.Text("Status", "The status of the namespace", "status", "phase"),
			table.Age(),
		},
		Status:             true,
		ReturnDeleted:      true,
		DefaultPropagation: "Background",
		NameRule:           apivalidation.ValidateNamespaceName,
		Fields: map[string]func(kinds.Object) string{
			"status.phase": func(obj kinds.Object) string { return tree.Str(obj, "status", "phase") },
		},
		Subresources: []kinds.Subresource{
			{Name: "finalize", Verbs: []string{"update"}, Strategy: &kinds.Strategy{
				Default:          defaultNamespace,
				PrepareForUpdate: keepAllButFinalizers,
				ValidateUpdate:   validateFinalize,
			}},
		},
		Strategy: kinds.Strategy{
			Default:                defaultNamespace,
			PrepareForCreate:       prepareNamespace,
			PrepareForUpdate:       keepFinalizersAndStatus,
			PrepareForStatusUpdate: keepSpec,
			Validate:               validateNamespace,
			ValidateStatusUpdate:   validateNamespaceStatus,
		},
	}
}

// defaultNamespace labels it with its name, so that selectors can choose it.
func defaultNamespace(obj kinds.Object) {
	if name := tree.Str(obj, "metadata", "name"); name != "" {
		tree.Set(obj, name, "metadata", "labels", "kubernetes.io/metadata.name")
	}
	tree.Default(obj, "Active", "status", "phase")
}

func prepareNamespace(_ *kinds.Env, obj kinds.Object) error {
	defaultNamespace(obj)
	obj["status"] = map[string]any{"phase": "Active"}
	finalizers := tree.List(obj, "spec", "finalizers")
	if !slices.Contains(finalizers, any(ownFinalizer)) {
		tree.Set(obj, append(slices.Clip(finalizers), ownFinalizer), "spec", "finalizers")
	}
	return nil
}

func keepFinalizersAndStatus(_ *kinds.Env, obj, old kinds.Object) error {
	tree.Move("finalizers", tree.Map(old, "spec"), tree.Ensure(obj, "spec"))
	tree.Move("status", old, obj)
	return nil
}

func keepAllButFinalizers(_ *kinds.Env, obj, old kinds.Object) error {
	finalizers := tree.Get(obj, "spec", "finalizers")
	spec := tree.CopyMap(tree.Map(old, "spec"))
	if spec == nil {
		spec = map[string]any{}
	}
	obj["spec"] = spec
	if list, _ := finalizers.([]any); len(list) > 0 {
		spec["finalizers"] = list
	} else {
		delete(spec, "finalizers")
	}
	tree.Move("status", old, obj)
	return nil
}

func validateNamespace(obj kinds.Object) field.ErrorList {
	var e check.Errors
	for _, name := range tree.Strings(obj, "spec", "finalizers") {
		finalizer(&e, check.NewPath("spec", "finalizers"), name)
	}
	return e.List()
}

func validateFinalize(obj, _ kinds.Object) field.ErrorList {
	var e check.Errors
	for i, name := range tree.Strings(obj, "spec", "finalizers") {
		finalizer(&e, check.NewPath("spec", "finalizers").Index(i), name)
	}
	return e.List()
}

func finalizer(e *check.Errors, path check.Path, name string) {
	e.QualifiedName(path, name)
	standard := []string{ownFinalizer, "orphan", "foregroundDeletion"}
	if !strings.Contains(name, "/") && !slices.Contains(standard, name) {
		e.Invalid(path, name, "name is neither a standard finalizer name nor is it fully qualified")
	}
}

func validateNamespaceStatus(obj, _ kinds.Object) field.ErrorList {
	var e check.Errors
	path, phase := check.NewPath("status", "Phase"), tree.Str(obj, "status", "phase")
	deleting := tree.Has(obj, "metadata", "deletionTimestamp")
	switch {
	case !deleting && phase != "Active":
		e.Invalid(path, phase, "may only be 'Active' if `deletionTimestamp` is empty")
	case deleting && phase != "Terminating":
		e.Invalid(path, phase, "may only be 'Terminating' if `deletionTimestamp` is not empty")
	}
	return e.List()
}
