package builtin

import (
	"strings"

	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/setpoint-dev/setpoint/kinds"
	"github.com/setpoint-dev/setpoint/kinds/check"
	"github.com/setpoint-dev/setpoint/kinds/tree"
)

// classControllerMax is upstream's bound on the name of the controller of a class.
const classControllerMax = 250

// What a path of an ingress rule may not have in it, and at its end, because proxies disagree about
// what it means.
var (
	pathParts = []string{"//", "/./", "/../", "%2f", "%2F"}
	pathEnds  = []string{"/..", "/."}
)

func validateIngress(obj kinds.Object) field.ErrorList {
	var e check.Errors
	spec := check.Root(obj).Child("spec")
	if spec.Len("rules") == 0 && !spec.Has("defaultBackend") {
		e.Invalid(check.NewPath("spec"), spec.Get("rules"), "either `defaultBackend` or `rules` must be specified")
	}
	if backend := spec.Child("defaultBackend"); backend.Exists() {
		ingressBackend(&e, backend)
	}
	for _, rule := range spec.Each("rules") {
		ingressRule(&e, rule)
	}
	for _, tls := range spec.Each("tls") {
		for i, host := range tls.Strings("hosts") {
			hostPattern(&e, tls.At("hosts").Index(i), host)
		}
		if name := tls.Str("secretName"); name != "" {
			e.Messages(tls.At("secretName"), name, apivalidation.NameIsDNSSubdomain(name, false))
		}
	}
	if name := spec.Str("ingressClassName"); spec.Has("ingressClassName") {
		e.Messages(spec.At("ingressClassName"), name, apivalidation.NameIsDNSSubdomain(name, false))
	}
	return e.List()
}

func validateNewIngress(obj kinds.Object) field.ErrorList {
	var e check.Errors
	old := check.Root(obj).Child("metadata").Child("annotations")
	class := tree.Get(obj, "spec", "ingressClassName")
	if v := old.Get(ingressClassAnnotation); v != nil && class != nil && v != class {
		e.Invalid(check.NewPath("annotations", ingressClassAnnotation), v,
			"must match `ingressClassName` when both are specified")
	}
	return e.List()
}

func ingressRule(e *check.Errors, rule check.At) {
	if host, path := rule.Str("host"), rule.At("host"); host != "" {
		if isIP(host) {
			e.Invalid(path, host, "must be a DNS name, not an IP address")
		}
		hostPattern(e, path, host)
	}
	http := rule.Child("http")
	if !http.Exists() {
		return
	}
	if http.Len("paths") == 0 {
		e.Required(http.At("paths"), "")
	}
	for _, p := range http.Each("paths") {
		ingressPath(e, p)
	}
}

// hostPattern checks the name of a host, or one that begins with "*.".
func hostPattern(e *check.Errors, path check.Path, host string) {
	if strings.Contains(host, "*") {
		e.Messages(path, host, validation.IsWildcardDNS1123Subdomain(host))
		return
	}
	e.DNSSubdomain(path, host)
}

func ingressPath(e *check.Errors, p check.At) {
	if !p.Has("pathType") {
		e.Required(p.At("pathType"), "pathType must be specified")
		return
	}
	text, path := p.Str("path"), p.At("path")
	switch p.Str("pathType") {
	case "Exact", "Prefix":
		if !strings.HasPrefix(text, "/") {
			e.Invalid(path, text, "must be an absolute path")
		}
		for _, part := range pathParts {
			if strings.Contains(text, part) {
				e.Invalid(path, text, "must not contain '"+part+"'")
			}
		}
		for _, end := range pathEnds {
			if strings.HasSuffix(text, end) {
				e.Invalid(path, text, "cannot end with '"+end+"'")
			}
		}
	case "ImplementationSpecific":
		if text != "" && !strings.HasPrefix(text, "/") {
			e.Invalid(path, text, "must be an absolute path")
		}
	default:
		e.OptionalOneOf(p, "pathType", "Exact", "ImplementationSpecific", "Prefix")
	}
	backend := p.Child("backend")
	backend.Path = p.At("backend")
	ingressBackend(e, backend)
}

func ingressBackend(e *check.Errors, b check.At) {
	resource, service := b.Child("resource"), b.Child("service")
	switch {
	case resource.Exists() && service.Exists():
		e.Invalid(b.Path, "", "cannot set both resource and service backends")
	case resource.Exists():
		reference(e, e, resource)
	case service.Exists():
		ingressService(e, b, service)
	default:
		e.Invalid(b.Path, "", "resource or service backend is required")
	}
}

func ingressService(e *check.Errors, b, service check.At) {
	if name := service.Str("name"); name == "" {
		e.Required(service.At("name"), "")
	} else {
		e.Messages(service.At("name"), name, apivalidation.NameIsDNSLabel(name, false))
	}
	port := service.Child("port")
	name, number := port.Str("name"), port.Int("number")
	switch {
	case name != "" && number != 0:
		e.Invalid(b.Path, "", "cannot set both port name & port number")
	case name != "":
		e.Messages(port.At("name"), name, validation.IsValidPortName(name))
	case number != 0:
		e.PortNumber(port.At("number"), number)
	default:
		e.Required(b.Path, "port name or number is required")
	}
}

// validateIngressStatus lets addresses stand that are old and in a form that is no longer accepted.
func validateIngressStatus(obj, old kinds.Object) field.ErrorList {
	var e check.Errors
	var kept []string
	for _, in := range tree.Maps(old, "status", "loadBalancer", "ingress") {
		kept = append(kept, tree.Str(in, "ip"))
	}
	for _, in := range check.Root(obj).Child("status").Child("loadBalancer").Each("ingress") {
		if ip := in.Str("ip"); ip != "" {
			e.Add(validation.IsValidIPForLegacyField(in.At("ip").Field(), ip, true, kept)...)
		}
		if host := in.Str("hostname"); host != "" {
			e.DNSSubdomain(in.At("hostname"), host)
			if isIP(host) {
				e.Invalid(in.At("hostname"), host, "must be a DNS name, not an IP address")
			}
		}
	}
	return e.List()
}

func validateIngressClass(obj kinds.Object) field.ErrorList {
	var e check.Errors
	spec := check.Root(obj).Child("spec")
	controller, path := spec.Str("controller"), check.NewPath("spec", "controller")
	if len(controller) > classControllerMax {
		e.TooLong(path, classControllerMax)
	}
	e.Add(validation.IsDomainPrefixedPath(path.Field(), controller)...)
	if p := spec.Child("parameters"); p.Exists() {
		reference(&e, e.Later(), p)
		classScope(&e, p)
	}
	return e.List()
}

func classScope(e *check.Errors, p check.At) {
	switch p.Str("scope") {
	case "Namespace":
		if !p.Has("namespace") {
			e.Required(p.At("namespace"), "`parameters.scope` is set to 'Namespace'")
			return
		}
		name := p.Str("namespace")
		e.Messages(p.At("namespace"), name, apivalidation.ValidateNamespaceName(name, false))
	case "Cluster":
		if p.Has("namespace") {
			e.Forbidden(p.At("namespace"), "`parameters.scope` is set to 'Cluster'")
		}
	default:
		e.OptionalOneOf(p, "scope", "Cluster", "Namespace")
	}
}
