package discovery

import (
	"cmp"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/setpoint-dev/setpoint/kinds"
)

func (v *groupVersion) name() string {
	if v.group == "" {
		return v.version
	}
	return v.group + "/" + v.version
}

func (v *groupVersion) path() string {
	if v.group == "" {
		return "/api/" + v.version
	}
	return "/apis/" + v.group + "/" + v.version
}

func (g *group) plain() metav1.APIGroup {
	out := metav1.APIGroup{Name: g.name}
	for _, v := range g.versions {
		out.Versions = append(out.Versions,
			metav1.GroupVersionForDiscovery{GroupVersion: v.name(), Version: v.version})
	}
	out.PreferredVersion = out.Versions[0]
	return out
}

// resourceList is the document of a version: resources and their subresources, by name.
func (v *groupVersion) resourceList() metav1.APIResourceList {
	list := metav1.APIResourceList{TypeMeta: typeMeta("APIResourceList", "v1"), GroupVersion: v.name()}
	if v.group == "" {
		list.APIVersion = ""
	}
	for _, k := range v.kinds {
		r := metav1.APIResource{
			Name: k.Resource, SingularName: k.Singular, Namespaced: k.Namespaced, Kind: k.Kind,
			Verbs: verbs(k), ShortNames: k.ShortNames, Categories: k.Categories,
		}
		if slices.Contains(r.Verbs, "watch") {
			r.StorageVersionHash = versionHash(k)
		}
		list.APIResources = append(list.APIResources, r)
		for _, s := range subresources(k) {
			list.APIResources = append(list.APIResources, metav1.APIResource{
				Name: k.Resource + "/" + s.Name, Namespaced: k.Namespaced,
				Group: s.Group, Version: s.Version, Kind: s.Kind, Verbs: s.Verbs,
			})
		}
	}
	return list
}

func verbs(k *kinds.Kind) []string {
	if k.Verbs != nil {
		return k.Verbs
	}
	return kinds.AllVerbs
}

var readAndWrite = []string{"get", "patch", "update"}

// subresources are all those of a kind, each with its kind and verbs filled in: sorted, but for declared
// kinds, whose status is told before their scale.
func subresources(k *kinds.Kind) []kinds.Subresource {
	all := slices.Clone(k.Subresources)
	if k.Status {
		all = append(all, kinds.Subresource{Name: "status", Verbs: readAndWrite})
	}
	if k.Scale != nil {
		all = append(all, kinds.Subresource{
			Name: "scale", Group: "autoscaling", Version: "v1", Kind: "Scale", Verbs: readAndWrite,
		})
	}
	for i := range all {
		if all[i].Kind == "" {
			all[i].Kind = k.Kind
		}
		if all[i].Group == k.Group {
			all[i].Version = "" // it goes without saying
		}
	}
	if k.Declared {
		return all
	}
	slices.SortFunc(all, func(a, b kinds.Subresource) int { return cmp.Compare(a.Name, b.Name) })
	return slices.CompactFunc(all, func(a, b kinds.Subresource) bool { return a.Name == b.Name })
}
