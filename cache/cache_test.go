package cache_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"
	crcache "sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/setpoint-dev/setpoint/cache"
	"github.com/setpoint-dev/setpoint/internal/tinyapi"
)

// world is a server, a client that reads and writes it live, and a cache of it.
type world struct {
	*testing.T
	server *tinyapi.Server
	live   client.Client
	cache  *cache.Cache
	stop   func()
}

// inWorld runs a test in a bubble of its own time.
func inWorld(t *testing.T, opts cache.Options, test func(*world)) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{T: t, server: tinyapi.New()}
		opts.Mapper = w.server.Mapper()
		var err error
		if w.live, err = client.New(w.server.Config(), client.Options{Mapper: opts.Mapper}); err != nil {
			t.Fatal(err)
		}
		if w.cache, err = cache.New(w.server.Config(), opts); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			if err := w.cache.Start(ctx); err != nil {
				t.Error(err)
			}
		}()
		w.stop = func() { cancel(); <-ended }
		defer w.stop()
		synctest.Wait()
		test(w)
	})
}

// pass lets time pass, and everything that happens in it end.
func (w *world) pass(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

func pod(name string, change ...func(*corev1.Pod)) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}}
	for _, c := range change {
		c(p)
	}
	return p
}

func labelled(k, v string) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Labels = map[string]string{k: v} }
}

func (w *world) create(objs ...client.Object) {
	w.Helper()
	for _, obj := range objs {
		if err := w.live.Create(w.Context(), obj); err != nil {
			w.Fatal(err)
		}
	}
	synctest.Wait()
}

func (w *world) delete(obj client.Object) {
	w.Helper()
	if err := w.live.Delete(w.Context(), obj); err != nil {
		w.Fatal(err)
	}
	synctest.Wait()
}

func (w *world) update(obj client.Object) {
	w.Helper()
	if err := w.live.Update(w.Context(), obj); err != nil {
		w.Fatal(err)
	}
	synctest.Wait()
}

// names lists what the cache has of pods.
func (w *world) names(opts ...client.ListOption) []string {
	w.Helper()
	var pods corev1.PodList
	if err := w.cache.List(w.Context(), &pods, opts...); err != nil {
		w.Fatal(err)
	}
	var names []string
	for _, p := range pods.Items {
		names = append(names, p.Name)
	}
	return names
}

func (w *world) wantNames(want []string, opts ...client.ListOption) {
	w.Helper()
	if diff := cmp.Diff(want, w.names(opts...)); diff != "" {
		w.Errorf("pods in the cache (-want +got):\n%s", diff)
	}
}

// teller writes down what a handler is told.
type teller struct {
	mu   sync.Mutex
	told []string
	slow chan struct{} // if not nil, each call waits for it
}

