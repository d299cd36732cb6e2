package proxy

import (
	"cmp"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Frontend is an address that a Service has, and where connections to it go.
type Frontend struct {
	Address   netip.AddrPort
	Service   types.NamespacedName
	Endpoints []netip.AddrPort // sorted; empty means that connections are refused
}

// Plan computes the frontends of services from their endpoints, in the order of
// their addresses. It changes nothing it is given.
func Plan(services []corev1.Service, slicesOf []discoveryv1.EndpointSlice) []Frontend {
	byService := map[types.NamespacedName][]*discoveryv1.EndpointSlice{}
	for i := range slicesOf {
		s := &slicesOf[i]
		name := types.NamespacedName{Namespace: s.Namespace, Name: s.Labels[discoveryv1.LabelServiceName]}
		byService[name] = append(byService[name], s)
	}
	var frontends []Frontend
	for i := range services {
		svc := &services[i]
		if svc.Spec.Type == corev1.ServiceTypeExternalName || svc.DeletionTimestamp != nil {
			continue
		}
		name := types.NamespacedName{Namespace: svc.Namespace, Name: svc.Name}
		for _, port := range svc.Spec.Ports {
			if port.Protocol != corev1.ProtocolTCP && port.Protocol != "" {
				continue
			}
			endpoints := endpointsOf(byService[name], port.Name)
			for _, ip := range clusterIPs(svc) {
				frontends = append(frontends, Frontend{
					Address: netip.AddrPortFrom(ip, uint16(port.Port)), Service: name, Endpoints: endpoints,
				})
			}
		}
	}
	slices.SortFunc(frontends, func(a, b Frontend) int { return a.Address.Compare(b.Address) })
	return frontends
}

func clusterIPs(svc *corev1.Service) []netip.Addr {
	texts := svc.Spec.ClusterIPs
	if len(texts) == 0 {
		texts = []string{svc.Spec.ClusterIP}
	}
	var ips []netip.Addr
	for _, text := range texts {
		if ip, err := netip.ParseAddr(text); err == nil { // "None" is not one
			ips = append(ips, ip)
		}
	}
	return ips
}

// endpointsOf are the endpoints of a port: those that are ready, or if there
// are none, those that end and still serve.
func endpointsOf(list []*discoveryv1.EndpointSlice, port string) []netip.AddrPort {
	var ready, ending []netip.AddrPort
	for _, s := range list {
		number, ok := portNumber(s, port)
		if !ok {
			continue
		}
		for i := range s.Endpoints {
			e := &s.Endpoints[i]
			into := &ready
			if !isTrue(e.Conditions.Ready, true) {
				if !isTrue(e.Conditions.Serving, false) || !isTrue(e.Conditions.Terminating, false) {
					continue
				}
				into = &ending
			}
			for _, text := range e.Addresses {
				if ip, err := netip.ParseAddr(text); err == nil {
					*into = append(*into, netip.AddrPortFrom(ip, number))
				}
			}
		}
	}
	if len(ready) == 0 {
		ready = ending
	}
	slices.SortFunc(ready, netip.AddrPort.Compare)
	return slices.Compact(ready)
}

func portNumber(s *discoveryv1.EndpointSlice, name string) (uint16, bool) {
	for _, p := range s.Ports {
		protocol := corev1.ProtocolTCP
		if p.Protocol != nil {
			protocol = cmp.Or(*p.Protocol, protocol)
		}
		same := p.Name == nil && name == "" || p.Name != nil && *p.Name == name
		if same && protocol == corev1.ProtocolTCP && p.Port != nil {
			return uint16(*p.Port), true
		}
	}
	return 0, false
}

func isTrue(b *bool, byDefault bool) bool {
	if b == nil {
		return byDefault
	}
	return *b
}
