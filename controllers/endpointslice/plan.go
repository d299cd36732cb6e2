// Package endpointslice publishes where the pods of each Service are reachable, as EndpointSlices.
//
// Pods are grouped by address family and by the port numbers that the Service's ports resolve to on
// them; each group is spread over as few slices as a hundred endpoints each allow. An endpoint that
// is already published stays where it is, so that a change of one pod changes one slice, and a pass
// over a Service whose slices are right writes nothing. Slices of other managers are left alone.
//
// Pods have loopback addresses where the node runs processes; they are published as they are.
package endpointslice

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/setpoint-dev/setpoint/controllers/backends"
	"github.com/setpoint-dev/setpoint/controllers/podfacts"
)

const (
	// managedBy is the manager that Kubernetes' own controller names, so that tools that look for
	// its slices find these.
	managedBy = "endpointslice-controller.k8s.io"
	// endpointsMax bounds a slice, so that a change of one pod of many costs every watcher a
	// small object. It is Kubernetes' value.
	endpointsMax = 100
)

// snapshot is what a pass decides on. Nothing in it is changed.
type snapshot struct {
	Service *corev1.Service
	Pods    []*corev1.Pod                // that the Service's selector matches
	Slices  []*discoveryv1.EndpointSlice // of the Service and this manager
	Zones   map[string]string            // topology zones of nodes that have one
}

// plan decides one pass. A Service without a selector, or one that is only a name, has its
// endpoints from elsewhere.
func plan(s snapshot) backends.SliceChanges {
	var act backends.SliceChanges
	if len(s.Service.Spec.Selector) == 0 || s.Service.Spec.Type == corev1.ServiceTypeExternalName ||
		s.Service.DeletionTimestamp != nil {
		return act
	}
	families := backends.Families(s.Service)
	for _, slice := range s.Slices {
		if !slices.Contains(families, slice.AddressType) {
			act.Delete = append(act.Delete, slice)
		}
	}
	for _, family := range families {
		planFamily(s, family, &act)
	}
	return act
}

// group is the endpoints of one family that share their ports.
type group struct {
	ports     []discoveryv1.EndpointPort
	endpoints map[string]discoveryv1.Endpoint // by identity
	slices    []*discoveryv1.EndpointSlice    // that have these ports now
}

// planFamily plans the slices of one address family.
func planFamily(s snapshot, family discoveryv1.AddressType, act *backends.SliceChanges) {
	groups := map[string]*group{}
	at := func(ports []discoveryv1.EndpointPort) *group {
		key := backends.PortsKey(ports)
		if groups[key] == nil {
			groups[key] = &group{ports: ports, endpoints: map[string]discoveryv1.Endpoint{}}
		}
		return groups[key]
	}
	for _, pod := range s.Pods {
		if endpoint, ok := endpointOf(s, pod, family); ok {
			at(endpointPorts(s.Service, pod)).endpoints[identity(&endpoint)] = endpoint
		}
	}
	published := slices.DeleteFunc(slices.Clone(s.Slices), func(e *discoveryv1.EndpointSlice) bool {
		return e.AddressType != family || e.DeletionTimestamp != nil
	})
	slices.SortFunc(published, func(a, b *discoveryv1.EndpointSlice) int {
		return cmp.Or(a.CreationTimestamp.Time.Compare(b.CreationTimestamp.Time),
			strings.Compare(a.Name, b.Name))
	})
	if len(groups) == 0 { // one slice without endpoints says that there are none
		at(nil)
	}
	for _, slice := range published {
		if g := groups[backends.PortsKey(slice.Ports)]; g != nil {
			g.slices = append(g.slices, slice)
		} else {
			act.Delete = append(act.Delete, slice)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(groups)) {
		planGroup(s.Service, family, groups[key], act)
	}
}

// planGroup spreads a group's endpoints over its slices. It keeps as many slices as are needed, the
// oldest first; what the others published moves into the room that is left.
func planGroup(service *corev1.Service, family discoveryv1.AddressType, g *group, act *backends.SliceChanges) {
	needed := max(1, (len(g.endpoints)+endpointsMax-1)/endpointsMax)
	keep := g.slices[:min(needed, len(g.slices))]
	act.Delete = append(act.Delete, g.slices[len(keep):]...)

	left := maps.Clone(g.endpoints)
	filled := make([][]discoveryv1.Endpoint, needed)
	for i, slice := range keep {
		for j := range slice.Endpoints {
			id := identity(&slice.Endpoints[j])
			if endpoint, ok := left[id]; ok && len(filled[i]) < endpointsMax {
				filled[i] = append(filled[i], endpoint)
				delete(left, id)
			}
		}
	}
	rest := slices.Sorted(maps.Keys(left))
	for i := range filled {
		for len(filled[i]) < endpointsMax && len(rest) > 0 {
			filled[i] = append(filled[i], left[rest[0]])
			rest = rest[1:]
		}
	}
	for i, endpoints := range filled {
		if i >= len(keep) {
			act.Create = append(act.Create, newSlice(service, family, g.ports, endpoints))
		} else if next := revised(service, keep[i], endpoints); next != nil {
			act.Update = append(act.Update, next)
		}
	}
}

// revised returns the slice as it should be, or nil if it is.
func revised(service *corev1.Service, slice *discoveryv1.EndpointSlice,
	endpoints []discoveryv1.Endpoint,
) *discoveryv1.EndpointSlice {
	labels := sliceLabels(service)
	owners := ownerReferences(service)
	if maps.Equal(slice.Labels, labels) && equality.Semantic.DeepEqual(slice.Endpoints, endpoints) &&
		equality.Semantic.DeepEqual(slice.OwnerReferences, owners) {
		return nil
	}
	next := slice.DeepCopy()
	next.Labels, next.Endpoints, next.OwnerReferences = labels, endpoints, owners
	return next
}

func newSlice(service *corev1.Service, family discoveryv1.AddressType, ports []discoveryv1.EndpointPort,
	endpoints []discoveryv1.Endpoint,
) *discoveryv1.EndpointSlice {
	return &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			GenerateName:    service.Name + "-",
			Namespace:       service.Namespace,
			Labels:          sliceLabels(service),
			OwnerReferences: ownerReferences(service),
		},
		AddressType: family,
		Ports:       ports,
		Endpoints:   endpoints,
	}
}

