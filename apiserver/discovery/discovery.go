// Package discovery writes what a server says of itself: its groups, versions and resources, in
// the plain form (a document for each group and version) and the aggregated one (one document for
// everything). Both are functions of the kinds; a Document is made once for a set of kinds and
// served many times.
package discovery

import (
	"cmp"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"slices"
	"strings"

	apidiscovery "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/version"

	"github.com/setpoint-dev/setpoint/kinds"
)

// AggregatedType is the media type of the aggregated form in JSON.
const AggregatedType = "application/json" + AggregatedParams

// AggregatedParams follow the media type of the aggregated form.
const AggregatedParams = ";g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"

// Document is an answer, encoded as JSON. ETag is quoted, and changes with the body. Kind is what the
// body is, "APIGroupList".
type Document struct {
	Body []byte
	ETag string
	Kind string
}

// Documents are all answers for a set of kinds. They are read-only.
type Documents struct {
	byPath         map[string]Document // plain: "/apis", "/apis/apps", "/apis/apps/v1", "/api/v1"
	core, named    Document            // aggregated: of /api and of /apis
	groups         map[string]bool
	groupVersioned []string
}

// Plain returns the plain document of a path, without a slash at its end. /api is not among them:
// it names the server's address.
func (d *Documents) Plain(path string) (Document, bool) {
	doc, ok := d.byPath[path]
	return doc, ok
}

// Aggregated returns the aggregated document of "/api" or "/apis".
func (d *Documents) Aggregated(path string) (Document, bool) {
	switch path {
	case "/api":
		return d.core, true
	case "/apis":
		return d.named, true
	}
	return Document{}, false
}

// HasGroup says whether any kind belongs to the group.
func (d *Documents) HasGroup(group string) bool { return d.groups[group] }

// Paths lists the paths of the plain documents, sorted.
func (d *Documents) Paths() []string { return d.groupVersioned }

// New makes the documents. Later kinds of a resource replace earlier ones.
func New(all []*kinds.Kind) *Documents {
	groups := arrange(all)
	d := &Documents{byPath: map[string]Document{}, groups: map[string]bool{}}
	list := metav1.APIGroupList{TypeMeta: typeMeta("APIGroupList", "v1"), Groups: []metav1.APIGroup{}}
	var core, named []apidiscovery.APIGroupDiscovery
	for _, g := range groups {
		d.groups[g.name] = true
		for _, v := range g.versions {
			d.byPath[v.path()] = document("APIResourceList", v.resourceList())
		}
		if g.name == "" {
			core = append(core, g.aggregated())
			continue
		}
		named = append(named, g.aggregated())
		described := g.plain()
		list.Groups = append(list.Groups, described)
		described.TypeMeta = typeMeta("APIGroup", "v1")
		d.byPath["/apis/"+g.name] = document("APIGroup", described)
	}
	d.byPath["/apis"] = document("APIGroupList", list)
	d.core, d.named = aggregate(core), aggregate(named)
	for path := range d.byPath {
		d.groupVersioned = append(d.groupVersioned, path)
	}
	slices.Sort(d.groupVersioned)
	return d
}

func typeMeta(kind, apiVersion string) metav1.TypeMeta {
	return metav1.TypeMeta{Kind: kind, APIVersion: apiVersion}
}

func document(kind string, v any) Document {
	body, err := json.Marshal(v)
	if err != nil {
		panic(err) // structures of strings and numbers have a JSON form
	}
	hash := sha256.Sum256(body)
	return Document{Body: body, ETag: `"` + strings.ToUpper(hex.EncodeToString(hash[:])) + `"`, Kind: kind}
}

func aggregate(groups []apidiscovery.APIGroupDiscovery) Document {
	if groups == nil {
		groups = []apidiscovery.APIGroupDiscovery{}
	}
	return document("APIGroupDiscoveryList", apidiscovery.APIGroupDiscoveryList{
		TypeMeta: typeMeta("APIGroupDiscoveryList", "apidiscovery.k8s.io/v2"),
		Items:    groups,
	})
}

// order is how a Kubernetes server orders the groups. It matters where a short name is ambiguous:
// clients take the first.
var order = []string{
	"", "apiregistration.k8s.io", "apps", "events.k8s.io", "authentication.k8s.io",
	"authorization.k8s.io", "autoscaling", "batch", "certificates.k8s.io", "networking.k8s.io",
	"policy", "rbac.authorization.k8s.io", "storage.k8s.io", "admissionregistration.k8s.io",
	"apiextensions.k8s.io", "scheduling.k8s.io", "coordination.k8s.io", "node.k8s.io",
	"discovery.k8s.io", "resource.k8s.io", "flowcontrol.apiserver.k8s.io",
	"storagemigration.k8s.io",
}

type group struct {
	name     string
	versions []*groupVersion
}

type groupVersion struct {
	group, version string
	kinds          []*kinds.Kind // sorted by resource
}

// arrange sorts kinds into groups and versions: known groups in their order, others by name behind
// them; of versions the most stable and newest first.
func arrange(all []*kinds.Kind) []*group {
	byName := map[string]*group{}
	var groups []*group
	for _, k := range all {
		g := byName[k.Group]
		if g == nil {
			g = &group{name: k.Group}
			byName[k.Group] = g
			groups = append(groups, g)
		}
		v := g.version(k.Version)
		v.kinds = slices.DeleteFunc(v.kinds, func(o *kinds.Kind) bool { return o.Resource == k.Resource })
		v.kinds = append(v.kinds, k)
	}
	place := func(name string) int {
		if i := slices.Index(order, name); i >= 0 {
			return i
		}
		return len(order)
	}
	slices.SortFunc(groups, func(a, b *group) int {
		return cmp.Or(cmp.Compare(place(a.name), place(b.name)), cmp.Compare(a.name, b.name))
	})
	for _, g := range groups {
		slices.SortFunc(g.versions, func(a, b *groupVersion) int {
			return version.CompareKubeAwareVersionStrings(b.version, a.version)
		})
		for _, v := range g.versions {
			slices.SortFunc(v.kinds, func(a, b *kinds.Kind) int { return cmp.Compare(a.Resource, b.Resource) })
		}
	}
	return groups
}

func (g *group) version(name string) *groupVersion {
	for _, v := range g.versions {
		if v.version == name {
			return v
		}
	}
	v := &groupVersion{group: g.name, version: name}
	g.versions = append(g.versions, v)
	return v
}

// versionHash identifies the form in which objects are stored, as clients that cache by it expect.
func versionHash(k *kinds.Kind) string {
	group, version, kind := k.Group, k.Version, k.Kind
	if k.Storage != nil {
		group, version, kind = k.Storage.Group, k.Storage.Version, k.Storage.Kind
	}
	switch {
	case k.Form != nil:
		version = strings.TrimPrefix(k.Form.Kept.APIVersion, k.Group+"/")
	case k.Kind == "CustomResourceDefinition":
		version = "v1beta1" // in which Kubernetes keeps them
	}
	hash := sha256.Sum256([]byte(group + "/" + version + "/" + kind))
	return base64.StdEncoding.EncodeToString(hash[:8])
}
