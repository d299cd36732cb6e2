package pod

import (
	"fmt"
	"regexp"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/setpoint-dev/setpoint/kinds/check"
	"github.com/setpoint-dev/setpoint/kinds/tree"
)

// podSecurity checks what a pod says about the identity of its processes.
func podSecurity(e *check.Errors, spec check.At) {
	sc := spec.Child("securityContext")
	if !sc.Exists() {
		return
	}
	if sc.Has("fsGroup") {
		e.Messages(sc.At("fsGroup"), sc.Int("fsGroup"),
			validation.IsValidGroupID(sc.Int("fsGroup")))
	}
	identity(e, sc)
	for i, v := range tree.List(sc.Map, "supplementalGroups") {
		gid, _ := v.(int64)
		e.Messages(sc.At("supplementalGroups").Index(i), gid, validation.IsValidGroupID(gid))
	}
	sysctls(e, spec, sc)
	e.OptionalOneOf(sc, "fsGroupChangePolicy", "Always", "OnRootMismatch")
	seccomp(e, sc.Child("seccompProfile"))
	windowsOptions(e, sc.Child("windowsOptions"))
	appArmor(e, sc.Child("appArmorProfile"))
	e.OptionalOneOf(sc, "supplementalGroupsPolicy", "Merge", "Strict")
	e.OptionalOneOf(sc, "seLinuxChangePolicy", "MountOption", "Recursive")
}

// containerSecurity checks the same for one container.
func containerSecurity(e *check.Errors, ctx *context, sc check.At) {
	if !sc.Exists() {
		return
	}
	identity(e, sc)
	if mount := sc.Str("procMount"); sc.Has("procMount") {
		e.OptionalOneOf(sc, "procMount", "Default", "Unmasked")
		if ctx.hostUsers() && mount == "Unmasked" {
			e.Invalid(sc.At("procMount"), mount, "`hostUsers` must be false to use `Unmasked`")
		}
	}
	seccomp(e, sc.Child("seccompProfile"))
	if sc.Has("allowPrivilegeEscalation") && !sc.Bool("allowPrivilegeEscalation") {
		if sc.Bool("privileged") {
			e.Invalid(sc.Path, shownContext(sc),
				"cannot set `allowPrivilegeEscalation` to false and `privileged` to true")
		}
		for _, capability := range sc.Child("capabilities").Strings("add") {
			if capability == "CAP_SYS_ADMIN" {
				e.Invalid(sc.Path, shownContext(sc),
					"cannot set `allowPrivilegeEscalation` to false and `capabilities.Add` CAP_SYS_ADMIN")
			}
		}
	}
	windowsOptions(e, sc.Child("windowsOptions"))
	appArmor(e, sc.Child("appArmorProfile"))
}

func identity(e *check.Errors, sc check.At) {
	if sc.Has("runAsUser") {
		e.Messages(sc.At("runAsUser"), sc.Int("runAsUser"),
			validation.IsValidUserID(sc.Int("runAsUser")))
	}
	if sc.Has("runAsGroup") {
		e.Messages(sc.At("runAsGroup"), sc.Int("runAsGroup"),
			validation.IsValidGroupID(sc.Int("runAsGroup")))
	}
}

// shownContext is a container's security context as messages show it.
func shownContext(sc check.At) any {
	return check.Shown(sc.Map, "Capabilities", "Privileged", "SELinuxOptions=seLinuxOptions", "WindowsOptions",
		"RunAsUser", "RunAsGroup", "RunAsNonRoot", "ReadOnlyRootFilesystem", "AllowPrivilegeEscalation", "ProcMount",
		"SeccompProfile", "AppArmorProfile")
}

func seccomp(e *check.Errors, p check.At) {
	if !p.Exists() {
		return
	}
	kind, local := p.Str("type"), p.Str("localhostProfile")
	if kind == "" {
		e.Required(p.At("type"), "type is required when seccompProfile is set")
	} else {
		e.OptionalOneOf(p, "type", "Localhost", "RuntimeDefault", "Unconfined")
	}
	switch {
	case kind != "Localhost" && p.Has("localhostProfile"):
		e.Invalid(p.At("localhostProfile"), check.Shown(p.Map, "Type", "LocalhostProfile"), "can only be set when seccomp type is Localhost")
	case kind == "Localhost" && !p.Has("localhostProfile"):
		e.Required(p.At("localhostProfile"), "must be set when seccomp type is Localhost")
	case kind == "Localhost":
		e.LocalPath(p.At("localhostProfile"), local)
	}
}

