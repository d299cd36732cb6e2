package gc

import (
	"errors"
	"maps"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
)

// Discovery says which groups and resources the server has. With an error it may still return those
// it found.
type Discovery interface {
	ServerGroupsAndResources() ([]*metav1.APIGroup, []*metav1.APIResourceList, error)
}

// resource is where objects of a kind are found.
type resource struct {
	schema.GroupVersionResource
	Kind       string
	Namespaced bool
}

// catalog is what discovery knows: where each kind is, and which resources to watch, one version of
// each. It is read-only once made.
type catalog struct {
	kinds   map[schema.GroupVersionKind]resource
	watched map[schema.GroupResource]resource
}

// ignored are resources that own nothing, are owned by nothing, and change all the time.
var ignored = []schema.GroupResource{{Resource: "events"}, {Group: "events.k8s.io", Resource: "events"}}

// discover asks the server and returns a new catalog. What could not be discovered this time is
// taken from the old one: a group that does not answer has not ceased to exist. The error says what
// was missing and is not fatal.
func discover(d Discovery, old catalog) (catalog, error) {
	groups, lists, err := d.ServerGroupsAndResources()
	var partial *discovery.ErrGroupDiscoveryFailed
	if err != nil && (!errors.As(err, &partial) || len(lists) == 0) {
		return old, err
	}
	next := catalog{kinds: map[schema.GroupVersionKind]resource{},
		watched: map[schema.GroupResource]resource{}}
	byVersion := map[string]*metav1.APIResourceList{}
	for _, list := range lists {
		byVersion[list.GroupVersion] = list
	}
	for _, group := range groups {
		for _, version := range preferredFirst(group) {
			if list := byVersion[version]; list != nil {
				next.add(list)
			}
		}
	}
	if partial != nil {
		next.keep(old, partial.Groups)
	}
	return next, err
}

// preferredFirst returns the group's versions, the one it prefers first.
func preferredFirst(group *metav1.APIGroup) []string {
	versions := []string{group.PreferredVersion.GroupVersion}
	for _, v := range group.Versions {
		if v.GroupVersion != group.PreferredVersion.GroupVersion {
			versions = append(versions, v.GroupVersion)
		}
	}
	return versions
}

func (c catalog) add(list *metav1.APIResourceList) {
	gv, err := schema.ParseGroupVersion(list.GroupVersion)
	if err != nil {
		return // nothing can refer to it either
	}
	for _, api := range list.APIResources {
		if strings.Contains(api.Name, "/") {
			continue
		}
		r := resource{gv.WithResource(api.Name), api.Kind, api.Namespaced}
		c.kinds[gv.WithKind(api.Kind)] = r
		gr := r.GroupResource()
		if _, known := c.watched[gr]; !known && watchable(api) && !slices.Contains(ignored, gr) {
			c.watched[gr] = r
		}
	}
}

func watchable(api metav1.APIResource) bool {
	for _, verb := range []string{"delete", "list", "watch"} {
		if !slices.Contains(api.Verbs, verb) {
			return false
		}
	}
	return true
}

// keep carries over what the old catalog knew of groups that failed to answer.
func (c catalog) keep(old catalog, failed map[schema.GroupVersion]error) {
	groups := map[string]bool{}
	for gv := range failed {
		groups[gv.Group] = true
	}
	for gvk, r := range old.kinds {
		if _, known := c.kinds[gvk]; !known && groups[gvk.Group] {
			c.kinds[gvk] = r
		}
	}
	for gr, r := range old.watched {
		if groups[gr.Group] {
			c.watched[gr] = r // of the version watched so far
		}
	}
}

// changes compares with what is watched now.
func (c catalog) changes(now map[schema.GroupResource]resource) (start, stop []resource) {
	for _, gr := range slices.SortedFunc(maps.Keys(c.watched), compareGroupResource) {
		if now[gr] != c.watched[gr] {
			start = append(start, c.watched[gr])
		}
	}
	for _, gr := range slices.SortedFunc(maps.Keys(now), compareGroupResource) {
		if c.watched[gr] != now[gr] {
			stop = append(stop, now[gr])
		}
	}
	return start, stop
}

func compareGroupResource(a, b schema.GroupResource) int {
	return strings.Compare(a.String(), b.String())
}
