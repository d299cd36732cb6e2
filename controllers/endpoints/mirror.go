package endpoints

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/utils/ptr"

	"github.com/setpoint-dev/setpoint/controllers/backends"
)

//lint:file-ignore SA1019 Endpoints are kept for those who still read them.

// mirrorController is the manager of mirrored slices: Kubernetes' name for it.
const mirrorController = "endpointslicemirroring-controller.k8s.io"

// mirrored is what a pass over the slices of some Endpoints decides on.
type mirrored struct {
	Endpoints *corev1.Endpoints            // nil if there are none
	Service   *corev1.Service              // of the same name; nil if there is none
	Slices    []*discoveryv1.EndpointSlice // that mirror these Endpoints now
}

// mirror decides which slices there should be: one for each family and set of ports. Addresses that
// are no IP addresses, and those beyond the bound, are left out.
func mirror(m mirrored) (act backends.SliceChanges) {
	want := map[string]*discoveryv1.EndpointSlice{}
	if toMirror(m) {
		want = slicesOf(m.Endpoints)
	}
	slices.SortFunc(m.Slices, func(a, b *discoveryv1.EndpointSlice) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
	})
	for _, slice := range m.Slices {
		if slice.DeletionTimestamp != nil {
			continue
		}
		key := sliceKey(slice.AddressType, slice.Ports)
		target := want[key]
		if target == nil { // of no use any more, or a second one
			act.Delete = append(act.Delete, slice)
			continue
		}
		delete(want, key)
		next := slice.DeepCopy()
		next.Labels, next.Annotations, next.OwnerReferences = target.Labels, target.Annotations, target.OwnerReferences
		next.Endpoints, next.Ports = target.Endpoints, target.Ports
		if !equality.Semantic.DeepEqual(slice, next) {
			act.Update = append(act.Update, next)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(want)) {
		act.Create = append(act.Create, want[key])
	}
	return act
}

// toMirror says whether Endpoints are to be mirrored: those that somebody wrote for a Service, and
// does not publish in slices himself.
func toMirror(m mirrored) bool {
	if m.Endpoints == nil || m.Endpoints.DeletionTimestamp != nil || m.Service == nil || len(m.Service.Spec.Selector) > 0 {
		return false
	}
	_, isLock := m.Endpoints.Annotations[resourcelock.LeaderElectionRecordAnnotationKey]
	return !isLock && m.Endpoints.Labels[discoveryv1.LabelSkipMirror] != "true"
}

func sliceKey(family discoveryv1.AddressType, ports []discoveryv1.EndpointPort) string {
	return string(family) + "\x01" + backends.PortsKey(ports)
}

// slicesOf returns the slices that mirror Endpoints, by sliceKey.
func slicesOf(from *corev1.Endpoints) map[string]*discoveryv1.EndpointSlice {
	out := map[string]*discoveryv1.EndpointSlice{}
	for _, subset := range repack(from.Subsets) {
		ports, left := slicePorts(subset.Ports), addressesMax
		add := func(addresses []corev1.EndpointAddress, ready bool) {
			for _, a := range addresses {
				ip, err := netip.ParseAddr(a.IP)
				if err != nil || left == 0 {
					continue
				}
				left--
				key := sliceKey(backends.Family(ip), ports)
				if out[key] == nil {
					out[key] = newSlice(from, backends.Family(ip), ports)
				}
				out[key].Endpoints = append(out[key].Endpoints, endpointOf(a, ip, ready))
			}
		}
		add(subset.Addresses, true)
		add(subset.NotReadyAddresses, false)
	}
	return out
}

func endpointOf(a corev1.EndpointAddress, ip netip.Addr, ready bool) discoveryv1.Endpoint {
	e := discoveryv1.Endpoint{
		Addresses:  []string{ip.String()},
		Conditions: discoveryv1.EndpointConditions{Ready: &ready},
		TargetRef:  a.TargetRef.DeepCopy(),
	}
	if a.NodeName != nil {
		e.NodeName = ptr.To(*a.NodeName)
	}
	if a.Hostname != "" {
		e.Hostname = &a.Hostname
	}
	return e
}

func slicePorts(ports []corev1.EndpointPort) (out []discoveryv1.EndpointPort) {
	for _, p := range ports {
		out = append(out, discoveryv1.EndpointPort{
			Name: &p.Name, Port: &p.Port, Protocol: ptr.To(backends.Protocol(p.Protocol)), AppProtocol: p.AppProtocol,
		})
	}
	return out
}

func newSlice(from *corev1.Endpoints, family discoveryv1.AddressType,
	ports []discoveryv1.EndpointPort,
) *discoveryv1.EndpointSlice {
	labels, annotations := maps.Clone(from.Labels), maps.Clone(from.Annotations)
	if labels == nil {
		labels = map[string]string{}
	}
	labels[discoveryv1.LabelServiceName] = from.Name
	labels[discoveryv1.LabelManagedBy] = mirrorController
	delete(annotations, corev1.EndpointsLastChangeTriggerTime)
	delete(annotations, corev1.LastAppliedConfigAnnotation)
	return &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			GenerateName: strings.TrimSuffix(from.Name, "-") + "-", Namespace: from.Namespace,
			Labels: labels, Annotations: annotations,
			OwnerReferences: []metav1.OwnerReference{
				*metav1.NewControllerRef(from, corev1.SchemeGroupVersion.WithKind("Endpoints")),
			},
		},
		AddressType: family,
		Ports:       ports,
	}
}
