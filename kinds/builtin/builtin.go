// Package builtin holds the records of the kinds that every control plane serves. A record says what
// a schema cannot: defaults that depend on other fields, rules, what the server allocates, and what
// kubectl get prints.
//
// The wording, paths and order of what the rules say are those of Kubernetes 1.37, so that clients
// that show or read them find what they expect. Where we decide otherwise, docs/differences.md says.
//
// Records are read-only and may be used concurrently; their hooks keep nothing between calls.
package builtin

import (
	"slices"

	"github.com/setpoint-dev/setpoint/kinds"
	"github.com/setpoint-dev/setpoint/kinds/builtin/pod"
	"github.com/setpoint-dev/setpoint/kinds/crd"
)

// All makes the records, in discovery's order. Nothing is made before the first call, which compiles
// their schemas in a few milliseconds; later ones cost next to nothing.
func All() []*kinds.Kind {
	all := slices.Concat([]*kinds.Kind{
		configMap(), event(), namespace(), node(), pod.Kind(), secret(), serviceAccount(), service(),
		controllerRevision(), deployment(), replicaSet(),
		newEvent(),
		lease(),
		endpointSlice(),
		crd.Kind(),
	}, workloadKinds(), clusterKinds())
	for _, k := range all {
		k.FinalizersQualified = !slices.Contains(anyFinalizer, k.Group) && k.Kind != "Event"
		k.NameCheckedAgain = slices.Contains(nameCheckedAgain[k.Group], k.Kind)
	}
	return all
}

// anyFinalizer are the groups in which a finalizer may be any name.
var anyFinalizer = []string{"admissionregistration.k8s.io", "apiextensions.k8s.io", "apiregistration.k8s.io",
	"coordination.k8s.io", "node.k8s.io", "policy"}

// nameCheckedAgain are the kinds, by group, whose updates are checked as if they were creates.
var nameCheckedAgain = map[string][]string{
	"": {"ConfigMap", "Endpoints", "LimitRange", "Namespace", "Node", "PersistentVolume", "PersistentVolumeClaim", "Pod",
		"Secret", "ServiceAccount"},
	"admissionregistration.k8s.io": {"MutatingAdmissionPolicy", "MutatingAdmissionPolicyBinding",
		"MutatingWebhookConfiguration", "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding",
		"ValidatingWebhookConfiguration"},
	"apps":                         {"ControllerRevision"},
	"discovery.k8s.io":             {"EndpointSlice"},
	"flowcontrol.apiserver.k8s.io": {"FlowSchema", "PriorityLevelConfiguration"},
	"networking.k8s.io":            {"Ingress", "IngressClass", "IPAddress"},
	rbacGroup:                      {"ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding"},
	"node.k8s.io":                  {"RuntimeClass"},
	"resource.k8s.io":              {"ResourceClaim", "ResourceClaimTemplate"},
	"storage.k8s.io":               {"CSINode", "CSIStorageCapacity", "StorageClass", "VolumeAttachment", "VolumeAttributesClass"},
}

// Set makes the set of all records.
func Set() *kinds.Set { return kinds.NewSet(All()...) }
