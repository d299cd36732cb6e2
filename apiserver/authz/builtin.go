package authz

import (
	"context"
	"slices"
	"strings"

	"github.com/setpoint-dev/setpoint/apiserver/authn"
)

// Builtin holds what is true in every control plane, whatever roles are declared in it:
// system:masters may do everything; whoever is known may discover the API and ask about himself;
// anybody may ask for health and version; a node may do what its agent needs.
func Builtin() Authorizer {
	return builtin{Chain(Func(masters), Func(public), Func(selves), Func(nodes))}
}

func masters(_ context.Context, a *Attributes) (Decision, string, error) {
	if a.User.In(authn.Masters) {
		return Allow, "", nil
	}
	return NoOpinion, "", nil
}

func public(_ context.Context, a *Attributes) (Decision, string, error) {
	if a.IsResource() || a.Verb != "get" {
		return NoOpinion, "", nil
	}
	switch first := firstSegment(a.Path); first {
	case "healthz", "livez", "readyz", "version":
		return Allow, "", nil
	case "api", "apis", "openapi":
		if a.User.In(authn.Authenticated) {
			return Allow, "", nil
		}
	}
	return NoOpinion, "", nil
}

func firstSegment(path string) string {
	first, _, _ := strings.Cut(strings.TrimPrefix(path, "/"), "/")
	return first
}

// selves are the questions that everybody known may ask about himself.
func selves(_ context.Context, a *Attributes) (Decision, string, error) {
	if a.Verb != "create" || !a.User.In(authn.Authenticated) {
		return NoOpinion, "", nil
	}
	switch a.Group + "/" + a.Resource {
	case "authentication.k8s.io/selfsubjectreviews",
		"authorization.k8s.io/selfsubjectaccessreviews",
		"authorization.k8s.io/selfsubjectrulesreviews":
		return Allow, "", nil
	}
	return NoOpinion, "", nil
}

// nodeRule is a line of what an agent may do; own restricts it to the object named like the node.
type nodeRule struct {
	group, resource, subresource string
	verbs                        string
	own                          bool
	namespace                    string
}

// An agent reads what its pods name and cannot yet be told apart from what other nodes' pods name:
// that is the node authorizer's graph, which stands behind the same interface when it comes.
var nodeRules = []nodeRule{
	{resource: "nodes", verbs: "get list watch create"},
	{resource: "nodes", verbs: "update patch delete", own: true},
	{resource: "nodes", subresource: "status", verbs: "update patch", own: true},
	{resource: "pods", verbs: "get list watch delete"},
	{resource: "pods", subresource: "status", verbs: "get update patch"},
	{resource: "pods", subresource: "eviction", verbs: "create"},
	{resource: "events", verbs: "create update patch"},
	{group: "events.k8s.io", resource: "events", verbs: "create update patch"},
	{resource: "services", verbs: "get list watch"},
	{group: "discovery.k8s.io", resource: "endpointslices", verbs: "get list watch"},
	{resource: "configmaps", verbs: "get list watch"},
	{resource: "secrets", verbs: "get list watch"},
	{resource: "serviceaccounts", verbs: "get"},
	{resource: "namespaces", verbs: "get list watch"},
	{group: "coordination.k8s.io", resource: "leases", verbs: "create", namespace: "kube-node-lease"},
	{group: "coordination.k8s.io", resource: "leases", verbs: "get update patch delete", own: true,
		namespace: "kube-node-lease"},
}

func nodes(_ context.Context, a *Attributes) (Decision, string, error) {
	name, ok := strings.CutPrefix(a.User.Name, authn.NodePrefix)
	if !ok || !a.User.In(authn.Nodes) {
		return NoOpinion, "", nil
	}
	if !a.IsResource() {
		if a.Path == ConnectPath(name) && (a.Verb == "post" || a.Verb == "get") {
			return Allow, "", nil
		}
		return NoOpinion, "", nil
	}
	for _, rule := range nodeRules {
		if rule.matches(a, name) {
			return Allow, "", nil
		}
	}
	return NoOpinion, "", nil
}

// ConnectPath is where the agent of a node opens the connection over which the server calls it.
func ConnectPath(node string) string { return "/setpoint.dev/v1/nodes/" + node + "/connect" }

func (r *nodeRule) matches(a *Attributes, node string) bool {
	return r.group == a.Group && r.resource == a.Resource && r.subresource == a.Subresource &&
		(!r.own || a.Name == node) &&
		(r.namespace == "" || r.namespace == a.Namespace) &&
		slices.Contains(strings.Fields(r.verbs), a.Verb)
}
