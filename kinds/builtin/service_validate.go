package builtin

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/setpoint-dev/setpoint/kinds"
	"github.com/setpoint-dev/setpoint/kinds/check"
	"github.com/setpoint-dev/setpoint/kinds/tree"
)

const onlyLoadBalancer = "may only be used when `type` is 'LoadBalancer'"

// affinitySecondsMax is a day, upstream's bound.
const affinitySecondsMax = 86400

var protocols = []string{"SCTP", "TCP", "UDP"}

func validateService(obj kinds.Object) field.ErrorList {
	var e check.Errors
	spec := check.Root(obj).Child("spec")
	kind := spec.Str("type")
	if spec.Len("ports") == 0 && !isHeadless(spec.Map) && kind != externalNameType {
		e.Required(spec.At("ports"), "")
	}
	serviceType(&e, spec)
	names := sets.Set[string]{}
	for _, p := range spec.Each("ports") {
		servicePort(&e, p, spec.Len("ports") > 1, names)
	}
	e.Labels(spec, "selector")
	sessionAffinity(&e, spec)
	clusterIPFields(&e, spec)
	for i, ip := range spec.Strings("externalIPs") {
		path := spec.At("externalIPs").Index(i)
		if e.IP(path, ip) {
			endpointIP(&e, path, ip, false)
		}
	}
	e.OneOf(spec, "type", clusterIPType, externalNameType, loadBalancerType, nodePortType)
	portNumbers(&e, spec)
	loadBalancer(&e, check.Root(obj))
	trafficPolicies(&e, spec)
	return e.List()
}

// serviceType checks what each type must and must not have.
func serviceType(e *check.Errors, spec check.At) {
	switch kind := spec.Str("type"); kind {
	case loadBalancerType, nodePortType:
		if isHeadless(spec.Map) {
			e.Invalid(spec.At("clusterIPs").Index(0), headless,
				"may not be set to 'None' for "+kind+" services")
		}
	case externalNameType:
		for _, name := range []string{"clusterIPs", "ipFamilies"} {
			if spec.Len(name) > 0 {
				e.Forbidden(spec.At(name), "may not be set for ExternalName services")
			}
		}
		if spec.Has("ipFamilyPolicy") {
			e.Forbidden(spec.At("ipFamilyPolicy"), "may not be set for ExternalName services")
		}
		if name := strings.TrimSuffix(spec.Str("externalName"), "."); name != "" {
			e.DNSSubdomain(spec.At("externalName"), name)
		} else {
			e.Required(spec.At("externalName"), "")
		}
	}
}

func servicePort(e *check.Errors, p check.At, named bool, names sets.Set[string]) {
	name := p.Str("name")
	switch {
	case name == "" && named:
		e.Required(p.At("name"), "")
	case name != "":
		e.DNSLabel(p.At("name"), name)
		if names.Has(name) {
			e.Duplicate(p.At("name"), name)
		}
		names.Insert(name)
	}
	e.PortNumber(p.At("port"), p.Int("port"))
	e.OneOf(p, "protocol", protocols...)
	e.Port(p.At("targetPort"), p.Get("targetPort"))
	if p.Has("appProtocol") {
		e.QualifiedName(p.At("appProtocol"), p.Str("appProtocol"))
	}
}

func sessionAffinity(e *check.Errors, spec check.At) {
	e.OneOf(spec, "sessionAffinity", "ClientIP", "None")
	config := spec.Child("sessionAffinityConfig")
	switch spec.Str("sessionAffinity") {
	case "None":
		if config.Exists() {
			e.Forbidden(config.Path, "must not be set when session affinity is None")
		}
	case "ClientIP":
		const when = "when session affinity type is ClientIP"
		client := config.Child("clientIP")
		seconds := client.Int("timeoutSeconds")
		switch {
		case !config.Exists():
			e.Required(config.Path, when)
		case !client.Exists():
			e.Required(client.Path, when)
		case !client.Has("timeoutSeconds"):
			e.Required(client.At("timeoutSeconds"), when)
		case seconds <= 0 || seconds > affinitySecondsMax:
			e.Invalid(client.At("timeoutSeconds"), seconds,
				fmt.Sprintf("must be greater than 0 and less than %d", affinitySecondsMax))
		}
	}
}

