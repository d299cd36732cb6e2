package pod

import (
	"slices"

	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/setpoint-dev/setpoint/kinds/check"
	"github.com/setpoint-dev/setpoint/kinds/tree"
)

// CheckClaimSpec checks what a claim, or a template of one, asks for. One that is not fresh may have its
// source in a group whose name is none.
func CheckClaimSpec(e *check.Errors, spec check.At, fresh bool) {
	if spec.Len("accessModes") == 0 {
		e.Required(spec.At("accessModes"), "at least 1 access mode is required")
	}
	e.LabelSelector(spec, "selector")
	CheckAccessModes(e, spec)
	path := spec.At("resources").Key("storage")
	if size := tree.Get(spec.Map, "resources", "requests", "storage"); size == nil {
		e.Required(path, "")
	} else if q := Quantity(size); q.Sign() <= 0 {
		e.Invalid(path, q.String(), "must be greater than zero")
	}
	ClassName(e, spec, "storageClassName")
	e.OptionalOneOf(spec, "volumeMode", "Block", "Filesystem")
	source, ref := spec.Child("dataSource"), spec.Child("dataSourceRef")
	dataSource(e, source, fresh)
	dataSource(e, ref, fresh)
	if name := ref.Str("namespace"); name != "" {
		e.DNSLabel(ref.At("namespace"), name)
		if source.Exists() {
			e.Invalid(spec.Path, spec.At("dataSource").Field(),
				"may not be specified when dataSourceRef.namespace is specified")
		}
	} else if source.Exists() && ref.Exists() && !sameReference(source, ref) {
		e.Invalid(spec.Path, spec.At("dataSource").Field(), "must match dataSourceRef")
	}
	ClassName(e, spec, "volumeAttributesClassName")
}

func sameReference(a, b check.At) bool {
	return a.Get("apiGroup") == b.Get("apiGroup") && a.Str("kind") == b.Str("kind") && a.Str("name") == b.Str("name")
}

// ClassName checks the name of a class that the field may hold.
func ClassName(e *check.Errors, spec check.At, field string) {
	if name := spec.Str(field); name != "" {
		e.Messages(spec.At(field), name, apivalidation.NameIsDNSSubdomain(name, false))
	}
}

var knownAccessModes = []string{"ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod"}

// CheckAccessModes checks how a volume is, or is to be, used.
func CheckAccessModes(e *check.Errors, spec check.At) {
	var one, other bool
	for _, mode := range spec.Strings("accessModes") {
		known := slices.Contains(knownAccessModes, mode)
		if !known {
			e.NotSupported(spec.At("accessModes"), mode, knownAccessModes...)
		}
		one = one || mode == "ReadWriteOncePod"
		other = other || known && mode != "ReadWriteOncePod"
	}
	if one && other {
		e.Forbidden(spec.At("accessModes"), "may not use ReadWriteOncePod with other access modes")
	}
}

func dataSource(e *check.Errors, s check.At, fresh bool) {
	if !s.Exists() {
		return
	}
	for _, name := range []string{"name", "kind"} {
		if s.Str(name) == "" {
			e.Required(s.At(name), "")
		}
	}
	group, kind := s.Str("apiGroup"), s.Str("kind")
	if group == "" && kind != "PersistentVolumeClaim" {
		e.Invalid(s.Path, kind, "must be 'PersistentVolumeClaim' when referencing the default apiGroup")
	}
	if group != "" && fresh {
		e.Messages(s.At("apiGroup"), group, validation.IsDNS1123Subdomain(group))
	}
}

// ephemeralVolume checks a volume that is claimed for the pod alone, under a name made of both names.
func ephemeralVolume(e *check.Errors, s check.At) {
	template := s.Child("volumeClaimTemplate")
	if !template.Exists() {
		e.Required(s.At("volumeClaimTemplate"), "")
		return
	}
	e.TemplateMeta(template.Child("metadata"))
	CheckClaimSpec(e, template.Child("spec"), true)
}

// inlineCSI checks a volume that a driver makes for the pod alone.
func inlineCSI(e *check.Errors, s check.At) {
	attacher(e, s)
	if ref := s.Child("nodePublishSecretRef"); ref.Exists() {
		requires("name")(e, ref)
	}
}
