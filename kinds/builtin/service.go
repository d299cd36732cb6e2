package builtin

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/setpoint-dev/setpoint/kinds"
	"github.com/setpoint-dev/setpoint/kinds/schema"
	"github.com/setpoint-dev/setpoint/kinds/table"
	"github.com/setpoint-dev/setpoint/kinds/tree"
)

// The types of a Service.
const (
	clusterIPType    = "ClusterIP"
	nodePortType     = "NodePort"
	loadBalancerType = "LoadBalancer"
	externalNameType = "ExternalName"
)

// headless is the cluster IP of a service that wants none.
const headless = "None"

// affinitySeconds is how long a client stays with one endpoint if it is to.
const affinitySeconds = 10800

func service() *kinds.Kind {
	return &kinds.Kind{
		Version: "v1", Kind: "Service", Resource: "services", Singular: "service",
		ShortNames: []string{"svc"}, Categories: []string{"all"}, Namespaced: true,
		Schema:             schema.Builtin("io.k8s.api.core.v1.Service"),
		Columns:            serviceColumns(),
		Status:             true,
		CreateOnUpdate:     true,
		ReturnDeleted:      true,
		DefaultPropagation: "Background",
		NameRule:           apivalidation.NameIsDNSLabel,
		Holds:              serviceHolds,
		Fields: map[string]func(kinds.Object) string{
			"spec.clusterIP": func(obj kinds.Object) string { return tree.Str(obj, "spec", "clusterIP") },
			"spec.type":      func(obj kinds.Object) string { return tree.Str(obj, "spec", "type") },
		},
		Subresources: []kinds.Subresource{{
			Name: "proxy", Version: "v1", Kind: "ServiceProxyOptions",
			Verbs: []string{"create", "delete", "get", "patch", "update"},
		}},
		Strategy: kinds.Strategy{
			Default:                defaultService,
			PrepareForCreate:       prepareService,
			PrepareForUpdate:       prepareServiceUpdate,
			PrepareForStatusUpdate: prepareServiceStatus,
			Validate:               validateService,
			ChangesFirst:           true,
			ValidateUpdate:         validateServiceUpdate,
			ValidateStatusUpdate:   validateServiceStatus,
			Warnings:               serviceWarnings,
		},
	}
}

// serviceHolds names the addresses and the ports of the nodes that are the service's alone.
func serviceHolds(obj kinds.Object) (held []kinds.Held) {
	hold := func(space, name string) {
		if h := (kinds.Held{Space: space, Name: name}); !slices.Contains(held, h) {
			held = append(held, h)
		}
	}
	spec := tree.Map(obj, "spec")
	for _, text := range append(tree.Strings(spec, "clusterIPs"), tree.Str(spec, "clusterIP")) {
		if ip, err := netip.ParseAddr(text); err == nil {
			hold(kinds.ServiceAddresses, ip.String())
		}
	}
	port := func(number int64) {
		if number != 0 {
			hold(kinds.NodePorts, strconv.FormatInt(number, 10))
		}
	}
	for _, p := range tree.Maps(spec, "ports") {
		port(tree.Int(p, "nodePort"))
	}
	port(tree.Int(spec, "healthCheckNodePort"))
	return held
}

func defaultService(obj kinds.Object) {
	spec := tree.Ensure(obj, "spec")
	setIfEmpty(spec, "sessionAffinity", "None")
	switch tree.Str(spec, "sessionAffinity") {
	case "None":
		delete(spec, "sessionAffinityConfig")
	case "ClientIP":
		tree.Default(spec, int64(affinitySeconds),
			"sessionAffinityConfig", "clientIP", "timeoutSeconds")
	}
	setIfEmpty(spec, "type", clusterIPType)
	for _, p := range tree.Maps(spec, "ports") {
		setIfEmpty(p, "protocol", "TCP")
		if target := p["targetPort"]; target == nil || target == int64(0) || target == "" {
			p["targetPort"] = tree.Int(p, "port")
		}
	}
	if external(spec) {
		setIfEmpty(spec, "externalTrafficPolicy", "Cluster")
	}
	kind := tree.Str(spec, "type")
	if kind == clusterIPType || kind == nodePortType || kind == loadBalancerType {
		tree.Default(spec, "Cluster", "internalTrafficPolicy")
	}
	if v := spec["internalTrafficPolicy"]; kind == externalNameType && (v == "Cluster" || v == "Local") {
		delete(spec, "internalTrafficPolicy") // which says nothing there; another one is complained about
	}
	if kind == loadBalancerType {
		tree.Default(spec, true, "allocateLoadBalancerNodePorts")
		for _, in := range tree.Maps(obj, "status", "loadBalancer", "ingress") {
			if tree.Str(in, "ip") != "" {
				setIfEmpty(in, "ipMode", "VIP")
			}
		}
	}
}

