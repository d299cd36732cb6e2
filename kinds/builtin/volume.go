package builtin

import (
	"maps"
	"path"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/setpoint-dev/setpoint/kinds"
	"github.com/setpoint-dev/setpoint/kinds/builtin/pod"
	"github.com/setpoint-dev/setpoint/kinds/check"
	"github.com/setpoint-dev/setpoint/kinds/schema"
	"github.com/setpoint-dev/setpoint/kinds/table"
	"github.com/setpoint-dev/setpoint/kinds/tree"
)

// mountOptionsAnnotation is where a volume gave options before there was a field for them.
const mountOptionsAnnotation = "volume.beta.kubernetes.io/mount-options"

func persistentVolume() *kinds.Kind {
	spec, status := corev1.PersistentVolumeSpec{}.SwaggerDoc(), corev1.PersistentVolumeStatus{}.SwaggerDoc()
	return &kinds.Kind{
		Version: "v1", Kind: "PersistentVolume", Resource: "persistentvolumes", Singular: "persistentvolume",
		ShortNames: []string{"pv"},
		Schema:     schema.Builtin("io.k8s.api.core.v1.PersistentVolume"),
		Columns: append([]kinds.Column{
			table.Name(),
			table.Column("Capacity", spec["capacity"], func(obj kinds.Object, _ time.Time) any {
				return table.Or(tree.Str(obj, "spec", "capacity", "storage"), "0")
			}),
			table.Column("Access Modes", spec["accessModes"], func(obj kinds.Object, _ time.Time) any {
				return accessModesText(tree.Strings(obj, "spec", "accessModes"))
			}),
			table.Text("Reclaim Policy", spec["persistentVolumeReclaimPolicy"], "spec", "persistentVolumeReclaimPolicy"),
			table.Column("Status", status["phase"], volumePhase),
			table.Column("Claim", spec["claimRef"], claimOf),
			table.Column("StorageClass", "StorageClass of the pv", storageClassOf),
			table.Column("VolumeAttributesClass", "VolumeAttributesClass of the pv",
				setText("spec", "volumeAttributesClassName")),
			table.Text("Reason", status["reason"], "status", "reason"),
			table.Age(),
		}, table.Wide(table.Column("VolumeMode", spec["volumeMode"], setText("spec", "volumeMode")))...),
		Status:             true,
		ReturnDeleted:      true,
		DefaultPropagation: "Background",
		Strategy: kinds.Strategy{
			Default: defaultVolume,
			PrepareForCreate: func(env *kinds.Env, obj kinds.Object) error {
				obj["status"] = map[string]any{"phase": "Pending", "lastPhaseTransitionTime": timestamp(env.Now)}
				return nil
			},
			PrepareForUpdate:       keepStatus,
			PrepareForStatusUpdate: prepareVolumeStatus,
			Validate:               validateVolume,
			ValidateUpdate:         validateVolumeUpdate,
			Warnings:               volumeWarnings,
		},
	}
}

func timestamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }

func claimOf(obj kinds.Object, _ time.Time) any {
	ref := tree.Map(obj, "spec", "claimRef")
	if ref == nil {
		return ""
	}
	return tree.Str(ref, "namespace") + "/" + tree.Str(ref, "name")
}

func defaultVolume(obj kinds.Object) {
	setIfEmpty(tree.Ensure(obj, "status"), "phase", "Pending")
	spec := tree.Ensure(obj, "spec")
	setIfEmpty(spec, "persistentVolumeReclaimPolicy", "Retain")
	tree.Default(spec, "Filesystem", "volumeMode")
	if host := tree.Map(spec, "hostPath"); host != nil {
		tree.Default(host, "", "type")
	}
	if disk := tree.Map(spec, "azureDisk"); disk != nil {
		tree.Default(disk, "ReadWrite", "cachingMode")
		tree.Default(disk, "ext4", "fsType")
		tree.Default(disk, false, "readOnly")
		tree.Default(disk, "Shared", "kind")
	}
	for source, defaults := range map[string]map[string]string{
		"rbd":     {"pool": "rbd", "user": "admin", "keyring": "/etc/ceph/keyring"},
		"iscsi":   {"iscsiInterface": "default"},
		"scaleIO": {"storageMode": "ThinProvisioned", "fsType": "xfs"},
	} {
		for name, value := range defaults {
			if at := tree.Map(spec, source); at != nil {
				setIfEmpty(at, name, value)
			}
		}
	}
}

