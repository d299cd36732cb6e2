package pod

import (
	"maps"
	"net"
	"regexp"
	"slices"
	"strings"

	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/setpoint-dev/setpoint/kinds/check"
)

// The rules of volumes that are somewhere in a network. Nothing here mounts them; who does relies on
// the API having looked.

// disk makes the rule of a cloud's disk, of which a pod may get a partition.
func disk(name string) func(*check.Errors, check.At) {
	return func(e *check.Errors, s check.At) {
		requires(name)(e, s)
		if n := s.Int("partition"); n < 0 || n > 255 {
			e.Invalid(s.At("partition"), n, validation.InclusiveRangeError(1, 255))
		}
	}
}

// credentials checks the parts of a reference to a secret, if there is one.
func credentials(e *check.Errors, s check.At, fields ...string) {
	if ref := s.Child("secretRef"); ref.Exists() {
		requires(fields...)(e, ref)
	}
}

func cinder(e *check.Errors, s check.At) {
	requires("volumeID")(e, s)
	credentials(e, s, "name")
}

func persistentCinder(e *check.Errors, s check.At) {
	requires("volumeID")(e, s)
	credentials(e, s, "name", "namespace")
}

// qualifiedNames are what an iSCSI name may look like, by what it begins with.
var qualifiedNames = map[string]*regexp.Regexp{
	"iqn": regexp.MustCompile(`^iqn\.\d{4}-\d{2}\.[[:alnum:].-]+:[^,;*&$|\s]+$`),
	"eui": regexp.MustCompile(`^eui.[[:alnum:]]{16}$`),
	"naa": regexp.MustCompile(`^naa.[[:alnum:]]{32}$`),
}

func iscsi(e *check.Errors, s check.At) {
	requires("targetPortal")(e, s)
	iscsiCommon(e, s, "must be valid format starting with iqn, eui, or naa")
}

func persistentISCSI(e *check.Errors, s check.At) {
	requires("targetPortal")(e, s)
	iscsiCommon(e, s, "must be valid format")
}

func iscsiCommon(e *check.Errors, s check.At, otherwise string) {
	if s.Str("iqn") == "" {
		e.Required(s.At("iqn"), "")
	} else {
		iscsiName(e, s.At("iqn"), s.Str("iqn"), otherwise)
	}
	lun(e, s)
	if (s.Bool("chapAuthDiscovery") || s.Bool("chapAuthSession")) && !s.Child("secretRef").Exists() {
		e.Required(s.At("secretRef"), "")
	}
	if s.Has("initiatorName") {
		iscsiName(e, s.At("initiatorname"), s.Str("initiatorName"), otherwise)
	}
}

func iscsiName(e *check.Errors, path check.Path, name, otherwise string) {
	form := qualifiedNames[name[:min(3, len(name))]]
	if form == nil {
		e.Invalid(path, name, otherwise)
	} else if !form.MatchString(name) {
		e.Invalid(path, name, "must be valid format")
	}
}

func lun(e *check.Errors, s check.At) {
	if n := s.Int("lun"); n < 0 || n > 255 {
		e.Invalid(s.At("lun"), n, validation.InclusiveRangeError(0, 255))
	}
}

func fibreChannel(e *check.Errors, s check.At) {
	names, path := s.Strings("targetWWNs"), s.At("targetWWNs")
	switch ids := s.Len("wwids"); {
	case len(names) == 0 && ids == 0:
		e.Required(path, "must specify either targetWWNs or wwids, but not both")
	case len(names) > 0 && ids > 0:
		e.Invalid(path, names, "targetWWNs and wwids can not be specified simultaneously")
	}
	if len(names) == 0 {
		return
	}
	if !s.Has("lun") {
		e.Required(s.At("lun"), "lun is required if targetWWNs is specified")
	} else {
		lun(e, s)
	}
}

