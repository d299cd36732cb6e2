package pod

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/setpoint-dev/setpoint/kinds/check"
)

// What a variable may take from its own pod.
var (
	envFieldPaths = []string{
		"metadata.name", "metadata.namespace", "metadata.uid", "spec.nodeName",
		"spec.serviceAccountName", "status.hostIP", "status.hostIPs", "status.podIP", "status.podIPs",
	}
	resourceFields = []string{
		"limits.cpu", "limits.ephemeral-storage", "limits.memory",
		"requests.cpu", "requests.ephemeral-storage", "requests.memory",
	}
)

func env(e *check.Errors, c check.At) {
	for _, v := range c.Each("env") {
		if name := v.Str("name"); name == "" {
			e.Required(v.At("name"), "")
		} else {
			e.Messages(v.At("name"), name, validation.IsRelaxedEnvVarName(name))
		}
		if v.Has("valueFrom") {
			envSource(e, v)
		}
	}
}

func envSource(e *check.Errors, v check.At) {
	from, sources := v.Child("valueFrom"), 0
	if ref := from.Child("fieldRef"); ref.Exists() {
		sources++
		fieldRef(e, ref, envFieldPaths)
	}
	if ref := from.Child("resourceFieldRef"); ref.Exists() {
		sources++
		resourceFieldRef(e, ref, false)
	}
	for _, name := range []string{"configMapKeyRef", "secretKeyRef"} {
		if ref := from.Child(name); ref.Exists() {
			sources++
			keyRef(e, ref)
		}
	}
	if ref := from.Child("fileKeyRef"); ref.Exists() {
		sources++
		fileKeyRef(e, ref)
	}
	switch {
	case sources == 0:
		e.Invalid(from.Path, "",
			"must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef`, `secretKeyRef` or `fileKeyRef`")
	case v.Str("value") != "":
		e.Invalid(from.Path, "", "may not be specified when `value` is not empty")
	case sources > 1:
		e.Invalid(from.Path, "", "may not have more than one field specified at a time")
	}
}

func keyRef(e *check.Errors, ref check.At) {
	e.Messages(ref.At("name"), ref.Str("name"),
		apivalidation.NameIsDNSSubdomain(ref.Str("name"), false))
	if key := ref.Str("key"); key == "" {
		e.Required(ref.At("key"), "")
	} else {
		e.Messages(ref.At("key"), key, validation.IsConfigMapKey(key))
	}
}

func fileKeyRef(e *check.Errors, ref check.At) {
	if key := ref.Str("key"); key == "" {
		e.Required(ref.At("key"), "")
	} else {
		e.Messages(ref.At("key"), key, validation.IsRelaxedEnvVarName(key))
	}
	if name := ref.Str("volumeName"); name == "" {
		e.Required(ref.At("volumeName"), "")
	} else {
		e.DNSLabel(ref.At("volumeName"), name)
	}
	if path := ref.Str("path"); path == "" {
		e.Required(ref.At("path"), "")
	} else {
		e.NoBacksteps(ref.At("path"), path)
	}
}

// fileKeyRefVolumes checks that variables are read from files of an emptyDir.
func fileKeyRefVolumes(e *check.Errors, spec check.At) {
	sources := map[string]check.At{}
	for _, v := range spec.Each("volumes") {
		sources[v.Str("name")] = v
	}
	for c := range eachContainer(spec) {
		for _, v := range c.Each("env") {
			ref := v.Child("valueFrom").Child("fileKeyRef")
			if !ref.Exists() {
				continue
			}
			name := ref.Str("volumeName")
			if source, ok := sources[name]; !ok {
				e.NotFound(ref.At("volumeName"), name)
			} else if !source.Has("emptyDir") {
				e.Invalid(ref.At("volumeName"), name, "referenced volume must be of type emptyDir")
			}
		}
	}
}

func envFrom(e *check.Errors, c check.At) {
	for _, from := range c.Each("envFrom") {
		if prefix := from.Str("prefix"); prefix != "" {
			e.Messages(from.At("prefix"), prefix, validation.IsRelaxedEnvVarName(prefix))
		}
		sources := 0
		for _, name := range []string{"configMapRef", "secretRef"} {
			ref := from.Child(name)
			if !ref.Exists() {
				continue
			}
			sources++
			if name := ref.Str("name"); name == "" {
				e.Required(ref.At("name"), "")
			} else {
				e.Messages(ref.At("name"), name, apivalidation.NameIsDNSSubdomain(name, true))
			}
		}
		switch {
		case sources == 0:
			e.Invalid(c.At("envFrom"), "", "must specify one of: `configMapRef` or `secretRef`")
		case sources > 1:
			e.Invalid(c.At("envFrom"), "", "may not have more than one field specified at a time")
		}
	}
}

