package gc_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"

	"github.com/setpoint-dev/setpoint/controllers/controllertest"
	"github.com/setpoint-dev/setpoint/controllers/gc"
)

var (
	widgets  = schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "widgets"}
	clusters = schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "clusters"}
)

// fixture is a server and a collector that runs against it, both in a synctest bubble.
type fixture struct {
	t      *testing.T
	server *controllertest.Metadata
}

// run starts a collector, in a bubble of its own, does the steps and ends it.
func run(t *testing.T, steps func(f *fixture)) {
	t.Helper()
	runOn(t, func() *controllertest.Metadata { return newServer() }, steps)
}

func newServer() *controllertest.Metadata {
	return controllertest.NewMetadata(
		controllertest.Resource{GroupVersionResource: mapsGVR, Kind: "ConfigMap", Namespaced: true},
		controllertest.Resource{GroupVersionResource: widgets, Kind: "Widget", Namespaced: true},
		controllertest.Resource{GroupVersionResource: clusters, Kind: "Cluster"},
	)
}

func runOn(t *testing.T, make func() *controllertest.Metadata, steps func(f *fixture)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		f := &fixture{t, make()}
		stop := f.start()
		steps(f)
		stop()
	})
}

// start runs a collector and returns what ends it.
func (f *fixture) start() (stop func()) { return f.startOn(f.server) }

// startOn is start for a collector that reads and writes through something else.
func (f *fixture) startOn(server metadata.Interface) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	c := gc.NewCollector(gc.Config{
		Metadata: server, Discovery: f.server, Clock: clock.RealClock{}, Log: slog.New(slog.DiscardHandler),
		Events: events.NewFakeRecorder(10000), Workers: 4, Rediscover: 10 * time.Second,
	})
	done := make(chan error)
	go func() { done <- c.Start(ctx) }()
	return func() {
		cancel()
		if err := <-done; err != nil {
			f.t.Errorf("the collector ended with %v", err)
		}
	}
}

// settle lets everything happen that happens within a minute.
func (f *fixture) settle() {
	<-time.After(time.Minute)
	synctest.Wait()
}

// put makes a ConfigMap owned by the others.
func (f *fixture) put(name string, owners ...*metav1.PartialObjectMetadata) *metav1.PartialObjectMetadata {
	meta := metav1.ObjectMeta{Namespace: "ns", Name: name}
	for _, owner := range owners {
		meta.OwnerReferences = append(meta.OwnerReferences, metav1.OwnerReference{
			APIVersion: "v1", Kind: "ConfigMap", Name: owner.Name, UID: owner.UID, BlockOwnerDeletion: ptr.To(true),
		})
	}
	return f.server.Put(mapsGVR, meta)
}

func (f *fixture) delete(name string, policy metav1.DeletionPropagation) {
	f.t.Helper()
	err := f.server.Resource(mapsGVR).Namespace("ns").Delete(context.Background(), name, metav1.DeleteOptions{PropagationPolicy: &policy})
	if err != nil {
		f.t.Fatal(err)
	}
}

func (f *fixture) expect(names ...string) {
	f.t.Helper()
	var got []string
	for _, name := range f.server.Names() {
		got = append(got, strings.TrimPrefix(name, "configmaps ns/"))
	}
	slices.Sort(names)
	if diff := cmp.Diff(names, got); diff != "" {
		f.t.Errorf("objects (-want +got):\n%s", diff)
	}
}

func TestBackgroundDeletionTakesTheChain(t *testing.T) {
	run(t, func(f *fixture) {
		owner := f.put("owner")
		child := f.put("child", owner)
		f.put("grandchild", child)
		f.put("bystander")
		f.settle()
		f.delete("owner", metav1.DeletePropagationBackground)
		f.settle()
		f.expect("bystander")
	})
}

func TestB053_OrphaningStopsAtOneLevel(t *testing.T) {
	run(t, func(f *fixture) {
		owner := f.put("owner")
		child := f.put("child", owner)
		f.put("grandchild", child)
		f.settle()
		f.delete("owner", metav1.DeletePropagationOrphan)
		f.settle()
		f.expect("child", "grandchild")
		if refs := f.server.Object(mapsGVR, "ns", "child").OwnerReferences; len(refs) != 0 {
			t.Errorf("the orphan still names owners: %v", refs)
		}
		if refs := f.server.Object(mapsGVR, "ns", "grandchild").OwnerReferences; len(refs) != 1 {
			t.Errorf("the orphan's own dependent names %d owners, want 1", len(refs))
		}
	})
}

