package builtin

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/setpoint-dev/setpoint/kinds"
	"github.com/setpoint-dev/setpoint/kinds/check"
	"github.com/setpoint-dev/setpoint/kinds/schema"
	"github.com/setpoint-dev/setpoint/kinds/table"
	"github.com/setpoint-dev/setpoint/kinds/tree"
)

// Upstream's bounds on a slice, which are there to keep a change to one small.
const (
	endpointsMax = 1000
	addressesMax = 100
	portsMax     = 20000
	hintsMax     = 8
)

// cellWords is how many ports or addresses a cell shows before it says how many more there are.
const cellWords = 3

func endpointSlice() *kinds.Kind {
	doc := discoveryv1.EndpointSlice{}.SwaggerDoc()
	return &kinds.Kind{
		Group: "discovery.k8s.io", Version: "v1", Kind: "EndpointSlice",
		Resource: "endpointslices", Singular: "endpointslice", Namespaced: true,
		Schema: schema.Builtin("io.k8s.api.discovery.v1.EndpointSlice"),
		Columns: []kinds.Column{
			table.Name(),
			table.Text("AddressType", doc["addressType"], "addressType"),
			table.Column("Ports", doc["ports"], slicePorts),
			table.Column("Endpoints", doc["endpoints"], sliceAddresses),
			table.Age(),
		},
		Generation: true,
		Bumps: func(obj, old kinds.Object) bool {
			return !tree.Equal(tree.Get(obj, "metadata", "labels"),
				tree.Get(old, "metadata", "labels"))
		},
		DefaultPropagation: "Background",
		Strategy: kinds.Strategy{
			Default: defaultEndpointSlice,
			PrepareForCreate: func(_ *kinds.Env, obj kinds.Object) error {
				dropTopology(obj, nil)
				return nil
			},
			PrepareForUpdate: func(_ *kinds.Env, obj, old kinds.Object) error {
				dropTopology(obj, old)
				return nil
			},
			Validate:       validateEndpointSlice,
			ValidateCreate: validateNewEndpointSlice,
			ValidateUpdate: validateEndpointSliceUpdate,
			Warnings:       endpointSliceWarnings,
		},
	}
}

func endpointSliceWarnings(obj, _ kinds.Object) []string {
	if tree.Str(obj, "addressType") != "FQDN" {
		return nil
	}
	return []string{"spec.addressType: FQDN endpoints are deprecated"}
}

// dropTopology drops what v1beta1 had where v1 has nodeName and zone, from endpoints that change. A
// node's name that it had there already becomes nodeName.
func dropTopology(obj, old kinds.Object) {
	if old != nil && tree.Equal(obj["endpoints"], old["endpoints"]) {
		return
	}
	named := map[string]bool{}
	for _, ep := range tree.Maps(old, "endpoints") {
		named[tree.Str(ep, "deprecatedTopology", corev1.LabelHostname)] = true
	}
	for _, ep := range tree.Maps(obj, "endpoints") {
		name := tree.Str(ep, "deprecatedTopology", corev1.LabelHostname)
		if ep["nodeName"] == nil && name != "" && named[name] && len(apivalidation.NameIsDNSSubdomain(name, false)) == 0 {
			ep["nodeName"] = name
		}
		delete(ep, "deprecatedTopology")
	}
}

func defaultEndpointSlice(obj kinds.Object) {
	for _, p := range tree.Maps(obj, "ports") {
		tree.Default(p, "", "name")
		tree.Default(p, "TCP", "protocol")
	}
}

func validateEndpointSlice(obj kinds.Object) field.ErrorList {
	var e check.Errors
	endpointPorts(&e, check.Root(obj))
	return e.List()
}

var addressTypes = []string{"FQDN", "IPv4", "IPv6"}

func validateNewEndpointSlice(obj kinds.Object) field.ErrorList {
	var e check.Errors
	e.Later().OneOf(check.Root(obj), "addressType", addressTypes...)
	validateEndpoints(&e, obj)
	return e.List()
}

func validateEndpoints(e *check.Errors, obj kinds.Object) {
	slice := check.Root(obj)
	if n := slice.Len("endpoints"); n > endpointsMax {
		e.TooMany(slice.At("endpoints"), n, endpointsMax)
		return
	}
	for _, ep := range slice.Each("endpoints") {
		endpoint(e, ep, slice.Str("addressType"))
	}
}

// validateEndpointSliceUpdate looks at endpoints only if they changed: there may be very many.
func validateEndpointSliceUpdate(obj, old kinds.Object) field.ErrorList {
	var e check.Errors
	if obj["addressType"] != old["addressType"] {
		e.Later().Invalid(check.NewPath("addressType"), nil, check.Immutable)
		e.Later().OneOf(check.Root(obj), "addressType", addressTypes...)
	}
	if !tree.Equal(obj["endpoints"], old["endpoints"]) {
		validateEndpoints(&e, obj)
	}
	return e.List()
}

