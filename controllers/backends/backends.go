// Package backends answers what every publisher of a Service's endpoints asks: which addresses and
// ports a pod has for the Service, and which Services a change concerns.
//
// What is about one Service and one pod is pure; the objects given are not changed.
package backends

import (
	"cmp"
	"context"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// Headless says whether a Service has no address of its own.
func Headless(service *corev1.Service) bool {
	return service.Spec.ClusterIP == corev1.ClusterIPNone
}

// Families returns the address families that a Service is reachable in, at least one, the first of
// them its own.
func Families(service *corev1.Service) []discoveryv1.AddressType {
	var types []discoveryv1.AddressType
	for _, family := range service.Spec.IPFamilies {
		switch family {
		case corev1.IPv4Protocol:
			types = append(types, discoveryv1.AddressTypeIPv4)
		case corev1.IPv6Protocol:
			types = append(types, discoveryv1.AddressTypeIPv6)
		}
	}
	if len(types) > 0 {
		return types
	}
	if ip, err := netip.ParseAddr(service.Spec.ClusterIP); err == nil {
		return []discoveryv1.AddressType{Family(ip)}
	}
	return []discoveryv1.AddressType{discoveryv1.AddressTypeIPv4}
}

// Family returns the family of an address.
func Family(ip netip.Addr) discoveryv1.AddressType {
	if ip.Is6() {
		return discoveryv1.AddressTypeIPv6
	}
	return discoveryv1.AddressTypeIPv4
}

// Addresses returns the pod's addresses of a family.
func Addresses(pod *corev1.Pod, family discoveryv1.AddressType) []string {
	var addresses []string
	for _, ip := range pod.Status.PodIPs {
		parsed, err := netip.ParseAddr(ip.IP)
		if err == nil && Family(parsed) == family {
			addresses = append(addresses, ip.IP)
		}
	}
	return addresses
}

// Hostname returns the name that the pod has below the Service's, or "" if it has none.
func Hostname(service *corev1.Service, pod *corev1.Pod) string {
	if pod.Spec.Subdomain != service.Name || pod.Namespace != service.Namespace {
		return ""
	}
	return pod.Spec.Hostname
}

// Port returns the number that a Service's port has on the pod, or false if it is a name that the
// pod's containers do not have.
func Port(port *corev1.ServicePort, pod *corev1.Pod) (int32, bool) {
	if name := port.TargetPort.StrVal; name != "" {
		return namedPort(name, Protocol(port.Protocol), pod)
	}
	if port.TargetPort.IntVal != 0 {
		return port.TargetPort.IntVal, true
	}
	return port.Port, true
}

func namedPort(name string, protocol corev1.Protocol, pod *corev1.Pod) (int32, bool) {
	containers := slices.Clone(pod.Spec.Containers)
	for _, c := range pod.Spec.InitContainers {
		if c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways {
			containers = append(containers, c)
		}
	}
	for _, c := range containers {
		for _, p := range c.Ports {
			if p.Name == name && Protocol(p.Protocol) == protocol {
				return p.ContainerPort, true
			}
		}
	}
	return 0, false
}

// Protocol returns the protocol that is meant where none is given.
func Protocol(p corev1.Protocol) corev1.Protocol { return cmp.Or(p, corev1.ProtocolTCP) }

// PortsKey is equal for equal sets of ports, whatever their order.
func PortsKey(ports []discoveryv1.EndpointPort) string {
	keys := make([]string, len(ports))
	for i, p := range ports {
		keys[i] = strings.Join([]string{
			ptr.Deref(p.Name, ""), string(ptr.Deref(p.Protocol, corev1.ProtocolTCP)),
			strconv.Itoa(int(ptr.Deref(p.Port, 0))), ptr.Deref(p.AppProtocol, ""),
		}, "\x00")
	}
	slices.Sort(keys)
	return strings.Join(keys, "\x01")
}

// Selecting returns what wakes the Services that select a pod. On an update it is asked about the pod
// as it was and as it is, so that a Service that no longer selects it hears too.
func Selecting(from client.Reader) handler.MapFunc {
	return func(ctx context.Context, pod client.Object) []reconcile.Request {
		return services(ctx, from, pod.GetNamespace(), func(s *corev1.Service) bool {
			return labels.SelectorFromSet(s.Spec.Selector).Matches(labels.Set(pod.GetLabels()))
		})
	}
}

// WithSelector returns what wakes all Services that select pods.
func WithSelector(from client.Reader) handler.MapFunc {
	return func(ctx context.Context, _ client.Object) []reconcile.Request {
		return services(ctx, from, "", func(*corev1.Service) bool { return true })
	}
}

func services(ctx context.Context, from client.Reader, namespace string,
	keep func(*corev1.Service) bool,
) []reconcile.Request {
	var list corev1.ServiceList
	err := from.List(ctx, &list, client.InNamespace(namespace), client.UnsafeDisableDeepCopy)
	if err != nil {
		return nil // each Service is looked at again at the next resync
	}
	var requests []reconcile.Request
	for i := range list.Items {
		service := &list.Items[i]
		if len(service.Spec.Selector) > 0 && keep(service) {
			requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(service)})
		}
	}
	return requests
}