func flocker(e *check.Errors, s check.At) {
	name, uuid := s.Str("datasetName"), s.Str("datasetUUID")
	switch {
	case name == "" && uuid == "":
		e.Required(s.Path, "one of datasetName and datasetUUID is required")
	case name != "" && uuid != "":
		e.Invalid(s.Path, "resource", "datasetName and datasetUUID can not be specified simultaneously")
	}
	if strings.Contains(name, "/") {
		e.Invalid(s.At("datasetName"), name, "must not contain '/'")
	}
}

// tenantMax is how long the name of a Quobyte tenant may be.
const tenantMax = 64

func quobyte(e *check.Errors, s check.At) {
	const pairs = "must be a host:port pair or multiple pairs separated by commas"
	registry := s.Str("registry")
	switch {
	case registry == "":
		e.Required(s.At("registry"), pairs)
	case len(s.Str("tenant")) > tenantMax:
		e.Required(s.At("tenant"), "must be a UUID and may not exceed a length of 64 characters")
	default:
		for pair := range strings.SplitSeq(registry, ",") {
			if _, _, err := net.SplitHostPort(pair); err != nil {
				e.Invalid(s.At("registry"), registry, pairs)
			}
		}
	}
	requires("volume")(e, s)
}

func persistentGlusterfs(e *check.Errors, s check.At) {
	requires("endpoints", "path")(e, s)
	if !s.Has("endpointsNamespace") {
		return
	}
	namespace, path := s.Str("endpointsNamespace"), s.At("endpointsNamespace")
	if namespace == "" {
		e.Invalid(path, namespace, "if the endpointnamespace is set, it must be a valid namespace name")
		return
	}
	e.Messages(path, namespace, apivalidation.ValidateNamespaceName(namespace, false))
}

func flexVolume(e *check.Errors, s check.At) {
	requires("driver")(e, s)
	options := s.StringMap("options")
	for _, key := range slices.Sorted(maps.Keys(options)) {
		domain, _, _ := strings.Cut(key, "/")
		domain = "." + strings.ToLower(domain)
		if strings.HasSuffix(domain, ".kubernetes.io") || strings.HasSuffix(domain, ".k8s.io") {
			e.Invalid(s.At("options").Key(key), key, "kubernetes.io and k8s.io namespaces are reserved")
		}
	}
}

func persistentAzureFile(e *check.Errors, s check.At) {
	requires("secretName", "shareName")(e, s)
	if s.Has("secretNamespace") {
		requires("secretNamespace")(e, s)
	}
}

func azureDisk(e *check.Errors, s check.At) {
	requires("diskName", "diskURI")(e, s)
	e.OptionalOneOf(s, "cachingMode", "None", "ReadOnly", "ReadWrite")
	e.OptionalOneOf(s, "kind", "Dedicated", "Managed", "Shared")
	if !s.Has("kind") {
		return
	}
	begins, allowed := "https://", "https://{account-name}.blob.core.windows.net/{container-name}/{disk-name}.vhd"
	if s.Str("kind") == "Managed" {
		begins = "/subscriptions/"
		allowed = begins + "{sub-id}/resourcegroups/{group-name}/providers/microsoft.compute/disks/{disk-id}"
	}
	if uri := s.Str("diskURI"); !strings.HasPrefix(uri, begins) {
		e.NotSupported(s.At("diskURI"), uri, allowed)
	}
}

func storageOS(e *check.Errors, s check.At) {
	storageOSVolume(e, s)
	credentials(e, s, "name")
}

func persistentStorageOS(e *check.Errors, s check.At) {
	storageOSVolume(e, s)
	credentials(e, s, "name", "namespace")
}

func storageOSVolume(e *check.Errors, s check.At) {
	if name := s.Str("volumeName"); name == "" {
		e.Required(s.At("volumeName"), "")
	} else {
		e.DNSLabel(s.At("volumeName"), name)
	}
	if namespace := s.Str("volumeNamespace"); namespace != "" {
		e.DNSLabel(s.At("volumeNamespace"), namespace)
	}
}
