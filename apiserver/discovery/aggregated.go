package discovery

import (
	apidiscovery "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/setpoint-dev/setpoint/kinds"
)

func (g *group) aggregated() apidiscovery.APIGroupDiscovery {
	out := apidiscovery.APIGroupDiscovery{ObjectMeta: metav1.ObjectMeta{Name: g.name}}
	for _, v := range g.versions {
		described := apidiscovery.APIVersionDiscovery{
			Version: v.version, Freshness: apidiscovery.DiscoveryFreshnessCurrent,
		}
		for _, k := range v.kinds {
			described.Resources = append(described.Resources, aggregatedResource(k))
		}
		out.Versions = append(out.Versions, described)
	}
	return out
}

func aggregatedResource(k *kinds.Kind) apidiscovery.APIResourceDiscovery {
	scope := apidiscovery.ScopeCluster
	if k.Namespaced {
		scope = apidiscovery.ScopeNamespace
	}
	out := apidiscovery.APIResourceDiscovery{
		Resource: k.Resource, Scope: scope, SingularResource: k.Singular, Verbs: verbs(k),
		ShortNames: k.ShortNames, Categories: k.Categories,
		ResponseKind: &metav1.GroupVersionKind{Kind: k.Kind},
	}
	// Group and version of built-in kinds are told only where they are not the document's.
	if k.Declared {
		out.ResponseKind.Group, out.ResponseKind.Version = k.Group, k.Version
	}
	for _, s := range subresources(k) {
		if k.Declared && s.Name == "status" {
			s.Group, s.Version = k.Group, k.Version
		}
		out.Subresources = append(out.Subresources, apidiscovery.APISubresourceDiscovery{
			Subresource:  s.Name,
			ResponseKind: &metav1.GroupVersionKind{Group: s.Group, Version: s.Version, Kind: s.Kind},
			Verbs:        s.Verbs,
		})
	}
	return out
}