func endpointPorts(e *check.Errors, slice check.At) {
	if n := slice.Len("ports"); n > portsMax {
		e.TooMany(slice.At("ports"), n, portsMax)
		return
	}
	var names []string
	for _, p := range slice.Each("ports") {
		name := p.Str("name")
		if name != "" {
			e.DNSLabel(p.At("name"), name)
		}
		if slices.Contains(names, name) {
			e.Duplicate(p.At("name"), name)
		}
		names = append(names, name)
		e.OptionalOneOf(p, "protocol", protocols...)
		if p.Has("appProtocol") {
			e.QualifiedName(p.At("appProtocol"), p.Str("appProtocol"))
		}
	}
}

func endpoint(e *check.Errors, ep check.At, kind string) {
	list, path := ep.Strings("addresses"), ep.At("addresses")
	if len(list) == 0 {
		e.Later().Required(path, "")
	} else if len(list) > addressesMax {
		e.Later().TooMany(path, len(list), addressesMax)
	}
	for i, address := range list {
		endpointAddress(e, path, path.Index(i), kind, address)
	}
	if ep.Has("nodeName") {
		name := ep.Str("nodeName")
		e.Messages(ep.At("nodeName"), name, apivalidation.NameIsDNSSubdomain(name, false))
	}
	if ep.Has("hostname") {
		e.DNSLabel(ep.At("hostname"), ep.Str("hostname"))
	}
	hints(e, ep.Child("hints"))
}

func endpointAddress(e *check.Errors, list, path check.Path, kind, address string) {
	switch kind {
	case "FQDN":
		e.Add(validation.IsFullyQualifiedDomainName(path.Field(), address)...)
		return
	case "IPv4":
		if !e.IP(path, address) {
			return
		}
	case "IPv6":
		if errs := validation.IsValidIP(path.Field(), address); len(errs) > 0 {
			e.Add(errs...)
			return
		}
	default:
		return
	}
	if familyOf(address) != kind {
		e.Invalid(list, address, "must be an "+kind+" address")
	}
	endpointIP(e, path, address, true)
}

// endpointIP checks that traffic can be sent to an address. Pods have loopback addresses here, so
// those are let through where loopback says so.
func endpointIP(e *check.Errors, path check.Path, address string, loopback bool) {
	ip, err := netip.ParseAddr(address)
	switch {
	case err != nil:
		e.Invalid(path, address, "must be a valid IP address")
	case ip.IsUnspecified():
		e.Invalid(path, address, fmt.Sprintf("may not be unspecified (%s)", address))
	case ip.IsLoopback() && !loopback:
		e.Invalid(path, address, "may not be in the loopback range (127.0.0.0/8, ::1/128)")
	case ip.IsLinkLocalUnicast():
		e.Invalid(path, address, "may not be in the link-local range (169.254.0.0/16, fe80::/10)")
	case ip.IsLinkLocalMulticast():
		e.Invalid(path, address,
			"may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)")
	}
}

// hints checks where an endpoint would like its traffic from.
func hints(e *check.Errors, h check.At) {
	rules := []struct {
		field string
		check func(name string) []string
	}{
		{"forZones", validation.IsValidLabelValue},
		{"forNodes", func(name string) []string { return apivalidation.NameIsDNSSubdomain(name, false) }},
	}
	for _, rule := range rules {
		if n := h.Len(rule.field); n > hintsMax {
			e.TooMany(h.At(rule.field), n, hintsMax)
			return
		}
		var seen []string
		for _, hint := range h.Each(rule.field) {
			name := hint.Str("name")
			if slices.Contains(seen, name) {
				e.Duplicate(hint.At("name"), name)
			}
			seen = append(seen, name)
			e.Messages(hint.At("name"), name, rule.check(name))
		}
	}
}

func slicePorts(obj kinds.Object, _ time.Time) any {
	var words []string
	for _, p := range tree.Maps(obj, "ports") {
		word := "*"
		if n, ok := p["port"].(int64); ok {
			word = strconv.FormatInt(n, 10)
		} else if name, ok := p["name"].(string); ok {
			word = name
		}
		words = append(words, word)
	}
	return table.AtMost(cellWords, words)
}

func sliceAddresses(obj kinds.Object, _ time.Time) any {
	var words []string
	for _, ep := range tree.Maps(obj, "endpoints") {
		words = append(words, tree.Strings(ep, "addresses")...)
	}
	return table.AtMost(cellWords, words)
}
