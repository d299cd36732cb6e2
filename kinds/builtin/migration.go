package builtin

import (
	"strings"
	"time"

	kindschema "k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/setpoint-dev/setpoint/kinds"
	"github.com/setpoint-dev/setpoint/kinds/check"
	"github.com/setpoint-dev/setpoint/kinds/schema"
	"github.com/setpoint-dev/setpoint/kinds/table"
	"github.com/setpoint-dev/setpoint/kinds/tree"
)

func storageVersionMigration() *kinds.Kind {
	name := table.Name()
	name.Format = ""
	return &kinds.Kind{
		Group: "storagemigration.k8s.io", Version: "v1", Kind: "StorageVersionMigration",
		Resource: "storageversionmigrations", Singular: "storageversionmigration",
		Schema: schema.Builtin("io.k8s.api.storagemigration.v1.StorageVersionMigration"),
		Columns: []kinds.Column{
			name,
			table.Column("Resource", "GroupResource to migrate", func(obj kinds.Object, _ time.Time) any {
				r := tree.Map(obj, "spec", "resource")
				return kindschema.GroupResource{Group: tree.Str(r, "group"), Resource: tree.Str(r, "resource")}.String()
			}),
			table.Column("Status", "Status of the migration", migrationState),
		},
		Status:              true,
		UpdateNamesRevision: true,
		DefaultPropagation:  "Background",
		Strategy: kinds.Strategy{
			PrepareForCreate:       emptyStatus(map[string]any{}),
			PrepareForUpdate:       keepStatus,
			PrepareForStatusUpdate: keepSpec,
			Validate:               validateMigration,
			ValidateUpdate: func(obj, old kinds.Object) field.ErrorList {
				var e check.Errors
				if !tree.Equal(obj["spec"], old["spec"]) {
					e.Invalid(check.NewPath("spec"), map[string]any{"Resource": tree.Get(obj, "spec", "resource")},
						check.Immutable)
				}
				return e.List()
			},
			ValidateStatusUpdate: validateMigrationStatus,
		},
	}
}

func migrationState(obj kinds.Object, _ time.Time) any {
	state := "Unknown"
	for _, kind := range []string{"Running", "Failed", "Succeeded"} {
		if conditionTrue(obj, kind) {
			state = kind
		}
	}
	return state
}

// conditionTrue says whether an object has a condition that is true.
func conditionTrue(obj kinds.Object, kind string) bool {
	c := tree.Find(tree.List(obj, "status", "conditions"), "type", kind)
	return tree.Str(c, "status") == "True"
}

func validateMigration(obj kinds.Object) field.ErrorList {
	var e check.Errors
	r := check.Root(obj).Child("spec").Child("resource")
	if name := r.Str("resource"); name == "" {
		e.Required(check.NewPath("spec", "resource", "resource"), "resource is required to be set")
	} else if messages := validation.IsDNS1035Label(name); len(messages) > 0 {
		e.Invalid(r.At("resource"), name, strings.Join(messages, ","))
	}
	if group := r.Str("group"); group != "" {
		if messages := validation.IsDNS1123Subdomain(group); len(messages) > 0 {
			e.Invalid(r.At("group"), group, strings.Join(messages, ","))
		}
	}
	return e.List()
}

func validateMigrationStatus(obj, old kinds.Object) field.ErrorList {
	var e check.Errors
	status := check.Root(obj).Child("status")
	revision, before := status.Str("resourceVersion"), tree.Str(old, "status", "resourceVersion")
	if revision != "" {
		if _, err := resourceversion.CompareResourceVersion(revision, revision); err != nil {
			e.Invalid(status.At("resourceVersion"), revision, err.Error())
		}
	}
	conditions(&e, status)
	if before != "" && before != revision {
		e.Invalid(status.At("resourceVersion"), revision, check.Immutable)
	}
	path, list := status.At("conditions"), status.Get("conditions")
	if conditionTrue(obj, "Succeeded") && conditionTrue(obj, "Failed") {
		e.Invalid(path, list, "Both success and failed conditions cannot be true at the same time")
	}
	if conditionTrue(old, "Succeeded") && !conditionTrue(obj, "Succeeded") {
		e.Invalid(path, list, "Success condition cannot be set to false once it is true")
	}
	if conditionTrue(old, "Failed") && !conditionTrue(obj, "Failed") {
		e.Invalid(path, list, "Failed condition cannot be set to false once it is true")
	}
	return e.List()
}