func setIfEmpty(m map[string]any, key, value string) {
	if tree.Str(m, key) == "" {
		m[key] = value
	}
}

// external says whether a service can be reached from outside the cluster.
func external(spec map[string]any) bool {
	switch tree.Str(spec, "type") {
	case loadBalancerType, nodePortType:
		return true
	case clusterIPType:
		return len(tree.List(spec, "externalIPs")) > 0
	}
	return false
}

func needsClusterIP(spec map[string]any) bool { return tree.Str(spec, "type") != externalNameType }

func needsNodePorts(spec map[string]any) bool {
	kind := tree.Str(spec, "type")
	return kind == nodePortType || kind == loadBalancerType
}

// needsHealthCheckPort says whether a load balancer must ask each node if it has endpoints.
func needsHealthCheckPort(spec map[string]any) bool {
	return tree.Str(spec, "type") == loadBalancerType &&
		tree.Str(spec, "externalTrafficPolicy") == "Local"
}

func isHeadless(spec map[string]any) bool {
	ips := tree.List(spec, "clusterIPs")
	return len(ips) == 1 && ips[0] == headless
}

func prepareServiceStatus(_ *kinds.Env, obj, old kinds.Object) {
	tree.Move("spec", old, obj)
	defaultService(obj)
}

func serviceColumns() []kinds.Column {
	doc := corev1.ServiceSpec{}.SwaggerDoc()
	return append([]kinds.Column{
		table.Name(),
		table.Text("Type", doc["type"], "spec", "type"),
		table.Column("Cluster-IP", doc["clusterIP"], func(obj kinds.Object, _ time.Time) any {
			return table.Or(tree.Str(obj, "spec", "clusterIP"), table.None)
		}),
		table.Column("External-IP", doc["externalIPs"], externalIP),
		table.Column("Port(s)", doc["ports"], servicePorts),
		table.Age(),
	}, table.Wide(
		table.Column("Selector", doc["selector"], func(obj kinds.Object, _ time.Time) any {
			return labels.FormatLabels(tree.StringMap(obj, "spec", "selector"))
		}),
	)...)
}

func externalIP(obj kinds.Object, _ time.Time) any {
	ips := tree.Strings(obj, "spec", "externalIPs")
	switch tree.Str(obj, "spec", "type") {
	case clusterIPType, nodePortType:
		return table.Or(strings.Join(ips, ","), table.None)
	case externalNameType:
		return tree.Str(obj, "spec", "externalName")
	case loadBalancerType:
		found := sets.Set[string]{}
		for _, in := range tree.Maps(obj, "status", "loadBalancer", "ingress") {
			if name := table.Or(tree.Str(in, "ip"), tree.Str(in, "hostname")); name != "" {
				found.Insert(name)
			}
		}
		return table.Or(strings.Join(append(sets.List(found), ips...), ","), "<pending>")
	}
	return table.Unknown
}

func servicePorts(obj kinds.Object, _ time.Time) any {
	var parts []string
	for _, p := range tree.Maps(obj, "spec", "ports") {
		port, protocol := tree.Int(p, "port"), tree.Str(p, "protocol")
		if n := tree.Int(p, "nodePort"); n > 0 {
			parts = append(parts, fmt.Sprintf("%d:%d/%s", port, n, protocol))
		} else {
			parts = append(parts, fmt.Sprintf("%d/%s", port, protocol))
		}
	}
	return table.Or(strings.Join(parts, ","), table.None)
}

func serviceWarnings(obj, _ kinds.Object) []string {
	var w []string
	spec := tree.Map(obj, "spec")
	kind := tree.Str(spec, "type")
	ips := len(tree.List(spec, "externalIPs")) > 0
	none := kind == clusterIPType && tree.Str(spec, "clusterIP") == headless
	if none {
		if tree.Str(spec, "loadBalancerIP") != "" {
			w = append(w, "spec.loadBalancerIP is ignored for headless services")
		}
		if ips {
			w = append(w, "spec.externalIPs is ignored for headless services")
		}
		if tree.Str(spec, "sessionAffinity") != "None" {
			w = append(w, "spec.SessionAffinity is ignored for headless services")
		}
	}
	if ips && !none && kind != externalNameType {
		w = append(w,
			"spec.externalIPs is deprecated and may no longer be implemented in some clusters")
	}
	if ips && kind == externalNameType {
		w = append(w, `spec.externalIPs is ignored when spec.type is "ExternalName"`)
	}
	if kind != externalNameType && tree.Str(spec, "externalName") != "" {
		w = append(w, `spec.externalName is ignored when spec.type is not "ExternalName"`)
	}
	if tree.Str(spec, "trafficDistribution") == "PreferClose" {
		w = append(w, `spec.trafficDistribution: "PreferClose" is deprecated; use "PreferSameZone"`)
	}
	return w
}