// clusterIPFields checks the fields about a service's own addresses against each other.
func clusterIPFields(e *check.Errors, spec check.At) {
	if !needsClusterIP(spec.Map) {
		return
	}
	ip, ips, path := spec.Str("clusterIP"), spec.Strings("clusterIPs"), spec.At("clusterIPs")
	switch {
	case ip == "" && len(ips) > 0:
		e.Invalid(path, ips, "must be empty when `clusterIP` is not specified")
	case ip != "" && len(ips) == 0:
		e.Required(path, "")
	case ip != "" && ips[0] != ip:
		e.Invalid(path, ips, "first value must match `clusterIP`")
	}
	families := spec.Strings("ipFamilies")
	for i, family := range families {
		at := spec.At("ipFamilies").Index(i)
		if family != "IPv4" && family != "IPv6" {
			e.NotSupported(at, family, "IPv4", "IPv6")
		}
		if slices.Contains(families[:i], family) {
			e.Duplicate(at, family)
		}
	}
	e.OptionalOneOf(spec, "ipFamilyPolicy", "PreferDualStack", "RequireDualStack", "SingleStack")
	unknown := func(family string) bool { return family != "IPv4" && family != "IPv6" }
	if slices.ContainsFunc(families, unknown) {
		return
	}
	if !addressesValid(e, path, ips) || isHeadless(spec.Map) {
		return
	}
	if !oneOfEachFamily(ips) && len(ips) == 2 {
		e.Invalid(path, ips, "may specify no more than one IP for each IP family")
	}
	for i, ip := range ips[:min(len(ips), len(families))] {
		if familyOf(ip) != families[i] {
			e.Invalid(path.Index(i), ip,
				fmt.Sprintf("expected an %s value as indicated by `ipFamilies[%d]`", families[i], i))
		}
	}
}

func addressesValid(e *check.Errors, path check.Path, ips []string) bool {
	valid := true
	for i, ip := range ips {
		if i == 0 && ip == headless {
			if len(ips) > 1 {
				e.Invalid(path, ips, "'None' must be the first and only value")
				valid = false
			}
			continue
		}
		valid = e.IP(path.Index(i), ip) && valid
	}
	if len(ips) > 2 {
		e.Invalid(path, ips, "may only hold up to 2 values")
	}
	return valid
}

func familyOf(ip string) string {
	if strings.Contains(ip, ":") {
		return "IPv6"
	}
	return "IPv4"
}

// portKey is what clients are shown of a port that is there twice.
type portKey struct {
	Name        string
	Protocol    string
	AppProtocol *string
	Port        int64
	TargetPort  int64
	NodePort    int64
}

func portNumbers(e *check.Errors, spec check.At) {
	if spec.Str("type") == clusterIPType {
		for _, p := range spec.Each("ports") {
			if p.Int("nodePort") != 0 {
				e.Forbidden(p.At("nodePort"), "may not be used when `type` is 'ClusterIP'")
			}
		}
	}
	nodePorts, ports := sets.Set[portKey]{}, sets.Set[portKey]{}
	for _, p := range spec.Each("ports") {
		key := portKey{Protocol: p.Str("protocol"), NodePort: p.Int("nodePort")}
		if key.NodePort != 0 && nodePorts.Has(key) {
			e.Duplicate(p.At("nodePort"), key.NodePort)
		}
		nodePorts.Insert(key)
	}
	for _, p := range spec.Each("ports") {
		key := portKey{Protocol: p.Str("protocol"), Port: p.Int("port")}
		if ports.Has(key) {
			e.Duplicate(p.Path, key)
		}
		ports.Insert(key)
	}
}

func loadBalancer(e *check.Errors, obj check.At) {
	spec := obj.Child("spec")
	balanced := spec.Str("type") == loadBalancerType
	ranges := spec.At("LoadBalancerSourceRanges") // as upstream spells it here
	if spec.Len("loadBalancerSourceRanges") > 0 && !balanced {
		e.Forbidden(ranges, onlyLoadBalancer)
	}
	for i, cidr := range spec.Strings("loadBalancerSourceRanges") {
		e.CIDR(ranges.Index(i), strings.TrimSpace(cidr))
	}
	if !balanced && spec.Has("allocateLoadBalancerNodePorts") {
		e.Forbidden(spec.At("allocateLoadBalancerNodePorts"), onlyLoadBalancer)
	}
	if balanced && !spec.Has("allocateLoadBalancerNodePorts") {
		e.Required(check.NewPath("allocateLoadBalancerNodePorts"), "")
	}
	if spec.Has("loadBalancerClass") {
		if balanced {
			e.QualifiedName(spec.At("loadBalancerClass"), spec.Str("loadBalancerClass"))
		} else {
			e.Forbidden(spec.At("loadBalancerClass"), onlyLoadBalancer)
		}
	}
}

