package builtin

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/setpoint-dev/setpoint/kinds"
	"github.com/setpoint-dev/setpoint/kinds/builtin/pod"
	"github.com/setpoint-dev/setpoint/kinds/check"
	"github.com/setpoint-dev/setpoint/kinds/schema"
	"github.com/setpoint-dev/setpoint/kinds/table"
	"github.com/setpoint-dev/setpoint/kinds/tree"
)

// storageClassAnnotation is where a volume or a claim named its class before there was a field for it.
const storageClassAnnotation = "volume.beta.kubernetes.io/storage-class"

const notPositive = "must be greater than zero"

func persistentVolumeClaim() *kinds.Kind {
	spec, status := corev1.PersistentVolumeClaimSpec{}.SwaggerDoc(), corev1.PersistentVolumeClaimStatus{}.SwaggerDoc()
	return &kinds.Kind{
		Version: "v1", Kind: "PersistentVolumeClaim",
		Resource: "persistentvolumeclaims", Singular: "persistentvolumeclaim",
		ShortNames: []string{"pvc"}, Namespaced: true,
		Schema: schema.Builtin("io.k8s.api.core.v1.PersistentVolumeClaim"),
		Columns: append([]kinds.Column{
			table.Name(),
			table.Column("Status", status["phase"], volumePhase),
			table.Text("Volume", spec["volumeName"], "spec", "volumeName"),
			table.Column("Capacity", status["capacity"], func(obj kinds.Object, _ time.Time) any {
				if tree.Str(obj, "spec", "volumeName") == "" {
					return ""
				}
				return table.Or(tree.Str(obj, "status", "capacity", "storage"), "0")
			}),
			table.Column("Access Modes", status["accessModes"], func(obj kinds.Object, _ time.Time) any {
				if tree.Str(obj, "spec", "volumeName") == "" {
					return ""
				}
				return accessModesText(tree.Strings(obj, "status", "accessModes"))
			}),
			table.Column("StorageClass", "StorageClass of the pvc", storageClassOf),
			table.Column("VolumeAttributesClass", "VolumeAttributesClass of the pvc",
				setText("spec", "volumeAttributesClassName")),
			table.Age(),
		}, table.Wide(table.Column("VolumeMode", spec["volumeMode"], setText("spec", "volumeMode")))...),
		Status:             true,
		ReturnDeleted:      true,
		DefaultPropagation: "Background",
		Strategy: kinds.Strategy{
			Default: defaultClaim,
			PrepareForCreate: func(_ *kinds.Env, obj kinds.Object) error {
				obj["status"] = map[string]any{"phase": "Pending"}
				dataSources(tree.Ensure(obj, "spec"), nil)
				return nil
			},
			PrepareForUpdate: func(_ *kinds.Env, obj, old kinds.Object) error {
				tree.Move("status", old, obj)
				dataSources(tree.Ensure(obj, "spec"), tree.Map(old, "spec"))
				return nil
			},
			PrepareForStatusUpdate: keepSpec,
			ValidateCreate: func(obj kinds.Object) field.ErrorList {
				var e check.Errors
				pod.CheckClaimSpec(&e, check.Root(obj).Child("spec"), true)
				return e.List()
			},
			ValidateUpdate:       validateClaimUpdate,
			ValidateStatusUpdate: validateClaimStatus,
			Warnings:             claimWarnings,
		},
	}
}

func defaultClaim(obj kinds.Object) {
	tree.Default(tree.Ensure(obj, "spec"), "Filesystem", "volumeMode")
	setIfEmpty(tree.Ensure(obj, "status"), "phase", "Pending")
}

// dataSources keeps dataSource, the older field, and dataSourceRef, which can name any kind, the same.
// The older ignores what it does not know, and another namespace is not allowed.
func dataSources(spec, old map[string]any) {
	if tree.Str(spec, "dataSourceRef", "namespace") != "" && !tree.Has(old, "dataSourceRef") {
		delete(spec, "dataSourceRef")
	}
	used := tree.Has(old, "dataSource") || tree.Has(old, "dataSourceRef")
	source, ref := tree.Map(spec, "dataSource"), tree.Map(spec, "dataSourceRef")
	if source != nil && !used && ref == nil && !knownSource(source) {
		delete(spec, "dataSource")
		source = nil
	}
	switch {
	case source != nil && ref == nil:
		spec["dataSourceRef"] = tree.CopyMap(source)
	case ref != nil && source == nil && tree.Str(ref, "namespace") == "":
		spec["dataSource"] = tree.CopyMap(ref)
	}
}

func knownSource(source map[string]any) bool {
	switch tree.Str(source, "kind") {
	case "PersistentVolumeClaim":
		return tree.Str(source, "apiGroup") == ""
	case "VolumeSnapshot":
		return tree.Str(source, "apiGroup") == "snapshot.storage.k8s.io"
	}
	return false
}

