package pod

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/setpoint-dev/setpoint/kinds/check"
)

// What an annotation may say about a pod; those of the past are checked and not heeded.
const (
	mirrorAnnotation       = "kubernetes.io/config.mirror"
	deletionCostAnnotation = "controller.kubernetes.io/pod-deletion-cost"
	tolerationsAnnotation  = "scheduler.alpha.kubernetes.io/tolerations"
	appArmorAnnotation     = "container.apparmor.security.beta.kubernetes.io/"
)

// CheckTemplate checks the template of a pod at a place such as spec.template.
func CheckTemplate(e *check.Errors, template check.At) {
	CheckTemplateMetadata(e, template)
	spec := template.Child("spec")
	checkSpec(e, spec, false)
	if spec.Len("ephemeralContainers") > 0 {
		e.Forbidden(spec.At("ephemeralContainers"),
			"ephemeral containers not allowed in pod template")
	}
}

// CheckTemplateMetadata checks the labels and annotations of a template alone.
func CheckTemplateMetadata(e *check.Errors, template check.At) {
	meta := template.Child("metadata")
	// The labels are reported beside metadata and not in it: upstream's paths are so.
	e.Add(metavalidation.ValidateLabels(meta.StringMap("labels"), template.At("labels").Field())...)
	e.Add(apivalidation.ValidateAnnotations(meta.StringMap("annotations"), template.At("annotations").Field())...)
	annotations(e, check.At{Map: meta.Map, Path: template.Path}, template.Child("spec"))
}

// checkSpec checks the spec of a pod, or of a template.
func checkSpec(e *check.Errors, spec check.At, isPod bool) {
	if !spec.Has("terminationGracePeriodSeconds") {
		e.Required(spec.At("terminationGracePeriodSeconds"), "")
	}
	ctx := &context{spec: spec, isPod: isPod}
	ctx.volumes = volumes(e, spec)
	ctx.claims = resourceClaims(e, spec)
	containers(e, ctx)
	initContainers(e, ctx)
	ephemeralContainers(e, ctx)
	podResources(e, ctx)
	hostNetworkPorts(e, ctx)
	e.OneOf(spec, "restartPolicy", "Always", "OnFailure", "Never")
	e.OneOf(spec, "dnsPolicy", "ClusterFirstWithHostNet", "ClusterFirst", "Default", "None")
	e.Labels(spec, "nodeSelector")
	podSecurity(e, spec)
	namespaces(e, spec)
	affinity(e, spec)
	dns(e, spec)
	readinessGates(e, spec)
	schedulingGates(e, spec)
	spread(e, spec)
	userNamespace(e, ctx)
	hostnameOverride(e, spec)
	names(e, spec)
	tolerations(e, spec)
	hostAliases(e, spec)
	classes(e, spec)
	operatingSystem(e, spec)
	fileKeyRefVolumes(e, spec)
}

// hostNetworkPorts checks that ports are those of the host where there are no others. A template may
// leave them out: they are set when it becomes a pod.
func hostNetworkPorts(e *check.Errors, ctx *context) {
	if !ctx.spec.Bool("hostNetwork") {
		return
	}
	for _, c := range ctx.spec.Each("containers") {
		for _, p := range c.Each("ports") {
			host := p.Int("hostPort")
			if (ctx.isPod || host != 0) && host != p.Int("containerPort") {
				e.Invalid(p.At("hostPort"), host,
					"must match `containerPort` when `hostNetwork` is true")
			}
		}
	}
}

// names checks the fields that name something: an account, a node, the pod's host name.
func names(e *check.Errors, spec check.At) {
	if name := spec.Str("serviceAccountName"); name != "" {
		e.Messages(spec.At("serviceAccountName"), name,
			apivalidation.ValidateServiceAccountName(name, false))
	}
	if name := spec.Str("nodeName"); name != "" {
		e.Messages(spec.At("nodeName"), name, apivalidation.NameIsDNSSubdomain(name, false))
	}
	if n := spec.Int("activeDeadlineSeconds"); spec.Has("activeDeadlineSeconds") && (n < 1 || n > math.MaxInt32) {
		e.Invalid(spec.At("activeDeadlineSeconds"), n,
			validation.InclusiveRangeError(1, math.MaxInt32))
	}
	for _, field := range []string{"hostname", "subdomain"} {
		if name := spec.Str(field); name != "" {
			e.DNSLabel(spec.At(field), name)
		}
	}
}

// hostnameMax is the longest host name that Linux keeps.
const hostnameMax = 64

func hostnameOverride(e *check.Errors, spec check.At) {
	if !spec.Has("hostnameOverride") {
		return
	}
	path, name := spec.At("hostnameOverride"), spec.Str("hostnameOverride")
	if spec.Bool("setHostnameAsFQDN") {
		e.Forbidden(path, "may not be specified when setHostnameAsFQDN is true")
	}
	if spec.Bool("hostNetwork") {
		e.Forbidden(path, "may not be specified when hostNetwork is true")
	}
	if len(name) > hostnameMax {
		e.TooLong(path, hostnameMax)
	}
	e.DNSSubdomain(path, name)
}