func trafficPolicies(e *check.Errors, spec check.At) {
	policy := spec.At("externalTrafficPolicy")
	if external(spec.Map) {
		e.OneOf(spec, "externalTrafficPolicy", "Cluster", "Local")
	} else if v := spec.Str("externalTrafficPolicy"); v != "" {
		e.Invalid(policy, v, "may only be set for externally-accessible services")
	}
	port, path := spec.Int("healthCheckNodePort"), spec.At("healthCheckNodePort")
	switch {
	case !needsHealthCheckPort(spec.Map) && port != 0:
		e.Invalid(path, port,
			"may only be set when `type` is 'LoadBalancer' and `externalTrafficPolicy` is 'Local'")
	case needsHealthCheckPort(spec.Map) && port == 0:
		e.Required(path, "")
	case needsHealthCheckPort(spec.Map):
		e.PortNumber(path, port)
	}
	e.OptionalOneOf(spec, "internalTrafficPolicy", "Cluster", "Local")
	e.OptionalOneOf(spec, "trafficDistribution", "PreferClose", "PreferSameZone", "PreferSameNode")
}

func validateServiceUpdate(obj, old kinds.Object) field.ErrorList {
	var e check.Errors
	spec, oldSpec := check.Root(obj).Child("spec"), check.Root(old).Child("spec")
	if needsClusterIP(spec.Map) && needsClusterIP(oldSpec.Map) {
		addressesKept(&e, spec, oldSpec)
	}
	class := spec.At("loadBalancerClass")
	if spec.Str("type") == loadBalancerType && oldSpec.Str("type") == loadBalancerType &&
		!tree.Equal(spec.Get("loadBalancerClass"), oldSpec.Get("loadBalancerClass")) {
		e.Invalid(class, spec.Get("loadBalancerClass"), "may not change once set")
	}
	if needsHealthCheckPort(spec.Map) && needsHealthCheckPort(oldSpec.Map) &&
		spec.Int("healthCheckNodePort") != oldSpec.Int("healthCheckNodePort") {
		e.Forbidden(spec.At("healthCheckNodePort"), check.Immutable)
	}
	return e.List()
}

// addressesKept checks that an address once given stays, and its family.
func addressesKept(e *check.Errors, spec, old check.At) {
	ips, was := spec.Strings("clusterIPs"), old.Strings("clusterIPs")
	path := spec.At("clusterIPs")
	if !isHeadless(spec.Map) || !isHeadless(old.Map) {
		for i := range was {
			if len(ips) == 0 {
				e.Invalid(path.Index(0), ips, "primary clusterIP can not be unset")
				break
			}
			if i < len(ips) && ips[i] != was[i] {
				e.Invalid(path.Index(i), ips, "may not change once set")
			}
		}
	}
	if isHeadless(spec.Map) || isHeadless(old.Map) {
		return
	}
	families, had := spec.Strings("ipFamilies"), old.Strings("ipFamilies")
	if len(families) > 0 && len(had) > 0 && families[0] != had[0] {
		e.Invalid(spec.At("ipFamilies").Index(0), families, "may not change once set")
	}
}

func validateServiceStatus(obj, _ kinds.Object) field.ErrorList {
	var e check.Errors
	balancer := check.Root(obj).Child("status").Child("loadBalancer")
	if balancer.Len("ingress") > 0 && tree.Str(obj, "spec", "type") != loadBalancerType {
		e.Forbidden(balancer.At("ingress"), "may only be used when `spec.type` is 'LoadBalancer'")
		return e.List()
	}
	for _, in := range balancer.Each("ingress") {
		ip, host := in.Str("ip"), in.Str("hostname")
		if ip != "" {
			e.IP(in.At("ip"), ip)
		}
		switch {
		case ip != "" && !in.Has("ipMode"):
			e.Required(in.At("ipMode"), "must be specified when `ip` is set")
		case ip == "" && in.Has("ipMode"):
			e.Forbidden(in.At("ipMode"), "may not be specified when `ip` is not set")
		default:
			e.OptionalOneOf(in, "ipMode", "Proxy", "VIP")
		}
		if host != "" {
			e.DNSSubdomain(in.At("hostname"), host)
			if _, err := netip.ParseAddr(host); err == nil {
				e.Invalid(in.At("hostname"), host, "must be a DNS name, not an IP address")
			}
		}
	}
	return e.List()
}