func TestForegroundDeletionWaitsForDependents(t *testing.T) {
	run(t, func(f *fixture) {
		owner := f.put("owner")
		child := f.put("child", owner)
		f.server.Put(mapsGVR, metav1.ObjectMeta{
			Namespace: "ns", Name: "held", Finalizers: []string{"example.com/hold"},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: "child", UID: child.UID, BlockOwnerDeletion: ptr.To(true)}},
		})
		f.settle()
		f.delete("owner", metav1.DeletePropagationForeground)
		f.settle()
		f.expect("owner", "child", "held")
		f.release("held")
		f.settle()
		f.expect()
	})
}

// release takes all finalizers off a ConfigMap.
func (f *fixture) release(name string) {
	f.t.Helper()
	body := []byte(`{"metadata":{"finalizers":null}}`)
	if _, err := f.server.Resource(mapsGVR).Namespace("ns").Patch(context.Background(), name, types.MergePatchType, body, metav1.PatchOptions{}); err != nil {
		f.t.Fatal(err)
	}
}

func TestForegroundCircleEnds(t *testing.T) {
	run(t, func(f *fixture) {
		a := f.put("a")
		b := f.put("b", a)
		body := fmt.Appendf(nil, `{"metadata":{"ownerReferences":[{"apiVersion":"v1","kind":"ConfigMap","name":"b","uid":%q,"blockOwnerDeletion":true}]}}`, b.UID)
		if _, err := f.server.Resource(mapsGVR).Namespace("ns").Patch(context.Background(), "a", types.MergePatchType, body, metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
		f.settle()
		f.delete("a", metav1.DeletePropagationForeground)
		f.settle()
		f.expect()
	})
}

// TestB051_SecondDeleteOfAHeldObject deletes twice in the foreground and lets go in the end.
func TestB051_SecondDeleteOfAHeldObject(t *testing.T) {
	for _, policy := range []metav1.DeletionPropagation{metav1.DeletePropagationForeground, metav1.DeletePropagationOrphan} {
		run(t, func(f *fixture) {
			f.server.Put(mapsGVR, metav1.ObjectMeta{Namespace: "ns", Name: "held", Finalizers: []string{"example.com/hold"}})
			for range 2 {
				f.delete("held", policy)
				f.settle()
				if got := f.server.Object(mapsGVR, "ns", "held").Finalizers; len(got) != 1 {
					t.Errorf("%s: finalizers %v, want only the object's own", policy, got)
				}
			}
			f.release("held")
			f.settle()
			f.expect()
		})
	}
}

func TestB050_ANamesakeSurvives(t *testing.T) {
	run(t, func(f *fixture) {
		owner := f.put("owner")
		f.put("child", owner)
		f.settle()
		var swapped atomic.Bool
		f.server.Before = func(request string) error {
			if request == "delete configmaps ns/child" && swapped.CompareAndSwap(false, true) {
				_ = f.server.Resource(mapsGVR).Namespace("ns").Delete(context.Background(), "child", metav1.DeleteOptions{})
				f.put("child")
			}
			return nil
		}
		f.delete("owner", metav1.DeletePropagationBackground)
		f.settle()
		f.expect("child")
		if !swapped.Load() {
			t.Error("the child was never to be deleted: the test shows nothing")
		}
	})
}

func TestAbsentOwners(t *testing.T) {
	run(t, func(f *fixture) {
		owner := f.put("owner")
		never := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: "never", UID: "never-was"}}
		reused := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: "owner", UID: "former"}}
		f.put("of-none", never)
		f.put("of-a-former-one", reused)
		f.put("of-both", owner, never)
		f.settle()
		f.expect("owner", "of-both")
		if refs := f.server.Object(mapsGVR, "ns", "of-both").OwnerReferences; len(refs) != 1 || refs[0].UID != owner.UID {
			t.Errorf("owners %v, want the one that exists", refs)
		}
	})
}

