package pod

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/setpoint-dev/setpoint/kinds/check"
	"github.com/setpoint-dev/setpoint/kinds/tree"
)

// context is what the rules for a container ask of the pod around it.
type context struct {
	spec    check.At
	isPod   bool             // not the template of one
	volumes map[string]any   // the volumes that are right, by name
	claims  sets.Set[string] // names in resourceClaims
}

func (c *context) hostUsers() bool {
	return !c.spec.Has("hostUsers") || c.spec.Bool("hostUsers")
}

// containers checks the regular containers.
func containers(e *check.Errors, ctx *context) {
	if ctx.spec.Len("containers") == 0 {
		e.Required(ctx.spec.At("containers"), "")
		return
	}
	names := sets.Set[string]{}
	for _, c := range ctx.spec.Each("containers") {
		container(e, ctx, c)
		unique(e, c, names)
		lifecycle(e, ctx, c)
		probes(e, ctx, c)
		restartPolicy(e, c)
	}
	hostPorts(e, ctx.spec.Each("containers"))
}

// initContainers checks the containers that run first, and the sidecars among them, which have
// restartPolicy Always and may have what regular containers have.
func initContainers(e *check.Errors, ctx *context) {
	names := sets.Set[string]{}
	for _, c := range ctx.spec.Each("containers") {
		names.Insert(c.Str("name"))
	}
	for i, c := range ctx.spec.Each("initContainers") {
		container(e, ctx, c)
		restartPolicy(e, c)
		unique(e, c, names)
		hostPorts(e, func(yield func(int, check.At) bool) { yield(i, c) })
		if c.Str("restartPolicy") == "Always" {
			lifecycle(e, ctx, c)
			probes(e, ctx, c)
			continue
		}
		for _, name := range []string{"lifecycle", "livenessProbe", "readinessProbe", "startupProbe"} {
			if c.Has(name) {
				e.Forbidden(c.At(name),
					"may not be set for init containers without restartPolicy=Always")
			}
		}
		for _, p := range c.Each("resizePolicy") {
			if p.Str("restartPolicy") == "RestartContainer" {
				e.Invalid(p.At("restartPolicy"), "RestartContainer",
					"must not be set to 'RestartContainer' for non-sidecar initContainers")
			}
		}
	}
}

// ephemeralContainers checks the containers that were added to a running pod to look into it. They
// are never restarted and are no part of the workload.
func ephemeralContainers(e *check.Errors, ctx *context) {
	others, names := sets.Set[string]{}, sets.Set[string]{}
	for _, list := range []string{"containers", "initContainers"} {
		for _, c := range ctx.spec.Each(list) {
			others.Insert(c.Str("name"))
			names.Insert(c.Str("name"))
		}
	}
	for _, c := range ctx.spec.Each("ephemeralContainers") {
		container(e, ctx, c)
		imageHasNoSpace(e, c)
		unique(e, c, names)
		if target := c.Str("targetContainerName"); target != "" && !others.Has(target) {
			e.NotFound(c.At("targetContainerName"), target)
		}
		const notHere = "cannot be set for an Ephemeral Container"
		for _, name := range []string{"ports", "resources", "resizePolicy", "restartPolicy", "restartPolicyRules",
			"livenessProbe", "readinessProbe", "startupProbe", "lifecycle"} {
			if v := c.Get(name); v != nil && !isEmptyMap(v) {
				e.Forbidden(c.At(name), notHere)
			}
		}
		for _, m := range c.Each("volumeMounts") {
			for _, name := range []string{"subPath", "subPathExpr"} {
				if m.Str(name) != "" {
					e.Forbidden(m.At(name), notHere)
				}
			}
		}
	}
}

func isEmptyMap(v any) bool {
	m, ok := v.(map[string]any)
	return ok && len(m) == 0
}

func unique(e *check.Errors, c check.At, names sets.Set[string]) {
	name := c.Str("name")
	if names.Has(name) {
		e.Duplicate(c.At("name"), name)
	} else if name != "" {
		names.Insert(name)
	}
}

// container checks what all containers have in common.
func container(e *check.Errors, ctx *context, c check.At) {
	if name := c.Str("name"); name == "" {
		e.Required(c.At("name"), "")
	} else {
		e.DNSLabel(c.At("name"), name)
	}
	if c.Str("image") == "" {
		e.Required(c.At("image"), "")
	}
	e.OneOf(c, "terminationMessagePolicy", "File", "FallbackToLogsOnError")
	ports(e, c)
	env(e, c)
	envFrom(e, c)
	volumeMounts(e, ctx, c)
	volumeDevices(e, ctx, c)
	e.OneOf(c, "imagePullPolicy", "Always", "IfNotPresent", "Never")
	resources(e, c.Child("resources"), ctx.claims, containerResourceName)
	resizePolicy(e, ctx, c)
	containerSecurity(e, ctx, c.Child("securityContext"))
}