// validateClaimUpdate checks that a claim goes on asking for the same: it is what quota was counted for.
// A bound one may ask for more, and for another class of attributes.
func validateClaimUpdate(obj, old kinds.Object) field.ErrorList {
	var e check.Errors
	pod.CheckClaimSpec(&e, check.Root(obj).Child("spec"), false)
	spec, was := check.Root(obj).Child("spec"), tree.CopyMap(tree.Map(old, "spec"))
	if tree.Str(was, "volumeName") == "" {
		tree.Move("volumeName", spec.Map, was)
	}
	annotation := func(o kinds.Object) string { return tree.Str(o, "metadata", "annotations", storageClassAnnotation) }
	if annotation(obj) != annotation(old) {
		e.Invalid(check.NewPath("metadata", "annotations", storageClassAnnotation), annotation(obj), check.Immutable)
	}
	if was["storageClassName"] == nil {
		tree.Move("storageClassName", spec.Map, was)
	}
	const size = "storage"
	wanted, before := tree.Get(spec.Map, "resources", "requests", size), tree.Get(was, "resources", "requests", size)
	if tree.Str(old, "status", "phase") == "Bound" {
		if tree.Has(spec.Map, "resources", "requests") {
			tree.Set(was, wanted, "resources", "requests", size)
		}
		tree.Move("volumeAttributesClassName", spec.Map, was)
	}
	if !tree.Equal(spec.Map, was) {
		e.Forbidden(spec.Path, "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims\n"+
			changedFields(was, spec.Map))
	}
	held := tree.Get(old, "status", "capacity", size)
	less := func(a, b any) int { q, r := pod.Quantity(a), pod.Quantity(b); return q.Cmp(r) }
	if less(wanted, before) < 0 && less(wanted, held) <= 0 {
		e.Forbidden(check.NewPath("spec", "resources", "requests", size), "field can not be less than status.capacity")
	}
	if mode := spec.Get("volumeMode"); !tree.Equal(mode, tree.Get(old, "spec", "volumeMode")) {
		e.Invalid(check.NewPath("volumeMode"), mode, check.Immutable)
	}
	attributesKept(&e, spec, old)
	return e.List()
}

// attributesKept checks that a claim that has a class of attributes keeps having one.
func attributesKept(e *check.Errors, spec check.At, old kinds.Object) {
	if !tree.Has(old, "status", "currentVolumeAttributesClassName") ||
		tree.Equal(spec.Get("volumeAttributesClassName"), tree.Get(old, "spec", "volumeAttributesClassName")) {
		return
	}
	path := spec.At("volumeAttributesClassName")
	if !spec.Has("volumeAttributesClassName") {
		e.Forbidden(path, "update to nil is forbidden when status.currentVolumeAttributesClassName is not nil")
	} else if spec.Str("volumeAttributesClassName") == "" {
		e.Forbidden(path, "update to empty string is forbidden when status.currentVolumeAttributesClassName is not nil")
	}
}

// changedFieldsMax bounds how many fields a message names that says a whole spec may not change.
const changedFieldsMax = 10

// changedFields says what differs, a field a line.
func changedFields(was, is map[string]any) string {
	return strings.Join(tree.Diff(was, is, "spec", changedFieldsMax), "\n")
}

func validateClaimStatus(obj, _ kinds.Object) field.ErrorList {
	var e check.Errors
	status := check.Root(obj).Child("status")
	for _, name := range []string{"capacity", "allocatedResources"} {
		path, list := status.At(name), status.Child(name).Map
		for _, key := range slices.Sorted(maps.Keys(list)) {
			if name == "allocatedResources" && !claimResource(&e, path, key) {
				continue
			}
			q := pod.Quantity(list[key])
			if n := q.Value(); n < 0 {
				e.Invalid(path.Key(key), n, "must be a valid resource quantity")
			}
		}
	}
	return e.List()
}

// claimResource checks the name of a resource that a claim may have: storage, or a driver's own.
func claimResource(e *check.Errors, path check.Path, name string) bool {
	if msgs := validation.IsQualifiedName(name); len(msgs) > 0 {
		e.Messages(path, name, msgs)
		return false
	}
	if name != "storage" && (!strings.Contains(name, "/") || strings.Contains(name, "kubernetes.io/")) {
		e.NotSupported(path, name, "storage")
		return false
	}
	return true
}

func claimWarnings(obj, _ kinds.Object) []string {
	var w []string
	if tree.Has(obj, "metadata", "annotations", storageClassAnnotation) {
		w = append(w, fmt.Sprintf(`metadata.annotations[%s]: deprecated since v1.8; use "storageClassName" attribute instead`, storageClassAnnotation))
	}
	return append(w, pod.ClaimWarnings(check.Root(obj).Child("spec"))...)
}

// volumePhase is the phase of a volume or a claim.
func volumePhase(obj kinds.Object, _ time.Time) any {
	if tree.Has(obj, "metadata", "deletionTimestamp") {
		return "Terminating"
	}
	return tree.Str(obj, "status", "phase")
}

func storageClassOf(obj kinds.Object, _ time.Time) any {
	if class, ok := tree.Get(obj, "metadata", "annotations", storageClassAnnotation).(string); ok {
		return class
	}
	return tree.Str(obj, "spec", "storageClassName")
}

// setText prints the text at a path, or that there is none.
func setText(path ...string) func(kinds.Object, time.Time) any {
	return func(obj kinds.Object, _ time.Time) any {
		if s, ok := tree.Get(obj, path...).(string); ok {
			return s
		}
		return table.Unset
	}
}

// accessModesText is short for some access modes, in an order of its own: "RWO,ROX".
func accessModesText(modes []string) string {
	var words []string
	for _, m := range []struct{ mode, short string }{
		{"ReadWriteOnce", "RWO"}, {"ReadOnlyMany", "ROX"}, {"ReadWriteMany", "RWX"}, {"ReadWriteOncePod", "RWOP"},
	} {
		if slices.Contains(modes, m.mode) {
			words = append(words, m.short)
		}
	}
	return strings.Join(words, ",")
}
