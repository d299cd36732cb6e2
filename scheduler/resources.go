package scheduler

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/component-helpers/resource"
)

// resources are amounts in whole units: thousandths of a CPU, bytes, and counts.
type resources struct {
	cpu, memory, ephemeral, pods int64
	others                       map[corev1.ResourceName]int64
}

func resourcesOf(list corev1.ResourceList) resources {
	var r resources
	for name, q := range list {
		switch name {
		case corev1.ResourceCPU:
			r.cpu = q.MilliValue()
		case corev1.ResourceMemory:
			r.memory = q.Value()
		case corev1.ResourceEphemeralStorage:
			r.ephemeral = q.Value()
		case corev1.ResourcePods:
			r.pods = q.Value()
		default:
			if r.others == nil {
				r.others = map[corev1.ResourceName]int64{}
			}
			r.others[name] = q.Value()
		}
	}
	return r
}

// asksOf returns what a pod takes of its node: what its containers request together, or an init
// container alone if that is more, its overhead, and the place of one pod.
func asksOf(pod *corev1.Pod) resources {
	r := resourcesOf(resource.PodRequests(pod, resource.PodResourcesOptions{}))
	r.pods = 1
	return r
}

func (r *resources) take(asks resources) { r.add(asks, -1) }
func (r *resources) give(asks resources) { r.add(asks, 1) }

func (r *resources) add(o resources, sign int64) {
	r.cpu += sign * o.cpu
	r.memory += sign * o.memory
	r.ephemeral += sign * o.ephemeral
	r.pods += sign * o.pods
	if len(o.others) == 0 {
		return
	}
	// The map of a node's size is shared with its free amounts until the first change.
	others := make(map[corev1.ResourceName]int64, len(r.others))
	for name, n := range r.others {
		others[name] = n
	}
	for name, n := range o.others {
		others[name] += sign * n
	}
	r.others = others
}

// lacking names what a node has too little of. What a pod does not ask for is never lacking, even
// where the node has less than none of it.
func (r *resources) lacking(asks resources) (reasons []string) {
	if asks.pods > r.pods {
		reasons = append(reasons, "Too many pods")
	}
	short := func(name corev1.ResourceName, want, have int64) {
		if want > 0 && want > have {
			reasons = append(reasons, "Insufficient "+string(name))
		}
	}
	short(corev1.ResourceCPU, asks.cpu, r.cpu)
	short(corev1.ResourceMemory, asks.memory, r.memory)
	short(corev1.ResourceEphemeralStorage, asks.ephemeral, r.ephemeral)
	for name, want := range asks.others {
		short(name, want, r.others[name])
	}
	return reasons
}

// hostPort is a port of the machine that a pod wants for itself.
type hostPort struct {
	ip       string
	protocol corev1.Protocol
	port     int32
}

func hostPorts(pod *corev1.Pod) (ports []hostPort) {
	for i := range pod.Spec.Containers {
		for _, p := range pod.Spec.Containers[i].Ports {
			if p.HostPort > 0 {
				ports = append(ports, hostPort{p.HostIP, p.Protocol, p.HostPort})
			}
		}
	}
	return ports
}

// collides says whether two pods can't both have their port: no address, and 0.0.0.0, is all of them.
func (p hostPort) collides(o hostPort) bool {
	everywhere := func(ip string) bool { return ip == "" || ip == "0.0.0.0" }
	return p.port == o.port && p.protocol == o.protocol &&
		(p.ip == o.ip || everywhere(p.ip) || everywhere(o.ip))
}
