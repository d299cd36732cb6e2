package builtin

import (
	"math"

	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/validate/content"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/setpoint-dev/setpoint/kinds"
	"github.com/setpoint-dev/setpoint/kinds/builtin/pod"
	"github.com/setpoint-dev/setpoint/kinds/check"
	"github.com/setpoint-dev/setpoint/kinds/schema"
	"github.com/setpoint-dev/setpoint/kinds/table"
)

// Upstream's bounds on what an attacher says about a volume.
const (
	attachmentMetadataMax = 256 << 10
	volumeErrorMax        = 1024
)

func volumeAttachment() *kinds.Kind {
	doc := storagev1.VolumeAttachmentSpec{}.SwaggerDoc()
	attacher := table.Text("Attacher", doc["attacher"], "spec", "attacher")
	attacher.Format = "name"
	return &kinds.Kind{
		Group: "storage.k8s.io", Version: "v1", Kind: "VolumeAttachment",
		Resource: "volumeattachments", Singular: "volumeattachment",
		Schema: schema.Builtin("io.k8s.api.storage.v1.VolumeAttachment"),
		Columns: []kinds.Column{
			table.Name(),
			attacher,
			table.Text("PV", storagev1.VolumeAttachmentSource{}.SwaggerDoc()["persistentVolumeName"],
				"spec", "source", "persistentVolumeName"),
			table.Text("Node", doc["nodeName"], "spec", "nodeName"),
			flag("Attached", storagev1.VolumeAttachmentStatus{}.SwaggerDoc()["attached"], "status", "attached"),
			table.Age(),
		},
		Status:              true,
		UpdateNamesRevision: true,
		ReturnDeleted:       true,
		DefaultPropagation:  "Background",
		Strategy: kinds.Strategy{
			PrepareForCreate:       emptyStatus(map[string]any{"attached": false}),
			PrepareForUpdate:       keepStatus,
			PrepareForStatusUpdate: keepSpec,
			Validate:               validateVolumeAttachment,
			ValidateUpdate:         declaredImmutable("spec"),
			ValidateStatusUpdate: func(obj, _ kinds.Object) field.ErrorList {
				return validateVolumeAttachment(obj)
			},
		},
	}
}

func validateVolumeAttachment(obj kinds.Object) field.ErrorList {
	var e check.Errors
	spec := check.Root(obj).Child("spec")
	attacher(&e, check.NewPath("spec", "attacher"), spec.Str("attacher"))
	attachmentSource(&e, spec)
	node := spec.Str("nodeName")
	e.Messages(check.NewPath("spec", "nodeName"), node, apivalidation.NameIsDNSSubdomain(node, false))
	attachmentStatus(&e, check.Root(obj).Child("status"))
	if source := spec.Child("source"); source.Has("persistentVolumeName") {
		name := source.Str("persistentVolumeName")
		e.Messages(source.At("persistentVolumeName"), name, apivalidation.NameIsDNSSubdomain(name, false))
	}
	return e.List()
}

// attacher checks the name of a driver as Kubernetes' types declare it.
func attacher(e *check.Errors, path check.Path, name string) {
	if name == "" {
		e.Later().Required(path, "")
		return
	}
	if len(name) > driverNameMax {
		e.Later().Add(field.TooLongCharacters(path.Field(), name, driverNameMax))
	}
	//lint:ignore SA1019 names of drivers may be in capitals, here as upstream
	e.Later().Messages(path, name, content.IsDNS1123SubdomainCaseless(name))
}

func attachmentSource(e *check.Errors, spec check.At) {
	source, path := spec.Child("source"), check.NewPath("spec", "source")
	inline, named := source.Has("inlineVolumeSpec"), source.Has("persistentVolumeName")
	switch {
	case !inline && !named:
		e.Required(path, "must specify exactly one of inlineVolumeSpec and persistentVolumeName")
	case inline && named:
		e.Forbidden(path, "must specify exactly one of inlineVolumeSpec and persistentVolumeName")
	case inline:
		inlineVolume(e, source.Child("inlineVolumeSpec"))
	case source.Str("persistentVolumeName") == "":
		e.Required(path.Child("persistentVolumeName"), "must specify non empty persistentVolumeName")
	}
}

// inlineVolume checks the spec of a volume that is nothing but attached: one by CSI, of which only that
// driver knows more.
func inlineVolume(e *check.Errors, spec check.At) {
	const inline = " in the context of inline volumes"
	for _, name := range []string{"capacity", "claimRef", "nodeAffinity", "storageClassName"} {
		if spec.Has(name) {
			e.Forbidden(spec.At(name), "may not be specified"+inline)
		}
	}
	if policy := spec.Str("persistentVolumeReclaimPolicy"); policy != "" && policy != "Retain" {
		e.Forbidden(spec.At("persistentVolumeReclaimPolicy"), "may only be Retain"+inline)
	}
	if mode := spec.Str("volumeMode"); spec.Has("volumeMode") && mode != "Filesystem" {
		e.Forbidden(spec.At("volumeMode"), "may not specify volumeMode other than Filesystem"+inline)
	}
	if !spec.Has("csi") {
		e.Required(spec.At("csi"), "has to be specified"+inline)
	}
	if spec.Len("accessModes") == 0 {
		e.Required(spec.At("accessModes"), "")
	}
	pod.CheckAccessModes(e, spec)
	pod.CheckPersistentSource(e, spec)
}

func attachmentStatus(e *check.Errors, status check.At) {
	size := 0
	for k, v := range status.StringMap("attachmentMetadata") {
		size += len(k) + len(v)
	}
	if size > attachmentMetadataMax {
		e.TooLong(status.At("attachmentMetadata"), attachmentMetadataMax)
	}
	for _, name := range []string{"attachError", "detachError"} {
		err := status.Child(name)
		if len(err.Str("message")) > volumeErrorMax {
			e.TooLong(err.At("message"), volumeErrorMax)
		}
		if n := err.Int("errorCode"); n < 0 {
			e.Invalid(err.At("errorCode"), n, validation.InclusiveRangeError(0, math.MaxInt32))
		}
	}
}
