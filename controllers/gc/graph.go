// Package gc deletes objects whose owners are gone, and carries out foreground and orphaning
// deletions.
//
// The graph knows, for every object of every kind that can be watched, its owners and dependents.
// It is fed by metadata watches and only ever suggests which objects to look at: what is done to an
// object is decided from the object and its owners as the server has them at that moment. An owner
// counts as absent only if the server, asked for it by name, says that there is none or one of
// another uid; an error, a missing kind or a cache that lags never deletes anything. Each delete
// carries the uid and resourceVersion it was decided on.
//
// graph is passive and decide is pure; the collector around them owns the watches and workers.
package gc

import (
	"maps"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// identity is an object's place and uid. An owner known only from a reference has no Resource.
type identity struct {
	Resource   schema.GroupVersionResource
	APIVersion string
	Kind       string
	Namespace  string
	Name       string
	UID        types.UID
}

// object is what the graph keeps of an object: who it is, who owns it and how it is being deleted.
type object struct {
	identity
	Owners     []metav1.OwnerReference
	Deleting   bool
	Foreground bool // waits for its blocking dependents
	Orphan     bool // waits until its dependents are released
}

// node is an object in the graph. A virtual node stands for an owner that dependents name but that
// has not been seen.
type node struct {
	object
	virtual    bool
	dependents map[types.UID]*node
}

// graph relates objects to their owners. It is not safe for concurrent use.
type graph struct {
	nodes map[types.UID]*node
}

func newGraph() *graph { return &graph{nodes: map[types.UID]*node{}} }

// observe puts an object as it is now into the graph and returns the uids of the objects that should
// be looked at because of it.
func (g *graph) observe(o object) []types.UID {
	n := g.nodes[o.UID]
	if n == nil {
		n = &node{virtual: true, object: object{identity: identity{UID: o.UID}},
			dependents: map[types.UID]*node{}}
		g.nodes[o.UID] = n
	}
	appeared, before := n.virtual, n.object
	n.virtual = false
	n.object = o
	g.relink(n, before.Owners, o.Owners)

	look := g.unblocked(before, o)
	if g.suspicious(n) {
		look = append(look, o.UID)
	}
	startsForeground := o.Deleting && o.Foreground && !(before.Deleting && before.Foreground)
	for uid, dependent := range n.dependents {
		if startsForeground || appeared && !g.known(dependent, n) {
			look = append(look, uid)
		}
	}
	return look
}

// unblocked returns the owners whose foreground deletion waited for the object before, and no
// longer does.
func (g *graph) unblocked(before, after object) []types.UID {
	var owners []types.UID
	for _, ref := range before.Owners {
		still := slices.ContainsFunc(after.Owners, func(r metav1.OwnerReference) bool { return r.UID == ref.UID && blocks(r) })
		owner := g.nodes[ref.UID]
		if blocks(ref) && !still && owner != nil && owner.Deleting && owner.Foreground {
			owners = append(owners, ref.UID)
		}
	}
	return owners
}

// suspicious reports whether there may be something to do about an object: it is being deleted in a
// way that waits for the collector, or one of its owners may be absent or waits for it to go.
func (g *graph) suspicious(n *node) bool {
	if n.Deleting {
		return n.Foreground || n.Orphan
	}
	for _, ref := range n.Owners {
		owner := g.nodes[ref.UID]
		if owner.virtual || !refersTo(ref, n.Namespace, owner) || owner.Deleting && owner.Foreground {
			return true
		}
	}
	return false
}

// known reports whether the dependent's reference to the owner is right in all parts.
func (g *graph) known(dependent, owner *node) bool {
	for _, ref := range dependent.Owners {
		if ref.UID == owner.UID && !refersTo(ref, dependent.Namespace, owner) {
			return false
		}
	}
	return true
}

// refersTo reports whether a reference, made by an object in a namespace, names the owner rightly:
// an owner in a namespace only owns objects there.
func refersTo(ref metav1.OwnerReference, namespace string, owner *node) bool {
	group, _ := schema.ParseGroupVersion(ref.APIVersion)
	return ref.Name == owner.Name && ref.Kind == owner.Kind && group.Group == owner.Resource.Group &&
		(owner.Namespace == "" || owner.Namespace == namespace)
}

func blocks(ref metav1.OwnerReference) bool {
	return ref.BlockOwnerDeletion != nil && *ref.BlockOwnerDeletion
}

// relink files the node under its owners, making virtual ones for those not seen.
func (g *graph) relink(n *node, before, after []metav1.OwnerReference) {
	for _, ref := range before {
		if !slices.ContainsFunc(after, func(a metav1.OwnerReference) bool { return a.UID == ref.UID }) {
			g.unlink(n, ref.UID)
		}
	}
	for _, ref := range after {
		owner := g.nodes[ref.UID]
		if owner == nil {
			owner = &node{virtual: true, dependents: map[types.UID]*node{},
				object: object{identity: identity{
					APIVersion: ref.APIVersion, Kind: ref.Kind, Name: ref.Name, Namespace: n.Namespace, UID: ref.UID,
				}}}
			g.nodes[ref.UID] = owner
		}
		owner.dependents[n.UID] = n
	}
}

func (g *graph) unlink(n *node, owner types.UID) {
	o := g.nodes[owner]
	if o == nil {
		return
	}
	delete(o.dependents, n.UID)
	if o.virtual && len(o.dependents) == 0 {
		delete(g.nodes, owner)
	}
}

// remove takes an object that is gone out of the graph and returns the uids of the objects that
// should be looked at because of it: its dependents, and owners that wait for it to be gone.
func (g *graph) remove(uid types.UID) []types.UID {
	n := g.nodes[uid]
	if n == nil || n.virtual {
		return nil
	}
	look := slices.Collect(maps.Keys(n.dependents))
	for _, ref := range n.Owners {
		if owner := g.nodes[ref.UID]; owner != nil && owner.Deleting && owner.Foreground {
			look = append(look, ref.UID)
		}
		g.unlink(n, ref.UID)
	}
	if len(n.dependents) == 0 {
		delete(g.nodes, uid)
		return look
	}
	n.virtual = true // until its dependents are gone or let go of it
	n.Owners, n.Deleting, n.Foreground, n.Orphan = nil, false, false, false
	return look
}

// view is what the graph knows about one object: a copy that stays as it is.
type view struct {
	object
	// Virtual owners have been named but not seen.
	VirtualOwners []types.UID
	Dependents    []dependent
}

// dependent is an object that names another as its owner.
type dependent struct {
	identity
	Blocking   bool // the owner's foreground deletion waits for it
	Foreground bool // is itself being deleted in the foreground
}

// view returns what is known of an object, with dependents in order of uid. ok is false if the
// object has not been seen or there is nothing to do about it.
func (g *graph) view(uid types.UID) (_ view, ok bool) {
	n := g.nodes[uid]
	if n == nil || n.virtual || !g.suspicious(n) {
		return view{}, false
	}
	v := view{object: n.object}
	for _, ref := range n.Owners {
		if g.nodes[ref.UID].virtual {
			v.VirtualOwners = append(v.VirtualOwners, ref.UID)
		}
	}
	for _, id := range slices.Sorted(maps.Keys(n.dependents)) {
		d := n.dependents[id]
		entry := dependent{identity: d.identity, Foreground: d.Deleting && d.Foreground}
		for _, ref := range d.Owners {
			entry.Blocking = entry.Blocking || ref.UID == uid && blocks(ref)
		}
		v.Dependents = append(v.Dependents, entry)
	}
	return v, true
}

// of returns the uids of all objects of a resource that have been seen, in whatever version.
func (g *graph) of(resource schema.GroupResource) []types.UID {
	var uids []types.UID
	for uid, n := range g.nodes {
		if !n.virtual && n.Resource.GroupResource() == resource {
			uids = append(uids, uid)
		}
	}
	return uids
}
