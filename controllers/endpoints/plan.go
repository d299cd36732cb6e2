// Package endpoints keeps the Endpoints of Services, for those who do not read EndpointSlices yet.
//
// There are two controllers. One writes the Endpoints of each Service that selects pods: ready and
// unready addresses, grouped by the ports that they have in common. The other mirrors the Endpoints
// that somebody wrote for a Service without a selector into EndpointSlices, which is what the service
// proxy reads. A pass over what is right writes nothing.
package endpoints

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/setpoint-dev/setpoint/controllers/backends"
	"github.com/setpoint-dev/setpoint/controllers/podfacts"
)

//lint:file-ignore SA1019 Endpoints are kept for those who still read them.

const (
	// managedBy is the label of what is written here, and endpointController its value: Kubernetes'.
	managedBy          = "endpoints.kubernetes.io/managed-by"
	endpointController = "endpoint-controller"
	// addressesMax bounds the addresses of one Service, since all of them are one object. It is
	// Kubernetes' value; EndpointSlices have no such bound.
	addressesMax = 1000
	truncated    = "truncated"
)

// snapshot is what a pass decides on. Nothing in it is changed.
type snapshot struct {
	Service *corev1.Service
	Pods    []*corev1.Pod     // that the Service's selector matches
	Current *corev1.Endpoints // nil if there are none
}

// plan returns the Endpoints as they should be, or nil if they are.
func plan(s snapshot) *corev1.Endpoints {
	subsets, cut := truncate(repack(subsetsOf(s)))
	next := &corev1.Endpoints{ObjectMeta: metav1.ObjectMeta{Namespace: s.Service.Namespace, Name: s.Service.Name}}
	if s.Current != nil {
		next = s.Current.DeepCopy()
	}
	next.Subsets = subsets
	next.Labels = endpointsLabels(s.Service)
	if cut {
		metav1.SetMetaDataAnnotation(&next.ObjectMeta, corev1.EndpointsOverCapacity, truncated)
	} else {
		delete(next.Annotations, corev1.EndpointsOverCapacity)
	}
	if s.Current != nil && equality.Semantic.DeepEqual(s.Current, next) {
		return nil
	}
	return next
}

func endpointsLabels(service *corev1.Service) map[string]string {
	labels := maps.Clone(service.Labels)
	if labels == nil {
		labels = map[string]string{}
	}
	labels[managedBy] = endpointController
	delete(labels, corev1.IsHeadlessService)
	if service.Spec.ClusterIP == "" || backends.Headless(service) {
		labels[corev1.IsHeadlessService] = ""
	}
	return labels
}

// subsetsOf returns a subset for each pod and port that the Service is reachable at. A pod on its way
// out is in none, unless the Service wants those that are not ready too.
func subsetsOf(s snapshot) (subsets []corev1.EndpointSubset) {
	anyway := s.Service.Spec.PublishNotReadyAddresses
	family := backends.Families(s.Service)[0]
	for _, pod := range s.Pods {
		addresses := backends.Addresses(pod, family)
		if len(addresses) == 0 || podfacts.Terminal(pod) || pod.DeletionTimestamp != nil && !anyway {
			continue
		}
		address := corev1.EndpointAddress{
			IP: addresses[0], Hostname: backends.Hostname(s.Service, pod),
			TargetRef: &corev1.ObjectReference{Kind: "Pod", Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID},
		}
		if node := pod.Spec.NodeName; node != "" {
			address.NodeName = &node
		}
		add := func(ports ...corev1.EndpointPort) {
			subset := corev1.EndpointSubset{Ports: ports}
			if anyway || podfacts.Ready(pod) {
				subset.Addresses = []corev1.EndpointAddress{address}
			} else {
				subset.NotReadyAddresses = []corev1.EndpointAddress{address}
			}
			subsets = append(subsets, subset)
		}
		if len(s.Service.Spec.Ports) == 0 && backends.Headless(s.Service) {
			add()
		}
		for i := range s.Service.Spec.Ports {
			port := &s.Service.Spec.Ports[i]
			if number, ok := backends.Port(port, pod); ok {
				add(corev1.EndpointPort{
					Name: port.Name, Port: number, Protocol: backends.Protocol(port.Protocol), AppProtocol: port.AppProtocol,
				})
			}
		}
	}
	return subsets
}