func (h *teller) tell(format string, args ...any) {
	if h.slow != nil {
		<-h.slow
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.told = append(h.told, fmt.Sprintf(format, args...))
}

func (h *teller) take() []string {
	synctest.Wait()
	h.mu.Lock()
	defer h.mu.Unlock()
	told := h.told
	h.told = nil
	return told
}

func say(obj any) string {
	o := obj.(client.Object)
	return o.GetName() + "/" + o.GetLabels()["v"]
}

func (h *teller) OnAdd(obj any, initial bool) {
	if initial {
		h.tell("found %s", say(obj))
		return
	}
	h.tell("added %s", say(obj))
}
func (h *teller) OnUpdate(old, obj any) { h.tell("updated %s to %s", say(old), say(obj)) }
func (h *teller) OnDelete(obj any) {
	if t, ok := obj.(toolscache.DeletedFinalStateUnknown); ok {
		h.tell("missed the deletion of %s", say(t.Obj))
		return
	}
	h.tell("deleted %s", say(obj))
}

func (w *world) listen(h *teller) toolscache.ResourceEventHandlerRegistration {
	w.Helper()
	informer, err := w.cache.GetInformer(w.Context(), &corev1.Pod{})
	if err != nil {
		w.Fatal(err)
	}
	r, err := informer.AddEventHandler(h)
	if err != nil {
		w.Fatal(err)
	}
	return r
}

func (w *world) wantTold(h *teller, want ...string) {
	w.Helper()
	if diff := cmp.Diff(want, h.take()); diff != "" {
		w.Errorf("the handler was told (-want +got):\n%s", diff)
	}
}

func TestHandlersAreToldInOrder(t *testing.T) {
	for _, noWatchList := range []bool{false, true} {
		t.Run(fmt.Sprintf("NoWatchList=%v", noWatchList), func(t *testing.T) {
			inWorld(t, cache.Options{}, func(w *world) {
				w.server.Fail(tinyapi.Faults{NoWatchList: noWatchList})
				w.create(pod("a", labelled("v", "1")))
				h := &teller{}
				r := w.listen(h)
				w.wantTold(h, "found a/1")
				if !r.HasSynced() {
					w.Error("the handler has been told of the first list, and HasSynced is false")
				}
				b := pod("b", labelled("v", "1"))
				w.create(b)
				b.Labels["v"] = "2"
				w.update(b)
				w.delete(b)
				w.wantTold(h, "added b/1", "updated b/1 to b/2", "deleted b/2")
				w.wantNames([]string{"a"})
			})
		})
	}
}

func TestOneListAndWatchForAllReaders(t *testing.T) {
	inWorld(t, cache.Options{}, func(w *world) {
		w.listen(&teller{})
		w.listen(&teller{})
		w.names()
		w.names(client.InNamespace("default"))
		if got := w.server.Requests(); len(got) != 1 {
			w.Errorf("requests %q, want one", got)
		}
	})
}

func TestFieldsLimitWhatIsAskedFor(t *testing.T) {
	own := crcache.Options{ByObject: map[client.Object]crcache.ByObject{
		&corev1.Pod{}: {Field: fields.OneTermEqualSelector("spec.nodeName", "n")},
	}}
	for _, noWatchList := range []bool{false, true} {
		inWorld(t, cache.Options{Options: own}, func(w *world) {
			w.server.Fail(tinyapi.Faults{NoWatchList: noWatchList})
			w.listen(&teller{})
			for _, request := range w.server.Requests() {
				if !strings.Contains(request, "fieldSelector=spec.nodeName%3Dn") {
					w.Errorf("request %q has no selector", request)
				}
			}
		})
	}
}

func TestDeletionMissedWhileDisconnectedIsTold(t *testing.T) {
	inWorld(t, cache.Options{}, func(w *world) {
		h := &teller{}
		w.listen(h)
		a := pod("a", labelled("v", "1"))
		w.create(a, pod("b", labelled("v", "1")))
		h.take()
		w.server.Hold("pods")
		a.Labels["v"] = "2"
		w.update(a)
		w.delete(a)
		w.server.Compact()
		w.server.Break()
		w.server.Release("pods")
		w.wantNames([]string{"a", "b"}) // not yet known
		w.pass(time.Minute)
		w.wantTold(h, "missed the deletion of a/1")
		w.wantNames([]string{"b"})
	})
}

func TestB113_AnotherUIDIsADeletionAndAnAddition(t *testing.T) {
	inWorld(t, cache.Options{}, func(w *world) {
		h := &teller{}
		w.listen(h)
		a := pod("a", labelled("v", "1"))
		w.create(a)
		h.take()
		w.server.Hold("pods")
		w.delete(a)
		w.create(pod("a", labelled("v", "2")))
		w.server.Compact()
		w.server.Break()
		w.server.Release("pods")
		w.pass(time.Minute)
		w.wantTold(h, "missed the deletion of a/1", "added a/2")
	})
}

func TestBrokenWatchResumesWithoutAList(t *testing.T) {
	inWorld(t, cache.Options{}, func(w *world) {
		h := &teller{}
		w.listen(h)
		w.create(pod("a"))
		w.server.Break()
		w.create(pod("b"))
		w.pass(time.Minute)
		w.wantTold(h, "added a/", "added b/")
		for i, r := range w.server.Requests() {
			isList := strings.Contains(r, "sendInitialEvents") || r == "GET /api/v1/pods"
			if i > 0 && isList {
				w.Errorf("request %d is a list: %s", i, r)
			}
		}
	})
}

func TestB008_BookmarksKeepAQuietKindResumable(t *testing.T) {
	inWorld(t, cache.Options{}, func(w *world) {
		w.listen(&teller{})
		w.create(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "c"}})
		w.server.Bookmark()
		synctest.Wait()
		got, err := w.cache.Revision(&corev1.Pod{})
		if want := w.server.Revision(); got != want || err != nil {
			w.Errorf("revision of pods is %d, %v, want %d", got, err, want)
		}
	})
}

func TestB126_SilentWatchIsOpenedAgain(t *testing.T) {
	inWorld(t, cache.Options{Quiet: 40 * time.Second}, func(w *world) {
		w.names()
		w.server.Hold("pods") // nothing comes through on what is open
		w.create(pod("a"))
		w.server.Requests()
		w.pass(42 * time.Second)
		if n := len(w.server.Requests()); n != 1 {
			w.Errorf("%d requests after 42 s of silence, want 1", n)
		}
	})
}

