package discovery_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	apidiscovery "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/google/go-cmp/cmp"

	"github.com/setpoint-dev/setpoint/apiserver/discovery"
	"github.com/setpoint-dev/setpoint/kinds"
)

func kind(group, version, name string, change ...func(*kinds.Kind)) *kinds.Kind {
	lower := strings.ToLower(name)
	k := &kinds.Kind{Group: group, Version: version, Kind: name, Resource: lower + "s", Singular: lower}
	for _, c := range change {
		c(k)
	}
	return k
}

func namespaced(k *kinds.Kind) { k.Namespaced = true }

func documents() *discovery.Documents {
	return discovery.New([]*kinds.Kind{
		kind("example.com", "v1alpha1", "Widget", namespaced),
		kind("example.com", "v1", "Widget", namespaced),
		kind("apps", "v1", "Deployment", namespaced, func(k *kinds.Kind) {
			k.Status, k.Scale, k.ShortNames, k.Categories = true, &kinds.Scale{}, []string{"deploy"}, []string{"all"}
		}),
		kind("", "v1", "Pod", namespaced, func(k *kinds.Kind) {
			k.Status = true
			k.Subresources = []kinds.Subresource{
				{Name: "log", Verbs: []string{"get"}},
				{Name: "eviction", Group: "policy", Version: "v1", Kind: "Eviction", Verbs: []string{"create"}},
				{Name: "exec", Version: "v1", Kind: "PodExecOptions", Verbs: []string{"create"}},
			}
		}),
		kind("", "v1", "Node"),
		kind("authorization.k8s.io", "v1", "SelfSubjectAccessReview", func(k *kinds.Kind) { k.Verbs = []string{"create"} }),
		kind("events.k8s.io", "v1", "Event", namespaced, func(k *kinds.Kind) {
			k.Storage = &kinds.Storage{Version: "v1", Kind: "Event", Resource: "events"}
		}),
	})
}

// plain reads a document into a zero value.
func plain[T any](t *testing.T, path string, into *T) {
	t.Helper()
	*into = *new(T)
	doc, ok := documents().Plain(path)
	if !ok {
		t.Fatalf("no document at %s", path)
	}
	if err := json.Unmarshal(doc.Body, into); err != nil {
		t.Fatal(err)
	}
}

func TestGroupsAreOrdered(t *testing.T) {
	var list metav1.APIGroupList
	plain(t, "/apis", &list)
	var got []string
	for _, g := range list.Groups {
		got = append(got, g.Name+":"+g.PreferredVersion.Version)
	}
	want := []string{"apps:v1", "events.k8s.io:v1", "authorization.k8s.io:v1", "example.com:v1"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	var group metav1.APIGroup
	plain(t, "/apis/example.com", &group)
	if len(group.Versions) != 2 || group.Versions[1].GroupVersion != "example.com/v1alpha1" || group.Kind != "APIGroup" {
		t.Errorf("group %+v", group)
	}
}

func TestResourcesAndSubresources(t *testing.T) {
	var list metav1.APIResourceList
	plain(t, "/api/v1", &list)
	var got []string
	for _, r := range list.APIResources {
		got = append(got, r.Name+" "+r.Kind+" "+strings.Join(r.Verbs, ","))
	}
	all := strings.Join(kinds.AllVerbs, ",")
	want := []string{
		"nodes Node " + all, "pods Pod " + all, "pods/eviction Eviction create", "pods/exec PodExecOptions create", "pods/log Pod get",
		"pods/status Pod get,patch,update",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if eviction, exec := list.APIResources[2], list.APIResources[3]; eviction.Version != "v1" || exec.Version != "" {
		t.Errorf("versions of %+v and %+v: only that of another group is said", eviction, exec)
	}
	plain(t, "/apis/apps/v1", &list)
	scale := list.APIResources[slices.IndexFunc(list.APIResources, func(r metav1.APIResource) bool { return r.Name == "deployments/scale" })]
	if scale.Group != "autoscaling" || scale.Kind != "Scale" || scale.StorageVersionHash != "" {
		t.Errorf("scale %+v", scale)
	}
	if got := list.APIResources[0].StorageVersionHash; got != "8aSe+NMegvE=" {
		t.Errorf("the storage version of Deployments is %s", got)
	}
	plain(t, "/apis/events.k8s.io/v1", &list)
	if got := list.APIResources[0].StorageVersionHash; got != "r2yiGXH7wu8=" {
		t.Errorf("the storage version of Events is %s", got)
	}
}

func TestAggregated(t *testing.T) {
	docs := documents()
	for path, want := range map[string][]string{
		"/api":  {"/v1 nodes", "/v1 pods eviction exec log status"},
		"/apis": {"apps/v1 deployments scale status", "events.k8s.io/v1 events", "authorization.k8s.io/v1 selfsubjectaccessreviews", "example.com/v1 widgets", "example.com/v1alpha1 widgets"},
	} {
		doc, _ := docs.Aggregated(path)
		var list apidiscovery.APIGroupDiscoveryList
		if err := json.Unmarshal(doc.Body, &list); err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, g := range list.Items {
			for _, v := range g.Versions {
				for _, r := range v.Resources {
					line := g.Name + "/" + v.Version + " " + r.Resource
					for _, s := range r.Subresources {
						line += " " + s.Subresource
					}
					got = append(got, line)
				}
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: %s", path, diff)
		}
	}
}

func TestETagFollowsTheBody(t *testing.T) {
	a, _ := documents().Aggregated("/apis")
	b, _ := documents().Aggregated("/apis")
	c, _ := discovery.New([]*kinds.Kind{kind("apps", "v1", "Deployment")}).Aggregated("/apis")
	if a.ETag != b.ETag || a.ETag == c.ETag || !strings.HasPrefix(a.ETag, `"`) {
		t.Errorf("tags %s, %s, %s", a.ETag, b.ETag, c.ETag)
	}
}