// repack brings subsets into one form, whatever they were: each address and port are together once,
// ports that the same addresses have are in one subset, and all is sorted. An address that is ready
// here and unready there is unready.
func repack(subsets []corev1.EndpointSubset) []corev1.EndpointSubset {
	type member struct {
		address corev1.EndpointAddress
		unready bool
	}
	type offer struct {
		ports   []corev1.EndpointPort
		members map[string]member // by identity
	}
	offers := map[string]*offer{} // by port
	for _, subset := range subsets {
		for _, ports := range single(subset.Ports) {
			key := portKey(ports)
			if offers[key] == nil {
				offers[key] = &offer{ports, map[string]member{}}
			}
			take := func(addresses []corev1.EndpointAddress, unready bool) {
				for _, a := range addresses {
					id := identity(a)
					offers[key].members[id] = member{a, unready || offers[key].members[id].unready}
				}
			}
			take(subset.Addresses, false)
			take(subset.NotReadyAddresses, true)
		}
	}
	merged := map[string]*corev1.EndpointSubset{} // by members
	for _, key := range slices.Sorted(maps.Keys(offers)) {
		o := offers[key]
		ids := slices.Sorted(maps.Keys(o.members))
		var who strings.Builder
		for _, id := range ids {
			who.WriteString(id)
			if o.members[id].unready {
				who.WriteByte('!')
			}
			who.WriteByte('\n')
		}
		if subset := merged[who.String()]; subset != nil {
			subset.Ports = append(subset.Ports, o.ports...)
			continue
		}
		subset := &corev1.EndpointSubset{Ports: o.ports}
		for _, id := range ids {
			if m := o.members[id]; m.unready {
				subset.NotReadyAddresses = append(subset.NotReadyAddresses, m.address)
			} else {
				subset.Addresses = append(subset.Addresses, m.address)
			}
		}
		merged[who.String()] = subset
	}
	var out []corev1.EndpointSubset
	for _, key := range slices.Sorted(maps.Keys(merged)) {
		if subset := merged[key]; len(subset.Addresses)+len(subset.NotReadyAddresses) > 0 {
			out = append(out, *subset)
		}
	}
	return out
}

// single returns the ports one by one; an address without a port counts as one of its own.
func single(ports []corev1.EndpointPort) [][]corev1.EndpointPort {
	if len(ports) == 0 {
		return [][]corev1.EndpointPort{nil}
	}
	var out [][]corev1.EndpointPort
	for _, p := range ports {
		out = append(out, []corev1.EndpointPort{p})
	}
	return out
}

func portKey(ports []corev1.EndpointPort) string { return backends.PortsKey(slicePorts(ports)) }

// identity tells addresses apart: by their text, and by whose they are.
func identity(a corev1.EndpointAddress) string {
	if a.TargetRef == nil {
		return a.IP
	}
	return a.IP + " " + string(a.TargetRef.UID)
}

// truncate leaves out addresses beyond the bound, unready ones first, and says whether it did.
func truncate(subsets []corev1.EndpointSubset) ([]corev1.EndpointSubset, bool) {
	left, cut := addressesMax, false
	fit := func(addresses []corev1.EndpointAddress) []corev1.EndpointAddress {
		n := min(left, len(addresses))
		left -= n
		cut = cut || n < len(addresses)
		return addresses[:n:n]
	}
	for i := range subsets {
		subsets[i].Addresses = fit(subsets[i].Addresses)
	}
	for i := range subsets {
		subsets[i].NotReadyAddresses = fit(subsets[i].NotReadyAddresses)
	}
	subsets = slices.DeleteFunc(subsets, func(s corev1.EndpointSubset) bool {
		return cmp.Or(len(s.Addresses), len(s.NotReadyAddresses)) == 0
	})
	return subsets, cut
}