// appArmorProfileMax is the longest path of Linux, less its terminator.
const appArmorProfileMax = 4095

func appArmor(e *check.Errors, p check.At) {
	if !p.Exists() {
		return
	}
	path, local := p.At("localhostProfile"), p.Str("localhostProfile")
	switch kind := p.Str("type"); kind {
	case "Localhost":
		if strings.TrimSpace(local) != local {
			e.Invalid(path, local, "must not be padded with whitespace")
		} else if local == "" {
			e.Required(path, "must be set when AppArmor type is Localhost")
		}
		if len(local) > appArmorProfileMax {
			e.TooLong(path, appArmorProfileMax)
		}
	case "RuntimeDefault", "Unconfined":
		if p.Has("localhostProfile") {
			e.Invalid(path, local, "can only be set when AppArmor type is Localhost")
		}
	case "":
		e.Required(p.At("type"), "type is required when appArmorProfile is set")
	default:
		e.NotSupported(p.At("type"), kind, "Localhost", "RuntimeDefault", "Unconfined")
	}
}

// sysctlMax is how long the name of a kernel parameter may be.
const sysctlMax = 253

var sysctlName = sync.OnceValue(func() *regexp.Regexp {
	const segment = "[a-z0-9]([-_a-z0-9]*[a-z0-9])?"
	return regexp.MustCompile("^(" + segment + `[\./])*` + segment + "$")
})

func sysctls(e *check.Errors, spec, sc check.At) {
	seen := sets.Set[string]{}
	for _, s := range sc.Each("sysctls") {
		name, path := s.Str("name"), s.At("name")
		switch {
		case name == "":
			e.Required(path, "")
		case len(name) > sysctlMax || !sysctlName().MatchString(name):
			e.Invalid(path, name,
				fmt.Sprintf("must have at most %d characters and match regex %s",
					sysctlMax, sysctlName()))
		case seen.Has(name):
			e.Duplicate(path, name)
		}
		seen.Insert(name)
		switch {
		case spec.Bool("hostNetwork") && strings.HasPrefix(name, "net."):
			e.Invalid(path, name, "may not be specified when 'hostNetwork' is true")
		case spec.Bool("hostIPC") && ofIPC(name):
			e.Invalid(path, name, "may not be specified when 'hostIPC' is true")
		}
	}
}

// ofIPC says whether a kernel parameter belongs to the namespace of inter-process communication.
func ofIPC(name string) bool {
	return strings.HasPrefix(name, "kernel.shm") || strings.HasPrefix(name, "kernel.msg") ||
		name == "kernel.sem" || strings.HasPrefix(name, "fs.mqueue.")
}

// namespaces checks that what a pod shares with its host can be had together.
func namespaces(e *check.Errors, spec check.At) {
	if spec.Bool("shareProcessNamespace") && spec.Bool("hostPID") {
		e.Invalid(spec.At("shareProcessNamespace"), true,
			"ShareProcessNamespace and HostPID cannot both be enabled")
	}
}

// userNamespace checks what cannot be had with users that are not the host's.
func userNamespace(e *check.Errors, ctx *context) {
	if ctx.hostUsers() {
		return
	}
	const detail = "when `hostUsers` is false"
	for _, f := range [][2]string{{"hostNetwork", "hostNetwork"}, {"hostPID", "HostPID"}, {"hostIPC", "HostIPC"}} {
		if ctx.spec.Bool(f[0]) {
			e.Forbidden(ctx.spec.At(f[1]), detail)
		}
	}
	for c := range eachContainer(ctx.spec) {
		if c.Len("volumeDevices") > 0 {
			e.Forbidden(c.At("volumeDevices"), detail)
		}
	}
}