func TestUnreachableServerIsAskedLessAndLess(t *testing.T) {
	inWorld(t, cache.Options{}, func(w *world) {
		w.names()
		w.server.Fail(tinyapi.Faults{Before: func(*http.Request) (*http.Response, error) {
			return tinyapi.Failure(503, "ServiceUnavailable"), nil
		}})
		w.server.Requests()
		w.server.Break()
		w.pass(10 * time.Minute)
		if n := len(w.server.Requests()); n < 20 || n > 60 {
			w.Errorf("%d requests in ten minutes, want between 20 and 60", n)
		}
		w.server.Fail(tinyapi.Faults{})
		w.create(pod("a"))
		w.pass(time.Minute)
		w.wantNames([]string{"a"})
	})
}

// Waits are spread by the randomness that the cache is given.
func TestWaitsFollowFromTheRandomness(t *testing.T) {
	for name, test := range map[string]struct {
		random       float64
		again, round time.Duration // the second time a server is asked that failed; a resync
	}{
		"least": {0, 50 * time.Millisecond, 9 * time.Hour},
		"half":  {0.5, 75 * time.Millisecond, 10 * time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, cache.Options{Random: func() float64 { return test.random }}, func(w *world) {
				w.create(pod("a"))
				var mu sync.Mutex
				var asked []time.Time
				w.server.Fail(tinyapi.Faults{Before: func(*http.Request) (*http.Response, error) {
					mu.Lock()
					defer mu.Unlock()
					if asked = append(asked, time.Now()); len(asked) < 3 {
						return tinyapi.Failure(503, "ServiceUnavailable"), nil
					}
					return nil, nil
				}})
				h := &teller{}
				w.listen(h)
				w.pass(time.Second)
				h.take()
				mu.Lock()
				if again := asked[1].Sub(asked[0]); again != test.again {
					t.Errorf("asked again after %v, want %v", again, test.again)
				}
				mu.Unlock()
				w.pass(test.round - 2*time.Second)
				w.wantTold(h)
				w.pass(2 * time.Second)
				w.wantTold(h, "updated a/ to a/")
			})
		})
	}
}

func TestResyncTellsOfEveryObject(t *testing.T) {
	inWorld(t, cache.Options{}, func(w *world) {
		w.create(pod("a"), pod("b"))
		h := &teller{}
		w.listen(h)
		h.take()
		w.pass(8 * time.Hour)
		w.wantTold(h)
		w.pass(3*time.Hour + time.Minute)
		w.wantTold(h, "updated a/ to a/", "updated b/ to b/")
	})
}

func TestSlowHandlerIsToldOfManyChangesAsOne(t *testing.T) {
	inWorld(t, cache.Options{}, func(w *world) {
		h := &teller{slow: make(chan struct{})}
		w.listen(h)
		a, b := pod("a", labelled("v", "0")), pod("b", labelled("v", "0"))
		w.create(a, b)
		for n := range 3000 {
			a.Labels["v"] = fmt.Sprint(n + 1)
			if err := w.live.Update(w.Context(), a); err != nil {
				w.Fatal(err)
			}
		}
		w.delete(b)
		close(h.slow)
		told := h.take()
		if len(told) > 2100 {
			w.Errorf("told %d times of 3003 changes to two objects", len(told))
		}
		if last := told[len(told)-1]; last != "deleted b/0" && last != "updated a/0 to a/3000" {
			w.Errorf("last told: %s", last)
		}
	})
}

func TestRemovedHandlerIsNotTold(t *testing.T) {
	inWorld(t, cache.Options{}, func(w *world) {
		h := &teller{}
		r := w.listen(h)
		informer, _ := w.cache.GetInformer(w.Context(), &corev1.Pod{})
		for range 2 {
			if err := informer.RemoveEventHandler(r); err != nil {
				w.Fatal(err)
			}
		}
		w.create(pod("a"))
		w.wantTold(h)
	})
}

func TestGetCopiesUnlessTold(t *testing.T) {
	inWorld(t, cache.Options{}, func(w *world) {
		w.create(pod("a", labelled("v", "1")))
		key := types.NamespacedName{Namespace: "default", Name: "a"}
		var p corev1.Pod
		if err := w.cache.Get(w.Context(), key, &p); err != nil {
			w.Fatal(err)
		}
		if p.Kind != "Pod" || p.APIVersion != "v1" {
			w.Errorf("read a %s of %s", p.Kind, p.APIVersion)
		}
		p.Labels["v"] = "mine"
		var again, shared corev1.Pod
		if err := w.cache.Get(w.Context(), key, &again); err != nil || again.Labels["v"] != "1" {
			w.Errorf("the cache holds %v, %v after a reader changed its copy", again.Labels, err)
		}
		if err := w.cache.Get(w.Context(), key, &shared, client.UnsafeDisableDeepCopy); err != nil {
			w.Fatal(err)
		}
		key.Name = "none"
		if err := w.cache.Get(w.Context(), key, &p); !apierrors.IsNotFound(err) {
			w.Errorf("Get of what is not there: %v", err)
		}
	})
}