// Bounds of the resolver of Linux' C library.
const (
	nameserversMax = 3
	searchesMax    = 32
	searchCharsMax = 2048
)

func dns(e *check.Errors, spec check.At) {
	config := spec.Child("dnsConfig")
	if spec.Str("dnsPolicy") == "None" {
		if !config.Exists() {
			e.Required(config.Path, "must provide `dnsConfig` when `dnsPolicy` is None")
			return
		}
		if config.Len("nameservers") == 0 {
			e.Required(config.At("nameservers"),
				"must provide at least one DNS nameserver when `dnsPolicy` is None")
			return
		}
	}
	servers, searches := config.Strings("nameservers"), config.Strings("searches")
	if len(servers) > nameserversMax {
		e.Invalid(config.At("nameservers"), servers,
			fmt.Sprintf("must not have more than %d nameservers", nameserversMax))
	}
	for i, ip := range servers {
		e.IP(config.At("nameservers").Index(i), ip)
	}
	if len(searches) > searchesMax {
		e.Invalid(config.At("searches"), searches,
			fmt.Sprintf("must not have more than %d search paths", searchesMax))
	}
	if len(strings.Join(searches, " ")) > searchCharsMax {
		e.Invalid(config.At("searches"), searches,
			fmt.Sprintf("must not have more than %d characters (including spaces) in the search list", searchCharsMax))
	}
	for i, search := range searches {
		if search != "." {
			search = strings.TrimSuffix(search, ".")
			e.Messages(config.At("searches").Index(i), search,
				validation.IsDNS1123SubdomainWithUnderscore(search))
		}
	}
	for _, option := range config.Each("options") {
		if option.Str("name") == "" {
			e.Required(option.Path, "must not be empty")
		}
	}
}

func hostAliases(e *check.Errors, spec check.At) {
	for _, alias := range spec.Each("hostAliases") {
		e.IP(alias.At("ip"), alias.Str("ip"))
		for i, name := range alias.Strings("hostnames") {
			e.DNSSubdomain(alias.At("hostnames").Index(i), name)
		}
	}
}

// classes checks what decides how important a pod is, and how it is run.
func classes(e *check.Errors, spec check.At) {
	for _, field := range []string{"priorityClassName", "runtimeClassName"} {
		if name := spec.Str(field); name != "" || field == "runtimeClassName" && spec.Has(field) {
			e.Messages(spec.At(field), name, apivalidation.NameIsDNSSubdomain(name, false))
		}
	}
	if spec.Has("preemptionPolicy") {
		e.OneOf(spec, "preemptionPolicy", "PreemptLowerPriority", "Never")
	}
	if overhead := spec.Child("overhead"); overhead.Exists() {
		limits := check.At{Map: map[string]any{"limits": overhead.Map}, Path: overhead.Path}
		resources(e, limits, nil, containerResourceName)
	}
}

func operatingSystem(e *check.Errors, spec check.At) {
	os := spec.Child("os")
	if !os.Exists() {
		return
	}
	switch name := os.Str("name"); name {
	case "linux", "windows":
	case "":
		e.Required(os.At("name"), "")
	default:
		e.NotSupported(os.Path, name, "linux", "windows")
	}
}

// annotations checks the annotations in a pod's or a template's metadata that mean something for it.
func annotations(e *check.Errors, meta, spec check.At) {
	path, values := meta.At("annotations"), meta.StringMap("annotations")
	if v, ok := values[mirrorAnnotation]; ok && spec.Str("nodeName") == "" {
		e.Invalid(path.Key(mirrorAnnotation), v,
			"must set spec.nodeName if mirror pod annotation is set")
	}
	if v := values[tolerationsAnnotation]; v != "" {
		var list []any
		if err := json.Unmarshal([]byte(v), &list); err != nil {
			e.Invalid(path, tolerationsAnnotation, err.Error())
		}
	}
	if v, ok := values[deletionCostAnnotation]; ok && !isDeletionCost(v) {
		e.Invalid(path.Key(deletionCostAnnotation), v, "must be a 32bit integer")
	}
	for _, key := range slices.Sorted(maps.Keys(values)) {
		name, ok := strings.CutPrefix(key, appArmorAnnotation)
		if ok && !hasContainer(spec.Map, name) {
			e.Invalid(path.Key(key), name, "container not found")
		}
		if profile := values[key]; ok && profile != "" && profile != "unconfined" && profile != "runtime/default" &&
			!strings.HasPrefix(profile, "localhost/") {
			e.Invalid(path.Key(key), profile, fmt.Sprintf("invalid AppArmor profile name: %q", profile))
		}
	}
}

// isDeletionCost says whether a text is an integer of 32 bits in its one spelling.
func isDeletionCost(s string) bool {
	n, err := strconv.ParseInt(s, 10, 32)
	return err == nil && strconv.FormatInt(n, 10) == s
}