// prepareVolumeStatus notes when the phase changed, unless the writer does.
func prepareVolumeStatus(env *kinds.Env, obj, old kinds.Object) {
	tree.Move("spec", old, obj)
	const field = "lastPhaseTransitionTime"
	status, was := tree.Ensure(obj, "status"), tree.Map(old, "status")
	changed := tree.Str(status, "phase") != tree.Str(was, "phase")
	switch {
	case !changed && status[field] == nil:
		tree.Move(field, was, status)
	case changed && (status[field] == nil || status[field] == was[field]):
		status[field] = timestamp(env.Now)
	}
}

func validateVolume(obj kinds.Object) field.ErrorList {
	var e check.Errors
	spec := check.Root(obj).Child("spec")
	if spec.Len("accessModes") == 0 {
		e.Required(spec.At("accessModes"), "")
	}
	pod.CheckAccessModes(&e, spec)
	volumeCapacity(&e, spec)
	if spec.Str("persistentVolumeReclaimPolicy") != "" {
		e.OneOf(spec, "persistentVolumeReclaimPolicy", "Delete", "Recycle", "Retain")
	}
	if affinity := spec.Child("nodeAffinity"); affinity.Exists() {
		if required := affinity.Child("required"); required.Exists() {
			pod.CheckNodeSelector(&e, required)
		} else {
			e.Required(required.Path, "must specify required node constraints")
		}
	}
	pod.CheckPersistentSource(&e, spec)
	if spec.Has("local") && !spec.Has("nodeAffinity") {
		e.Required(spec.At("nodeAffinity"), "Local volume requires node affinity")
	}
	if host := spec.Child("hostPath"); host.Exists() && path.Clean(host.Str("path")) == "/" &&
		spec.Str("persistentVolumeReclaimPolicy") == "Recycle" {
		e.Forbidden(spec.At("persistentVolumeReclaimPolicy"), "may not be 'recycle' for a hostPath mount of '/'")
	}
	pod.ClassName(&e, spec, "storageClassName")
	e.OptionalOneOf(spec, "volumeMode", "Block", "Filesystem")
	if spec.Has("volumeAttributesClassName") {
		if spec.Str("volumeAttributesClassName") == "" {
			e.Required(spec.At("volumeAttributesClassName"), "an empty string is disallowed")
		}
		pod.ClassName(&e, spec, "volumeAttributesClassName")
		if !spec.Has("csi") {
			e.Required(spec.At("csi"), "has to be specified when using volumeAttributesClassName")
		}
	}
	mountOptions(&e, obj, spec)
	return e.List()
}

func volumeCapacity(e *check.Errors, spec check.At) {
	capacity := spec.Child("capacity")
	if len(capacity.Map) == 0 {
		e.Required(capacity.Path, "")
	}
	if !capacity.Has("storage") || len(capacity.Map) > 1 {
		e.NotSupported(capacity.Path, capacity.Map, "storage")
	}
	for _, name := range slices.Sorted(maps.Keys(capacity.Map)) {
		q := pod.Quantity(capacity.Get(name))
		if n := q.Value(); n < 0 {
			e.Invalid(capacity.Path.Key(name), n, "must be a valid resource quantity")
		}
		if q.Sign() <= 0 {
			e.Invalid(capacity.Path.Key(name), q.String(), notPositive)
		}
	}
}

