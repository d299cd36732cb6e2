package builtin

import "github.com/setpoint-dev/setpoint/kinds"

// clusterKinds are the kinds by which a cluster's networks, storage and policies are described, and
// its API extended.
func clusterKinds() []*kinds.Kind {
	return []*kinds.Kind{
		apiService(),
		mutatingPolicy(), mutatingPolicyBinding(), mutatingWebhooks(),
		validatingPolicy(), validatingPolicyBinding(), validatingWebhooks(),
		certificateSigningRequest(), clusterTrustBundle(), podCertificateRequest(),
		flowSchema(), priorityLevel(),
		ingressClass(), ingress(), ipAddress(), networkPolicy(), serviceCIDR(),
		deviceClass(), deviceTaintRule(), resourceClaim(), resourceClaimTemplate(), resourceSlice(),
		storageVersionMigration(),
		csiDriver(), csiNode(), csiStorageCapacity(), storageClass(), volumeAttachment(), volumeAttributesClass(),
		priorityClass(),
		runtimeClass(),
	}
}
