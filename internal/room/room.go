// Package room reckons what pods take of a node and what a node has: the scheduler places them by it, and
// the node's agent refuses what does not fit, by the same rules.
package room

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/component-helpers/resource"
)

// Amounts are of resources, in whole units: thousandths of a CPU, bytes, and counts. A copy shares
// nothing that changes.
type Amounts struct {
	cpu, memory, ephemeral, pods int64
	others                       map[corev1.ResourceName]int64
}

// Of returns the amounts of a list.
func Of(list corev1.ResourceList) Amounts {
	var a Amounts
	for name, q := range list {
		switch name {
		case corev1.ResourceCPU:
			a.cpu = q.MilliValue()
		case corev1.ResourceMemory:
			a.memory = q.Value()
		case corev1.ResourceEphemeralStorage:
			a.ephemeral = q.Value()
		case corev1.ResourcePods:
			a.pods = q.Value()
		default:
			if a.others == nil {
				a.others = map[corev1.ResourceName]int64{}
			}
			a.others[name] = q.Value()
		}
	}
	return a
}

// AskedBy returns what a pod takes of its node: what its containers request together, or an init
// container alone if that is more, its overhead, and the place of one pod.
func AskedBy(pod *corev1.Pod) Amounts {
	a := Of(resource.PodRequests(pod, resource.PodResourcesOptions{}))
	a.pods = 1
	return a
}

// Take subtracts o.
func (a *Amounts) Take(o Amounts) { a.add(o, -1) }

// Give adds o.
func (a *Amounts) Give(o Amounts) { a.add(o, 1) }

func (a *Amounts) add(o Amounts, sign int64) {
	a.cpu += sign * o.cpu
	a.memory += sign * o.memory
	a.ephemeral += sign * o.ephemeral
	a.pods += sign * o.pods
	if len(o.others) == 0 {
		return
	}
	// The map of a node's size is shared with its free amounts until the first change.
	others := make(map[corev1.ResourceName]int64, len(a.others))
	maps.Copy(others, a.others)
	for name, n := range o.others {
		others[name] += sign * n
	}
	a.others = others
}

// Get returns the amount of one resource.
func (a *Amounts) Get(name corev1.ResourceName) int64 {
	switch name {
	case corev1.ResourceCPU:
		return a.cpu
	case corev1.ResourceMemory:
		return a.memory
	case corev1.ResourceEphemeralStorage:
		return a.ephemeral
	case corev1.ResourcePods:
		return a.pods
	}
	return a.others[name]
}

// common are the resources that every node has, in the order in which they are spoken of.
var common = [...]corev1.ResourceName{
	corev1.ResourcePods, corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceEphemeralStorage,
}

// Lacking names what there is too little of for a pod that asks for so much, the place for a pod first.
// What it does not ask for is never lacking, even where there is less than none of it.
func (a *Amounts) Lacking(asked Amounts) (names []corev1.ResourceName) {
	short := func(name corev1.ResourceName) {
		if want := asked.Get(name); want > 0 && want > a.Get(name) {
			names = append(names, name)
		}
	}
	for _, name := range common {
		short(name)
	}
	for _, name := range slices.Sorted(maps.Keys(asked.others)) {
		short(name)
	}
	return names
}

// HostPort is a port of the machine that a pod wants for itself.
type HostPort struct {
	ip       string
	protocol corev1.Protocol
	port     int32
}

// HostPorts returns those of a pod.
func HostPorts(pod *corev1.Pod) (ports []HostPort) {
	for i := range pod.Spec.Containers {
		for _, p := range pod.Spec.Containers[i].Ports {
			if p.HostPort > 0 {
				ports = append(ports, HostPort{p.HostIP, p.Protocol, p.HostPort})
			}
		}
	}
	return ports
}

// Collides says whether two pods can't both have their port: no address, and 0.0.0.0, is all of them.
func (p HostPort) Collides(o HostPort) bool {
	everywhere := func(ip string) bool { return ip == "" || ip == "0.0.0.0" }
	return p.port == o.port && p.protocol == o.protocol &&
		(p.ip == o.ip || everywhere(p.ip) || everywhere(o.ip))
}