// mountOptions checks that options in an annotation are heeded where the volume is.
func mountOptions(e *check.Errors, obj kinds.Object, spec check.At) {
	if !tree.Has(obj, "metadata", "annotations", mountOptionsAnnotation) {
		return
	}
	for _, heeds := range []string{
		"gcePersistentDisk", "awsElasticBlockStore", "glusterfs", "nfs", "rbd", "quobyte", "iscsi", "cinder",
		"cephfs", "azureFile", "vsphereVolume", "azureDisk", "photonPersistentDisk",
	} {
		if spec.Has(heeds) {
			return
		}
	}
	e.Forbidden(check.NewPath("metadata", "annotations", mountOptionsAnnotation),
		"may not specify mount options for this volume type")
}

// validateVolumeUpdate checks that a volume stays where it is.
func validateVolumeUpdate(obj, old kinds.Object) field.ErrorList {
	var e check.Errors
	spec, was := check.Root(obj).Child("spec"), tree.Map(old, "spec")
	before, after := pod.PersistentSource(was), pod.PersistentSource(spec.Map)
	if csi := tree.Map(before, "csi"); csi != nil && csi["controllerExpandSecretRef"] == nil {
		after = tree.CopyMap(after) // this one may be set later on
		tree.Delete(after, "csi", "controllerExpandSecretRef")
	}
	if !tree.Equal(before, after) {
		e.Forbidden(check.NewPath("spec", "persistentvolumesource"),
			"spec.persistentvolumesource is immutable after creation\n"+changedFields(before, after))
	}
	if mode := spec.Get("volumeMode"); !tree.Equal(mode, was["volumeMode"]) {
		e.Invalid(check.NewPath("volumeMode"), mode, check.Immutable)
	}
	if was["nodeAffinity"] != nil && !tree.Equal(spec.Get("nodeAffinity"), was["nodeAffinity"]) {
		e.Invalid(check.NewPath("nodeAffinity"), spec.Get("nodeAffinity"),
			check.Immutable+", except for updating from beta label to GA")
	}
	if was["volumeAttributesClassName"] != nil && !spec.Has("volumeAttributesClassName") {
		e.Forbidden(spec.At("volumeAttributesClassName"), "update from non-nil value to nil is forbidden")
	}
	return e.List()
}

// deprecatedSources are those whose drivers are gone, with how upstream says so.
var deprecatedSources = []struct{ field, name, text string }{
	{"cephfs", "cephfs", "deprecated in v1.28, non-functional in v1.31+"},
	{"photonPersistentDisk", "photonPersistentDisk", "deprecated in v1.11, non-functional in v1.16+"},
	{"scaleIO", "scaleIO", "deprecated in v1.16, non-functional in v1.22+"},
	{"storageos", "storageOS", "deprecated in v1.22, non-functional in v1.25+"},
	{"glusterfs", "glusterfs", "deprecated in v1.25, non-functional in v1.26+"},
	{"rbd", "rbd", "deprecated in v1.28, non-functional in v1.31+"},
}

func volumeWarnings(obj, _ kinds.Object) []string {
	var w []string
	for _, a := range []struct{ key, text string }{
		{storageClassAnnotation, `deprecated since v1.8; use "storageClassName" attribute instead`},
		{mountOptionsAnnotation, `deprecated since v1.31; use "mountOptions" attribute instead`},
	} {
		if tree.Has(obj, "metadata", "annotations", a.key) {
			w = append(w, "metadata.annotations["+a.key+"]: "+a.text)
		}
	}
	if tree.Str(obj, "spec", "persistentVolumeReclaimPolicy") == "Recycle" {
		w = append(w, "spec.persistentVolumeReclaimPolicy: The Recycle reclaim policy is deprecated. Instead, the recommended approach is to use dynamic provisioning.")
	}
	for _, s := range deprecatedSources {
		if tree.Has(obj, "spec", s.field) {
			w = append(w, "spec."+s.name+": "+s.text)
		}
	}
	return w
}