// TestB055_NothingIsDeletedOnDoubt starts a collector while the owner's kind cannot be asked.
func TestB055_NothingIsDeletedOnDoubt(t *testing.T) {
	for name, answer := range map[string]error{
		"500":                    apierrors.NewInternalError(errors.New("broken")),
		"503":                    apierrors.NewServiceUnavailable("later"),
		"timeout":                context.DeadlineExceeded,
		"404 of an unknown path": apierrors.NewGenericServerResponse(404, "get", widgets.GroupResource(), "w", "404 page not found", 0, true),
	} {
		t.Run(name, func(t *testing.T) {
			var owner *metav1.PartialObjectMetadata
			start := func() *controllertest.Metadata {
				server := newServer()
				owner = server.Put(widgets, metav1.ObjectMeta{Namespace: "ns", Name: "w"})
				server.Put(mapsGVR, metav1.ObjectMeta{Namespace: "ns", Name: "child", OwnerReferences: []metav1.OwnerReference{
					{APIVersion: "example.com/v1", Kind: "Widget", Name: "w", UID: owner.UID},
				}})
				server.Before = func(request string) error {
					if strings.Contains(request, "widgets") {
						return answer
					}
					return nil
				}
				return server
			}
			runOn(t, start, func(f *fixture) {
				f.settle()
				f.settle()
				f.expect("child", "widgets.example.com ns/w")
				if requests := f.server.Requests(); len(requests) != 0 {
					t.Errorf("wrote %v, want nothing", requests)
				}
			})
		})
	}
}

// behind answers lists of widgets as if there were none yet, as a server does that lags, and watches with
// nothing. It reads single objects as they are.
type behind struct{ *controllertest.Metadata }

func (b behind) Resource(gvr schema.GroupVersionResource) metadata.Getter {
	if gvr == widgets {
		return none{b.Metadata.Resource(gvr)}
	}
	return b.Metadata.Resource(gvr)
}

type none struct{ metadata.Getter }

func (n none) List(context.Context, metav1.ListOptions) (*metav1.PartialObjectMetadataList, error) {
	return &metav1.PartialObjectMetadataList{ListMeta: metav1.ListMeta{ResourceVersion: "1"}}, nil
}

func (n none) Watch(ctx context.Context, _ metav1.ListOptions) (watch.Interface, error) {
	silent := watch.NewFake()
	context.AfterFunc(ctx, silent.Stop)
	return silent, nil
}

// TestB055_AnOwnerThatNoListShowsIsAskedFor starts a collector to which the owners' kind looks empty. Only
// the dependent of an owner that the server says is not there goes, and of no other uid than was judged.
func TestB055_AnOwnerThatNoListShowsIsAskedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fixture{t, newServer()}
		owned := func(name string, owner types.UID) {
			f.server.Put(mapsGVR, metav1.ObjectMeta{Namespace: "ns", Name: name, OwnerReferences: []metav1.OwnerReference{
				{APIVersion: "example.com/v1", Kind: "Widget", Name: "w", UID: owner},
			}})
		}
		owned("of-the-living", f.server.Put(widgets, metav1.ObjectMeta{Namespace: "ns", Name: "w"}).UID)
		owned("of-another", "another-uid")
		defer f.startOn(behind{f.server})()
		f.settle()
		f.settle()
		f.expect("of-the-living", "widgets.example.com ns/w")
		if diff := cmp.Diff([]string{"delete configmaps ns/of-another"}, f.server.Requests()); diff != "" {
			t.Errorf("writes (-want +got):\n%s", diff)
		}
	})
}

func TestB055_AKindThatIsNotDiscoveredKeepsItsDependents(t *testing.T) {
	run(t, func(f *fixture) {
		owner := f.server.Put(widgets, metav1.ObjectMeta{Namespace: "ns", Name: "w"})
		f.server.Put(mapsGVR, metav1.ObjectMeta{Namespace: "ns", Name: "child", OwnerReferences: []metav1.OwnerReference{
			{APIVersion: "example.com/v1", Kind: "Widget", Name: "w", UID: owner.UID},
		}})
		f.settle()
		f.server.FailDiscovery(widgets.GroupVersion(), errors.New("no answer"))
		f.settle()
		f.expect("child", "widgets.example.com ns/w")
	})
}

