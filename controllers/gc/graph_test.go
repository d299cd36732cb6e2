package gc_test

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/setpoint-dev/setpoint/controllers/gc"
)

var mapsGVR = schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}

// object is a ConfigMap whose uid is its name, owned by those named.
func object(name string, owners ...string) gc.Object {
	o := gc.NewObject(gc.Identity{
		Resource: mapsGVR, APIVersion: "v1", Kind: "ConfigMap", Namespace: "ns", Name: name, UID: types.UID(name),
	})
	for _, owner := range owners {
		o.Owners = append(o.Owners, reference(owner))
	}
	return o
}

func reference(owner string) metav1.OwnerReference {
	return metav1.OwnerReference{
		APIVersion: "v1", Kind: "ConfigMap", Name: owner, UID: types.UID(owner), BlockOwnerDeletion: ptr.To(true),
	}
}

func foreground(o gc.Object) gc.Object { o.Deleting, o.Foreground = true, true; return o }

func sorted(uids []types.UID) []types.UID { slices.Sort(uids); return uids }

func TestGraphSuggests(t *testing.T) {
	g := gc.NewGraph()
	for _, step := range []struct {
		name string
		do   func() []types.UID
		want []types.UID
	}{
		{"an owner", func() []types.UID { return g.Observe(object("owner")) }, nil},
		{"a child of a known owner", func() []types.UID { return g.Observe(object("child", "owner")) }, nil},
		{"a child of an unknown owner", func() []types.UID { return g.Observe(object("stray", "ghost")) }, []types.UID{"stray"}},
		{"that owner, after all", func() []types.UID { return g.Observe(object("ghost")) }, nil},
		{"the owner is gone", func() []types.UID { return g.Remove("owner") }, []types.UID{"child"}},
		{"another child of the gone owner", func() []types.UID { return g.Observe(object("late", "owner")) }, []types.UID{"late"}},
		{"an owner waits for dependents", func() []types.UID { return g.Observe(foreground(object("ghost"))) }, []types.UID{"ghost", "stray"}},
		{"the dependent is gone", func() []types.UID { return g.Remove("stray") }, []types.UID{"ghost"}},
	} {
		if diff := cmp.Diff(step.want, sorted(step.do())); diff != "" {
			t.Errorf("%s (-want +got):\n%s", step.name, diff)
		}
	}
}

func TestGraphLooksAtAnOwnerThatIsNoLongerBlocked(t *testing.T) {
	g := gc.NewGraph()
	g.Observe(object("child", "owner"))
	g.Observe(foreground(object("owner")))
	unblocked := object("child", "owner")
	unblocked.Owners[0].BlockOwnerDeletion = ptr.To(false)
	if got := g.Observe(unblocked); !slices.Contains(got, types.UID("owner")) {
		t.Errorf("a dependent that stops blocking has %v looked at, want the owner too", got)
	}
}

func TestGraphDoubtsWrongReferences(t *testing.T) {
	g := gc.NewGraph()
	g.Observe(object("owner"))
	for name, change := range map[string]func(*gc.Object){
		"name":      func(o *gc.Object) { o.Owners[0].Name = "other" },
		"kind":      func(o *gc.Object) { o.Owners[0].Kind = "Secret" },
		"namespace": func(o *gc.Object) { o.Namespace = "elsewhere" },
	} {
		child := object("child-"+name, "owner")
		change(&child)
		if got := g.Observe(child); !slices.Contains(got, child.UID) {
			t.Errorf("a reference with a wrong %s is believed", name)
		}
	}
}

func TestGraphForgetsEverything(t *testing.T) {
	g := gc.NewGraph()
	for _, o := range []gc.Object{object("a"), object("b", "a", "ghost"), object("c", "b")} {
		g.Observe(o)
	}
	for _, uid := range []types.UID{"a", "b", "c"} {
		g.Remove(uid)
	}
	if n := g.Len(); n != 0 {
		t.Errorf("%d nodes are left of objects that are gone", n)
	}
}

func live(o gc.Object, deleting bool, finalizers ...string) *metav1.PartialObjectMetadata {
	m := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: o.Name, UID: o.UID, OwnerReferences: o.Owners, Finalizers: finalizers}}
	if deleting {
		m.DeletionTimestamp = &metav1.Time{}
	}
	return m
}

func TestDecide(t *testing.T) {
	one, two := object("x", "p"), object("x", "p", "q")
	dependents := func(d ...gc.Dependent) gc.View { return gc.View{Dependents: d} }
	background, fore, orphan := metav1.DeletePropagationBackground, metav1.DeletePropagationForeground, metav1.DeletePropagationOrphan
	for _, c := range []struct {
		name   string
		view   gc.View
		live   *metav1.PartialObjectMetadata
		owners []any
		want   gc.Verdict
	}{
		{"gone", gc.View{}, nil, nil, gc.Verdict{Verb: gc.Forget}},
		{"no owners", gc.View{}, live(object("x"), false), nil, gc.Verdict{}},
		{"on its way out", gc.View{}, live(one, true, "other"), nil, gc.Verdict{}},
		{"orphaning", gc.View{}, live(one, true, metav1.FinalizerOrphanDependents), nil, gc.Verdict{Verb: gc.ReleaseDependents}},
		{"foreground, none left", gc.View{}, live(one, true, metav1.FinalizerDeleteDependents), nil, gc.Verdict{Verb: gc.FinishForeground}},
		{"foreground, one left", dependents(gc.Dependent{Blocking: true}), live(one, true, metav1.FinalizerDeleteDependents), nil, gc.Verdict{Verb: gc.AwaitDependents}},
		{"foreground, one that does not block", dependents(gc.Dependent{}), live(one, true, metav1.FinalizerDeleteDependents), nil, gc.Verdict{Verb: gc.FinishForeground}},
		{"owner lives", gc.View{}, live(one, false), []any{gc.OwnerSolid}, gc.Verdict{}},
		{"owner absent", gc.View{}, live(one, false), []any{gc.OwnerAbsent}, gc.Verdict{Verb: gc.Remove, Policy: background}},
		{"owner absent, asks to orphan", gc.View{}, live(one, false, metav1.FinalizerOrphanDependents), []any{gc.OwnerAbsent}, gc.Verdict{Verb: gc.Remove, Policy: orphan}},
		{"one of two absent", gc.View{}, live(two, false), []any{gc.OwnerAbsent, gc.OwnerSolid}, gc.Verdict{Verb: gc.DropOwners, Drop: []types.UID{"p"}}},
		{"one of two waits", gc.View{}, live(two, false), []any{gc.OwnerSolid, gc.OwnerWaiting}, gc.Verdict{Verb: gc.DropOwners, Drop: []types.UID{"q"}}},
		{"owner waits, leaf", gc.View{}, live(one, false), []any{gc.OwnerWaiting}, gc.Verdict{Verb: gc.Remove, Policy: background}},
		{"owner waits, has dependents", dependents(gc.Dependent{}), live(one, false), []any{gc.OwnerWaiting}, gc.Verdict{Verb: gc.Remove, Policy: fore}},
		{"circle", dependents(gc.Dependent{Foreground: true}), live(one, false), []any{gc.OwnerWaiting}, gc.Verdict{Verb: gc.Remove, Policy: fore, Unblock: true}},
		{"owner cannot own it", gc.View{}, live(one, false), []any{gc.OwnerInvalid}, gc.Verdict{}},
	} {
		got, ok := gc.Settled(c.view, c.live)
		if !ok {
			owners := gc.States(c.owners)
			got = gc.Decide(c.view, c.live, owners)
		}
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.name, diff)
		}
	}
}