func imageHasNoSpace(e *check.Errors, c check.At) {
	if image := c.Str("image"); image != strings.TrimSpace(image) {
		e.Invalid(c.At("image"), image, "must not have leading or trailing whitespace")
	}
}

var protocols = []string{"SCTP", "TCP", "UDP"}

func ports(e *check.Errors, c check.At) {
	names := sets.Set[string]{}
	for _, p := range c.Each("ports") {
		if name := p.Str("name"); name != "" {
			if msgs := validation.IsValidPortName(name); len(msgs) > 0 {
				e.Messages(p.At("name"), name, msgs)
			} else {
				unique(e, p, names)
			}
		}
		if n := p.Int("containerPort"); n == 0 {
			e.Required(p.At("containerPort"), "")
		} else {
			e.PortNumber(p.At("containerPort"), n)
		}
		if n := p.Int("hostPort"); n != 0 {
			e.PortNumber(p.At("hostPort"), n)
		}
		e.OneOf(p, "protocol", protocols...)
	}
}

// hostPorts checks that no two containers that run at once want one port of the host.
func hostPorts(e *check.Errors, containers func(func(int, check.At) bool)) {
	taken := sets.Set[string]{}
	for _, c := range containers {
		for _, p := range c.Each("ports") {
			n := p.Int("hostPort")
			if n == 0 {
				continue
			}
			key := fmt.Sprintf("%s/%s/%d", p.Str("protocol"), p.Str("hostIP"), n)
			if taken.Has(key) {
				e.Duplicate(p.At("hostPort"), key)
			}
			taken.Insert(key)
		}
	}
}

func resizePolicy(e *check.Errors, ctx *context, c check.At) {
	path := c.At("resizePolicy")
	seen := sets.Set[string]{}
	for i, p := range c.Each("resizePolicy") {
		name := p.Str("resourceName")
		if seen.Has(name) {
			e.Duplicate(path.Index(i), name)
		}
		seen.Insert(name)
		oneOfAt(e, path, name, "cpu", "memory")
		policy := p.Str("restartPolicy")
		oneOfAt(e, path, policy, "NotRequired", "RestartContainer")
		if ctx.spec.Str("restartPolicy") == "Never" && policy != "NotRequired" {
			e.Invalid(path, policy, "must be 'NotRequired' when pod `restartPolicy` is 'Never'")
		}
	}
}

// oneOfAt is Errors.OneOf for rules that report at a list and not at the item's field.
func oneOfAt(e *check.Errors, path check.Path, value string, allowed ...string) {
	if value == "" {
		e.Required(path, "")
	} else if !slices.Contains(allowed, value) {
		e.NotSupported(path, value, allowed...)
	}
}

// Bounds on a container's restart rules, and on the exit codes of one: as upstream has them.
const (
	restartRulesMax = 20
	exitCodesMax    = 255
)

// restartPolicy checks a container's own restart policy, which overrides the pod's.
func restartPolicy(e *check.Errors, c check.At) {
	rules := c.At("restartPolicyRules")
	if !c.Has("restartPolicy") {
		if c.Len("restartPolicyRules") > 0 {
			e.Required(c.At("restartPolicy"),
				"must specify restartPolicy when restart rules are used")
		}
	} else {
		e.OptionalOneOf(c, "restartPolicy", "Always", "Never", "OnFailure")
	}
	if n := c.Len("restartPolicyRules"); n > restartRulesMax {
		e.TooMany(rules, n, restartRulesMax)
	}
	for _, r := range c.Each("restartPolicyRules") {
		if action := r.Str("action"); action != "Restart" && action != "RestartAllContainers" {
			e.NotSupported(r.At("action"), action, "Restart", "RestartAllContainers")
		}
		codes := r.Child("exitCodes")
		if !codes.Exists() {
			e.Required(codes.Path, "must be specified")
			continue
		}
		if op := codes.Str("operator"); op != "In" && op != "NotIn" {
			e.NotSupported(codes.At("operator"), op, "In", "NotIn")
		}
		if n := codes.Len("values"); n > exitCodesMax {
			e.TooMany(codes.At("values"), n, exitCodesMax)
		}
	}
}

// eachContainer goes through all containers of a spec, init containers first.
func eachContainer(spec check.At) func(func(check.At) bool) {
	return func(yield func(check.At) bool) {
		for _, list := range containerLists {
			for _, c := range spec.Each(list) {
				if !yield(c) {
					return
				}
			}
		}
	}
}

// hasContainer says whether a spec has a container of a name, of whatever sort.
func hasContainer(spec map[string]any, name string) bool {
	return slices.ContainsFunc(containerLists, func(list string) bool {
		return tree.Find(tree.List(spec, list), "name", name) != nil
	})
}
