package builtin

import (
	"net"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	utilnet "k8s.io/utils/net"

	"github.com/setpoint-dev/setpoint/kinds"
	"github.com/setpoint-dev/setpoint/kinds/check"
	"github.com/setpoint-dev/setpoint/kinds/schema"
	"github.com/setpoint-dev/setpoint/kinds/table"
	"github.com/setpoint-dev/setpoint/kinds/tree"
)

func endpoints() *kinds.Kind {
	return &kinds.Kind{
		Version: "v1", Kind: "Endpoints", Resource: "endpoints", Singular: "endpoints",
		ShortNames: []string{"ep"}, Namespaced: true,
		Schema: schema.Builtin("io.k8s.api.core.v1.Endpoints"),
		Columns: []kinds.Column{
			table.Name(),
			//lint:ignore SA1019 it is served all the same
			table.Column("Endpoints", corev1.Endpoints{}.SwaggerDoc()["subsets"], endpointsCell),
			table.Age(),
		},
		Deprecated:         "v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice",
		CreateOnUpdate:     true,
		DefaultPropagation: "Background",
		Strategy: kinds.Strategy{
			Default: func(obj kinds.Object) {
				for _, subset := range tree.Maps(obj, "subsets") {
					for _, port := range tree.Maps(subset, "ports") {
						setIfEmpty(port, "protocol", "TCP")
					}
				}
			},
			ValidateCreate: validateSubsets,
			// What was let in once may stay.
			ValidateUpdate: func(obj, old kinds.Object) field.ErrorList {
				if tree.Equal(obj["subsets"], old["subsets"]) {
					return nil
				}
				return validateSubsets(obj)
			},
		},
	}
}

func validateSubsets(obj kinds.Object) field.ErrorList {
	var e check.Errors
	for _, subset := range check.Root(obj).Each("subsets") {
		if subset.Len("addresses")+subset.Len("notReadyAddresses") == 0 {
			e.Required(subset.Path, "must specify `addresses` or `notReadyAddresses`")
		}
		for _, list := range []string{"addresses", "notReadyAddresses"} {
			for _, address := range subset.Each(list) {
				subsetAddress(&e, address)
			}
		}
		for _, port := range subset.Each("ports") {
			subsetPort(&e, port, subset.Len("ports") > 1)
		}
	}
	return e.List()
}

func subsetAddress(e *check.Errors, a check.At) {
	ip := a.Str("ip")
	valid := e.IP(a.At("ip"), ip)
	if name := a.Str("hostname"); name != "" {
		e.DNSLabel(a.At("hostname"), name)
	}
	if a.Has("nodeName") {
		name := a.Str("nodeName")
		e.Messages(a.At("nodeName"), name, apivalidation.NameIsDNSSubdomain(name, false))
	}
	if valid || utilnet.ParseIPSloppy(ip) == nil {
		endpointIP(e, a.At("ip"), ip, true)
	}
}

func subsetPort(e *check.Errors, p check.At, named bool) {
	if name := p.Str("name"); name != "" {
		e.DNSLabel(p.At("name"), name)
	} else if named {
		e.Required(p.At("name"), "")
	}
	e.PortNumber(p.At("port"), p.Int("port"))
	e.OneOf(p, "protocol", protocols...)
	if p.Has("appProtocol") {
		e.QualifiedName(p.At("appProtocol"), p.Str("appProtocol"))
	}
}

func endpointsCell(obj kinds.Object, _ time.Time) any {
	var words []string
	for _, subset := range tree.Maps(obj, "subsets") {
		ports := tree.List(subset, "ports")
		for _, address := range tree.Maps(subset, "addresses") {
			if len(ports) == 0 {
				words = append(words, tree.Str(address, "ip"))
			}
		}
		for _, port := range tree.Maps(subset, "ports") {
			for _, address := range tree.Maps(subset, "addresses") {
				words = append(words, net.JoinHostPort(tree.Str(address, "ip"), strconv.FormatInt(tree.Int(port, "port"), 10)))
			}
		}
	}
	if len(words) == 0 {
		return table.None
	}
	return table.AtMost(cellWords, words)
}