func ownerReferences(service *corev1.Service) []metav1.OwnerReference {
	return []metav1.OwnerReference{*metav1.NewControllerRef(service,
		corev1.SchemeGroupVersion.WithKind("Service"))}
}

// sliceLabels are the Service's labels and what tells whose slice it is. Nothing else is kept: a
// label that the Service no longer has goes from its slices too.
func sliceLabels(service *corev1.Service) map[string]string {
	labels := maps.Clone(service.Labels)
	if labels == nil {
		labels = map[string]string{}
	}
	labels[discoveryv1.LabelServiceName] = service.Name
	labels[discoveryv1.LabelManagedBy] = managedBy
	delete(labels, corev1.IsHeadlessService)
	if backends.Headless(service) {
		labels[corev1.IsHeadlessService] = ""
	}
	return labels
}

// endpointOf returns the pod's endpoint, or false if it has no address of the family or has ended.
func endpointOf(s snapshot, pod *corev1.Pod,
	family discoveryv1.AddressType,
) (discoveryv1.Endpoint, bool) {
	addresses := backends.Addresses(pod, family)
	if len(addresses) == 0 || podfacts.Terminal(pod) {
		return discoveryv1.Endpoint{}, false
	}
	serving := podfacts.Ready(pod)
	terminating := pod.DeletionTimestamp != nil
	endpoint := discoveryv1.Endpoint{
		Addresses: addresses,
		Conditions: discoveryv1.EndpointConditions{
			Ready:       ptr.To(s.Service.Spec.PublishNotReadyAddresses || serving && !terminating),
			Serving:     ptr.To(serving),
			Terminating: ptr.To(terminating),
		},
		TargetRef: &corev1.ObjectReference{Kind: "Pod", Namespace: pod.Namespace, Name: pod.Name,
			UID: pod.UID},
	}
	if node := pod.Spec.NodeName; node != "" {
		endpoint.NodeName = ptr.To(node)
		if zone := s.Zones[node]; zone != "" {
			endpoint.Zone = ptr.To(zone)
		}
	}
	if hostname := backends.Hostname(s.Service, pod); hostname != "" {
		endpoint.Hostname = &hostname
	}
	return endpoint, true
}

// endpointPorts resolves the Service's ports on the pod. A named target port that the pod does not
// have is left out.
func endpointPorts(service *corev1.Service, pod *corev1.Pod) []discoveryv1.EndpointPort {
	var ports []discoveryv1.EndpointPort
	for i := range service.Spec.Ports {
		port := &service.Spec.Ports[i]
		number, ok := backends.Port(port, pod)
		if !ok {
			continue
		}
		ports = append(ports, discoveryv1.EndpointPort{
			Name: ptr.To(port.Name), Port: ptr.To(number), Protocol: ptr.To(backends.Protocol(port.Protocol)), AppProtocol: port.AppProtocol,
		})
	}
	return ports
}

// identity tells endpoints apart: by pod, or by address for one that names none.
func identity(e *discoveryv1.Endpoint) string {
	if e.TargetRef != nil {
		return string(e.TargetRef.UID)
	}
	return strings.Join(e.Addresses, ",")
}