// fieldRef checks a reference to a field of the pod; labels and annotations may be subscripted, as
// in metadata.labels['app'].
func fieldRef(e *check.Errors, ref check.At, allowed []string) {
	version, path := ref.Str("apiVersion"), ref.Str("fieldPath")
	switch {
	case version == "":
		e.Required(ref.At("apiVersion"), "")
		return
	case path == "":
		e.Required(ref.At("fieldPath"), "")
		return
	case version != "v1":
		e.Invalid(ref.At("fieldPath"), path,
			"error converting fieldPath: unsupported pod version: "+version)
		return
	}
	if path == "spec.host" { // what old clients call it
		path = "spec.nodeName"
	}
	base, key, subscripted := subscript(path)
	switch {
	case !subscripted && !slices.Contains(knownFieldPaths, path):
		e.Invalid(ref.At("fieldPath"), path,
			"error converting fieldPath: field label not supported: "+path)
	case subscripted && base == "metadata.annotations":
		e.QualifiedName(ref.Path, strings.ToLower(key))
	case subscripted && base == "metadata.labels":
		e.QualifiedName(ref.Path, key)
	case subscripted:
		e.Invalid(ref.At("fieldPath"), path,
			"error converting fieldPath: field label does not support subscript: "+path)
	case !slices.Contains(allowed, path):
		e.NotSupported(ref.At("fieldPath"), path, allowed...)
	}
}

// knownFieldPaths are the fields that a reference may name somewhere.
var knownFieldPaths = []string{
	"metadata.annotations", "metadata.labels", "metadata.name", "metadata.namespace", "metadata.uid",
	"spec.nodeName", "spec.restartPolicy", "spec.serviceAccountName", "spec.schedulerName",
	"status.phase", "status.hostIP", "status.hostIPs", "status.podIP", "status.podIPs",
}

// subscript splits "metadata.labels['app']".
func subscript(path string) (base, key string, ok bool) {
	inner, ok := strings.CutSuffix(path, "']")
	if !ok {
		return path, "", false
	}
	base, key, ok = strings.Cut(inner, "['")
	if !ok || base == "" {
		return path, "", false
	}
	return base, key, true
}

// resourceFieldRef checks a reference to a container's resources. In a volume it must say whose.
func resourceFieldRef(e *check.Errors, ref check.At, inVolume bool) {
	name := ref.Str("resource")
	huge := strings.HasPrefix(name, "requests.hugepages-") ||
		strings.HasPrefix(name, "limits.hugepages-")
	switch {
	case inVolume && ref.Str("containerName") == "":
		e.Required(ref.At("containerName"), "")
	case name == "":
		e.Required(ref.At("resource"), "")
	case !slices.Contains(resourceFields, name) && !huge:
		e.NotSupported(ref.At("resource"), name, resourceFields...)
	}
	divisor(e, ref, name)
}

// divisors are the units in which a resource can be asked for, and how messages name the resource.
var divisors = map[string]struct {
	of    string
	units []string
}{
	"cpu":               {"cpu", []string{"1m", "1"}},
	"memory":            {"memory", byteUnits},
	"ephemeral-storage": {"local ephemeral storage", byteUnits},
	"hugepages":         {"hugepages", byteUnits},
}

var byteUnits = []string{"1", "1k", "1M", "1G", "1T", "1P", "1E", "1Ki", "1Mi", "1Gi", "1Ti", "1Pi", "1Ei"}

func divisor(e *check.Errors, ref check.At, name string) {
	q, err := resource.ParseQuantity(ref.Str("divisor"))
	if err != nil || q.IsZero() {
		return
	}
	_, unit, _ := strings.Cut(name, ".")
	if strings.HasPrefix(unit, "hugepages-") {
		unit = "hugepages"
	}
	d, ok := divisors[unit]
	if !ok || slices.Contains(d.units, q.String()) {
		return
	}
	units := strings.Join(d.units, ", ")
	if unit == "cpu" {
		units = "1m and 1"
	}
	e.Invalid(ref.At("divisor"), name,
		"only divisor's values "+units+" are supported with the "+d.of+" resource")
}
