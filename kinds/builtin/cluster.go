package builtin

import "github.com/setpoint-dev/setpoint/kinds"

// clusterKinds are the kinds by which a cluster's networks, storage and policies are described.
func clusterKinds() []*kinds.Kind {
	return []*kinds.Kind{
		ingressClass(), ingress(), ipAddress(), networkPolicy(), serviceCIDR(),
		csiDriver(), csiNode(), csiStorageCapacity(), storageClass(), volumeAttachment(), volumeAttributesClass(),
		priorityClass(),
		runtimeClass(),
	}
}
