package pod

import (
	"maps"
	"slices"
	"strings"

	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/setpoint-dev/setpoint/kinds/check"
)

// volumeMounts checks where a container sees the pod's volumes.
func volumeMounts(e *check.Errors, ctx *context, c check.At) {
	devices := byName(c, "volumeDevices", "devicePath")
	taken := sets.Set[string]{}
	list := c.At("volumeMounts")
	for _, m := range c.Each("volumeMounts") {
		name, path := m.Str("name"), m.Str("mountPath")
		if name == "" {
			e.Required(m.At("name"), "")
		}
		if _, ok := ctx.volumes[name]; !ok {
			e.NotFound(m.At("name"), name)
		}
		if path == "" {
			e.Required(m.At("mountPath"), "")
		}
		if taken.Has(path) {
			e.Invalid(m.At("mountPath"), path, "must be unique")
		}
		taken.Insert(path)
		if _, ok := devices[name]; ok {
			e.Invalid(m.At("name"), name, "must not already exist in volumeDevices")
		}
		if slices.Contains(slices.Collect(maps.Values(devices)), path) {
			e.Invalid(m.At("mountPath"), path, "must not already exist as a path in volumeDevices")
		}
		subPaths(e, m, list)
		propagation(e, c, m, list)
	}
}

func subPaths(e *check.Errors, m check.At, list check.Path) {
	sub, expr := m.Str("subPath"), m.Str("subPathExpr")
	if sub != "" {
		e.LocalPath(list.Child("subPath"), sub)
	}
	if expr != "" {
		if sub != "" {
			e.Invalid(m.At("subPathExpr"), expr, "subPathExpr and subPath are mutually exclusive")
		}
		e.LocalPath(list.Child("subPathExpr"), expr)
	}
}

func propagation(e *check.Errors, c, m check.At, list check.Path) {
	path, way := list.Child("mountPropagation"), m.Str("mountPropagation")
	if m.Has("mountPropagation") {
		oneOfAt(e, path, way, "Bidirectional", "HostToContainer", "None")
		if way == "Bidirectional" && !c.Child("securityContext").Bool("privileged") {
			e.Forbidden(path,
				"Bidirectional mount propagation is available only to privileged containers")
		}
	}
	path = list.Child("recursiveReadOnly")
	switch rro := m.Str("recursiveReadOnly"); rro {
	case "", "Disabled":
	case "Enabled", "IfPossible":
		if !m.Bool("readOnly") {
			e.Forbidden(path, "may only be specified when readOnly is true")
		}
		if way != "" && way != "None" {
			e.Forbidden(path,
				"may only be specified when mountPropagation is None or not specified")
		}
	default:
		e.NotSupported(path, rro, "Disabled", "Enabled", "IfPossible")
	}
}

// volumeDevices checks the claims that a container sees as raw devices.
func volumeDevices(e *check.Errors, ctx *context, c check.At) {
	mounts := byName(c, "volumeMounts", "mountPath")
	names, paths := sets.Set[string]{}, sets.Set[string]{}
	for _, d := range c.Each("volumeDevices") {
		name, path := d.Str("name"), d.Str("devicePath")
		if name == "" {
			e.Required(d.At("name"), "")
		}
		if name != "" && names.Has(name) {
			e.Invalid(d.At("name"), name, "must be unique")
		}
		names.Insert(name)
		volume, ok := ctx.volumes[name].(map[string]any)
		if !ok {
			e.NotFound(d.At("name"), name)
		} else if volume["persistentVolumeClaim"] == nil && volume["ephemeral"] == nil {
			e.Invalid(d.At("name"), name,
				"can only use volume source type of PersistentVolumeClaim or Ephemeral for block mode")
		}
		switch {
		case path == "":
			e.Required(d.At("devicePath"), "")
		case paths.Has(path):
			e.Invalid(d.At("devicePath"), path, "must be unique")
		case slices.Contains(strings.Split(path, "/"), ".."):
			e.Invalid(d.At("devicePath"), path, "can not contain backsteps ('..')")
		}
		paths.Insert(path)
		if _, ok := mounts[name]; ok {
			e.Invalid(d.At("name"), name, "must not already exist in volumeMounts")
		}
		if slices.Contains(slices.Collect(maps.Values(mounts)), path) {
			e.Invalid(d.At("devicePath"), path, "must not already exist as a path in volumeMounts")
		}
	}
}

func byName(c check.At, list, value string) map[string]string {
	var out map[string]string
	for _, item := range c.Each(list) {
		if out == nil {
			out = map[string]string{}
		}
		out[item.Str("name")] = item.Str(value)
	}
	return out
}

// resourceClaims checks the claims of devices, and returns their names.
func resourceClaims(e *check.Errors, spec check.At) sets.Set[string] {
	names := sets.Set[string]{}
	for _, c := range spec.Each("resourceClaims") {
		if name := c.Str("name"); name == "" {
			e.Required(c.At("name"), "")
		} else if names.Has(name) {
			e.Duplicate(c.At("name"), name)
		} else {
			e.DNSLabel(c.At("name"), name)
			names.Insert(name)
		}
		one, other := c.Get("resourceClaimName"), c.Get("resourceClaimTemplateName")
		shown := struct{ Name, ResourceClaimName, ResourceClaimTemplateName any }{c.Str("name"), one, other}
		switch {
		case one != nil && other != nil:
			e.Invalid(c.Path, shown, "at most one of `resourceClaimName` or `resourceClaimTemplateName` may be specified")
		case one == nil && other == nil:
			e.Invalid(c.Path, shown, "must specify one of: `resourceClaimName`, `resourceClaimTemplateName`")
		}
		for _, name := range []string{"resourceClaimName", "resourceClaimTemplateName"} {
			if c.Has(name) {
				e.Messages(c.At(name), c.Str(name), apivalidation.NameIsDNSSubdomain(c.Str(name), false))
			}
		}
	}
	return names
}