// An owner waits for a dependent of a kind that vanishes, and nobody says that the dependent is gone.
func TestB063_DependentsGoWithTheirKind(t *testing.T) {
	run(t, func(f *fixture) {
		owner := f.put("owner")
		f.server.Put(widgets, metav1.ObjectMeta{
			Namespace: "ns", Name: "w", Finalizers: []string{"example.com/f"}, OwnerReferences: []metav1.OwnerReference{
				{APIVersion: "v1", Kind: "ConfigMap", Name: owner.Name, UID: owner.UID, BlockOwnerDeletion: ptr.To(true)},
			},
		})
		f.settle()
		f.delete("owner", metav1.DeletePropagationForeground)
		f.settle()
		f.expect("owner", "widgets.example.com ns/w")
		f.server.RemoveResource(widgets)
		f.settle()
		f.expect()
	})
}

// TestB056_OrphaningFindsDependentsTheWatchHasNotShown makes a dependent whose watch event never
// comes.
func TestB056_OrphaningFindsDependentsTheWatchHasNotShown(t *testing.T) {
	start := func() *controllertest.Metadata {
		server := newServer()
		server.Before = func(request string) error {
			if strings.HasPrefix(request, "watch widgets") {
				return apierrors.NewServiceUnavailable("later")
			}
			return nil
		}
		return server
	}
	runOn(t, start, func(f *fixture) {
		owner := f.put("owner")
		f.settle()
		f.server.Before = func(request string) error {
			if strings.HasPrefix(request, "watch ") {
				return apierrors.NewServiceUnavailable("later")
			}
			return nil
		}
		f.server.Put(widgets, metav1.ObjectMeta{Namespace: "ns", Name: "unseen", OwnerReferences: []metav1.OwnerReference{
			{APIVersion: "v1", Kind: "ConfigMap", Name: "owner", UID: owner.UID},
		}})
		f.delete("owner", metav1.DeletePropagationOrphan)
		f.settle()
		f.expect("widgets.example.com ns/unseen")
		if refs := f.server.Object(widgets, "ns", "unseen").OwnerReferences; len(refs) != 0 {
			t.Errorf("the owner went before its dependent let go of it: %v", refs)
		}
	})
}

// TestB158_OwnerStaysWhileItsDependentsCannotBeListed has the dependent not be seen by its watch, and the list
// that would find it fail: it must not be taken for one that found nothing.
func TestB158_OwnerStaysWhileItsDependentsCannotBeListed(t *testing.T) {
	for policy, after := range map[metav1.DeletionPropagation][]string{
		metav1.DeletePropagationOrphan:     {"widgets.example.com ns/unseen"},
		metav1.DeletePropagationForeground: nil,
	} {
		for failure, answer := range map[string]error{
			"400":     apierrors.NewBadRequest("field label not supported"),
			"timeout": context.DeadlineExceeded,
		} {
			t.Run(string(policy)+"/"+failure, func(t *testing.T) {
				var failing atomic.Value // the verbs that fail now; reflectors ask at any time
				failing.Store([]string{"watch"})
				start := func() *controllertest.Metadata {
					server := newServer()
					server.Before = func(request string) error {
						verb, rest, _ := strings.Cut(request, " ")
						if strings.HasPrefix(rest, "widgets") && slices.Contains(failing.Load().([]string), verb) {
							return answer
						}
						return nil
					}
					return server
				}
				runOn(t, start, func(f *fixture) {
					owner := f.put("owner")
					f.settle()
					failing.Store([]string{"watch", "list"})
					f.server.Put(widgets, metav1.ObjectMeta{Namespace: "ns", Name: "unseen", OwnerReferences: []metav1.OwnerReference{
						{APIVersion: "v1", Kind: "ConfigMap", Name: "owner", UID: owner.UID, BlockOwnerDeletion: ptr.To(true)},
					}})
					f.delete("owner", policy)
					f.settle()
					f.settle()
					f.expect("owner", "widgets.example.com ns/unseen")
					failing.Store([]string(nil))
					f.settle()
					f.settle()
					f.expect(after...)
				})
			})
		}
	}
}