func TestSelectors(t *testing.T) {
	inWorld(t, cache.Options{}, func(w *world) {
		owned := func(p *corev1.Pod) {
			p.OwnerReferences = []metav1.OwnerReference{{UID: "owner"}}
		}
		controlled := func(p *corev1.Pod) { p.OwnerReferences[0].Controller = ptr.To(true) }
		elsewhere := pod("d", labelled("app", "web"))
		elsewhere.Namespace = "other"
		w.create(pod("c", labelled("app", "web"), owned), pod("a", labelled("app", "web")),
			pod("b", labelled("app", "db"), owned, controlled), elsewhere)
		nodes := func(obj client.Object) []string { return []string{obj.(*corev1.Pod).Spec.NodeName} }
		if err := w.cache.IndexField(w.Context(), &corev1.Pod{}, "spec.nodeName", nodes); err != nil {
			w.Fatal(err)
		}
		w.wantNames([]string{"a", "b", "c", "d"})
		w.wantNames([]string{"a", "b", "c"}, client.InNamespace("default"))
		w.wantNames([]string{"a", "c"}, client.InNamespace("default"), client.MatchingLabels{"app": "web"})
		w.wantNames([]string{"b", "c"}, client.MatchingFields{cache.OwnerField: "owner"})
		w.wantNames([]string{"b"}, client.MatchingFields{cache.ControllerField: "owner"})
		w.wantNames([]string{"a", "c", "d"}, client.MatchingFields{cache.ControllerField: ""})
		w.wantNames([]string{"c"}, client.MatchingFields{cache.OwnerField: "owner"}, client.MatchingLabels{"app": "web"})
		w.wantNames([]string{"b"}, client.MatchingFields{"metadata.name": "b"})
		w.wantNames([]string{"a", "b"}, client.Limit(2))
		w.wantNames([]string{"b"}, client.HasLabels{"app"}, client.MatchingLabels{"app": "db"})

		var a corev1.Pod
		key := types.NamespacedName{Namespace: "default", Name: "a"}
		if err := w.live.Get(w.Context(), key, &a); err != nil {
			w.Fatal(err)
		}
		a.Labels["app"], a.Spec.NodeName = "db", "n1"
		w.update(&a)
		w.wantNames([]string{"a", "b"}, client.MatchingLabels{"app": "db"})
		w.wantNames([]string{"a"}, client.MatchingFields{"spec.nodeName": "n1"})
		w.delete(&a)
		w.wantNames([]string{"b"}, client.MatchingLabels{"app": "db"})

		var pods corev1.PodList
		err := w.cache.List(w.Context(), &pods, client.MatchingFields{"status.phase": "Running"})
		if err == nil {
			w.Error("a list by a field without an index was answered")
		}
	})
}

func TestFormsOfAKind(t *testing.T) {
	inWorld(t, cache.Options{}, func(w *world) {
		w.create(pod("a", labelled("v", "1")))
		gvk := corev1.SchemeGroupVersion.WithKind("Pod")
		tree, head := &unstructured.Unstructured{}, &metav1.PartialObjectMetadata{}
		for _, obj := range []client.Object{tree, head} {
			obj.GetObjectKind().SetGroupVersionKind(gvk)
			if err := w.cache.Get(w.Context(), types.NamespacedName{Namespace: "default", Name: "a"}, obj); err != nil {
				w.Fatalf("%T: %v", obj, err)
			}
			if obj.GetLabels()["v"] != "1" || obj.GetObjectKind().GroupVersionKind() != gvk {
				w.Errorf("%T: read %v", obj, obj)
			}
		}
	})
}

func TestWaitFor(t *testing.T) {
	inWorld(t, cache.Options{}, func(w *world) {
		w.names()
		w.server.Hold("pods")
		a := pod("a")
		w.create(a)
		ctx, cancel := context.WithTimeout(w.Context(), time.Second)
		defer cancel()
		rev := w.server.Revision()
		if err := w.cache.WaitFor(ctx, a, rev); err == nil {
			w.Error("WaitFor returned before the cache had the revision")
		}
		released := time.AfterFunc(time.Minute, func() { w.server.Release("pods") })
		defer released.Stop()
		if err := w.cache.WaitFor(w.Context(), a, rev); err != nil {
			w.Error(err)
		}
		w.wantNames([]string{"a"})
	})
}

func TestRemoveInformerStopsItsWatch(t *testing.T) {
	inWorld(t, cache.Options{}, func(w *world) {
		w.names()
		if err := w.cache.RemoveInformer(w.Context(), &corev1.Pod{}); err != nil {
			w.Fatal(err)
		}
		w.server.Requests()
		w.names()
		if n := len(w.server.Requests()); n != 1 {
			w.Errorf("%d requests to read a kind anew, want 1", n)
		}
	})
}