// TestOwnerThatIsNeverSeenIsAskedForAgain has a kind whose objects can be read but not listed.
func TestOwnerThatIsNeverSeenIsAskedForAgain(t *testing.T) {
	start := func() *controllertest.Metadata {
		server := newServer()
		server.Before = func(request string) error {
			if strings.HasPrefix(request, "list widgets") {
				return apierrors.NewServiceUnavailable("later")
			}
			return nil
		}
		return server
	}
	runOn(t, start, func(f *fixture) {
		owner := f.server.Put(widgets, metav1.ObjectMeta{Namespace: "ns", Name: "w"})
		f.server.Put(mapsGVR, metav1.ObjectMeta{Namespace: "ns", Name: "child", OwnerReferences: []metav1.OwnerReference{
			{APIVersion: "example.com/v1", Kind: "Widget", Name: "w", UID: owner.UID},
		}})
		f.settle()
		f.expect("child", "widgets.example.com ns/w")
		if err := f.server.Resource(widgets).Namespace("ns").Delete(context.Background(), "w", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		f.settle()
		f.settle()
		f.expect()
	})
}

func TestNamespacesAreKeptApart(t *testing.T) {
	run(t, func(f *fixture) {
		owner := f.put("owner")
		cluster := f.server.Put(clusters, metav1.ObjectMeta{Name: "c"})
		ref := metav1.OwnerReference{APIVersion: "v1", Kind: "ConfigMap", Name: "owner", UID: owner.UID}
		f.server.Put(mapsGVR, metav1.ObjectMeta{Namespace: "elsewhere", Name: "child", OwnerReferences: []metav1.OwnerReference{ref}})
		f.server.Put(mapsGVR, metav1.ObjectMeta{Namespace: "elsewhere", Name: "ok", OwnerReferences: []metav1.OwnerReference{
			{APIVersion: "example.com/v1", Kind: "Cluster", Name: "c", UID: cluster.UID},
		}})
		f.server.Put(clusters, metav1.ObjectMeta{Name: "wrongly-owned", OwnerReferences: []metav1.OwnerReference{ref}})
		f.settle()
		f.expect("owner", "clusters.example.com c", "clusters.example.com wrongly-owned", "configmaps elsewhere/ok")
	})
}

func TestNewKindsArePickedUp(t *testing.T) {
	run(t, func(f *fixture) {
		gadgets := schema.GroupVersionResource{Group: "new.example.com", Version: "v1", Resource: "gadgets"}
		owner := f.put("owner")
		f.settle()
		f.server.AddResource(controllertest.Resource{GroupVersionResource: gadgets, Kind: "Gadget", Namespaced: true})
		f.server.Put(gadgets, metav1.ObjectMeta{Namespace: "ns", Name: "g", OwnerReferences: []metav1.OwnerReference{
			{APIVersion: "v1", Kind: "ConfigMap", Name: "owner", UID: owner.UID},
		}})
		f.settle()
		f.delete("owner", metav1.DeletePropagationBackground)
		f.settle()
		f.expect()
	})
}

// TestDeletionsThatNoWatchShowsAreFound has a server without history: each watch is refused as too old.
func TestDeletionsThatNoWatchShowsAreFound(t *testing.T) {
	start := func() *controllertest.Metadata {
		server := newServer()
		server.Before = func(request string) error {
			if strings.HasPrefix(request, "watch ") {
				return apierrors.NewResourceExpired("too old")
			}
			return nil
		}
		return server
	}
	runOn(t, start, func(f *fixture) {
		owner := f.put("owner")
		f.put("child", owner)
		f.settle()
		f.expect("child", "owner")
		f.delete("owner", metav1.DeletePropagationBackground)
		f.settle()
		f.expect()
	})
}

func TestTenThousandDependents(t *testing.T) {
	run(t, func(f *fixture) {
		owner := f.put("owner")
		for i := range 10000 {
			f.put(fmt.Sprint("child", i), owner)
		}
		f.settle()
		f.delete("owner", metav1.DeletePropagationBackground)
		f.settle()
		f.expect()
		if n := len(f.server.Requests()); n != 10001 {
			t.Errorf("%d writes for 10000 dependents, want one each", n)
		}
	})
}
