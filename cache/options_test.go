package cache_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"
	crcache "sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/setpoint-dev/setpoint/cache"
	"github.com/setpoint-dev/setpoint/internal/tinyapi"
)

// counting counts requests for whole objects and for metadata.
func counting(whole, partial *int) func(*http.Request) (*http.Response, error) {
	var mu sync.Mutex
	return func(r *http.Request) (*http.Response, error) {
		mu.Lock()
		defer mu.Unlock()
		switch {
		case r.Method != http.MethodGet:
		case strings.Contains(r.Header.Get("Accept"), "as=PartialObjectMetadata"):
			*partial++
		default:
			*whole++
		}
		return nil, nil
	}
}

func in(namespace, name string, change ...func(*corev1.Pod)) *corev1.Pod {
	p := pod(name, change...)
	p.Namespace = namespace
	return p
}

func TestNamespacesLimitWhatIsHeld(t *testing.T) {
	opts := cache.Options{Options: crcache.Options{DefaultNamespaces: map[string]crcache.Config{"one": {}, "two": {}}}}
	inWorld(t, opts, func(w *world) {
		h := &teller{}
		w.create(in("one", "a"), in("other", "b"))
		w.listen(h)
		w.create(in("two", "c"), in("other", "d"))
		w.wantTold(h, "found a/", "added c/")
		w.wantNames([]string{"a", "c"})
		w.wantNames([]string{"c"}, client.InNamespace("two"))
		if lists := w.asked(); len(lists) != 2 {
			t.Errorf("asked for %q, want a list of each namespace", lists)
		}

		var p corev1.Pod
		err := w.cache.Get(w.Context(), types.NamespacedName{Namespace: "other", Name: "b"}, &p)
		if err == nil || apierrors.IsNotFound(err) || !strings.Contains(err.Error(), `"other"`) {
			t.Errorf("read of a namespace that is not held: %v", err)
		}
		if err := w.cache.List(w.Context(), &corev1.PodList{}, client.InNamespace("other")); err == nil {
			t.Error("a namespace that is not held was listed")
		}
		var node corev1.Node
		w.create(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}})
		if err := w.cache.Get(w.Context(), types.NamespacedName{Name: "n"}, &node); err != nil {
			t.Errorf("read of what is in no namespace: %v", err)
		}
		w.server.Hold("pods") // what is deleted unseen in one namespace is missed in no other
		w.delete(in("two", "c"))
		w.server.Compact()
		w.server.Break()
		w.server.Release("pods")
		w.pass(time.Minute)
		w.wantTold(h, "missed the deletion of c/")
	})
}

// TestWhatIsAskedFor has the options of controller-runtime that say what of a kind is held, and
// looks at the requests.
func TestWhatIsAskedFor(t *testing.T) {
	selector := labels.SelectorFromSet(labels.Set{"app": "web"})
	everything := crcache.Config{LabelSelector: labels.Everything()}
	for name, test := range map[string]struct {
		opts crcache.Options
		want []string
	}{
		"Default": {crcache.Options{DefaultLabelSelector: selector}, []string{"/api/v1/pods labelSelector=app%3Dweb"}},
		"ByObject": {crcache.Options{
			DefaultLabelSelector: selector,
			ByObject:             map[client.Object]crcache.ByObject{&corev1.Pod{}: {Label: labels.Everything(), Field: fields.OneTermEqualSelector("a", "b")}},
		}, []string{"/api/v1/pods fieldSelector=a%3Db"}},
		"ByNamespace": {crcache.Options{
			DefaultLabelSelector: selector,
			DefaultNamespaces:    map[string]crcache.Config{"x": everything, "y": {}},
		}, []string{"/api/v1/namespaces/x/pods", "/api/v1/namespaces/y/pods labelSelector=app%3Dweb"}},
		"AllOthers": {crcache.Options{
			DefaultNamespaces: map[string]crcache.Config{"x": {LabelSelector: selector}, crcache.AllNamespaces: {}},
		}, []string{"/api/v1/namespaces/x/pods labelSelector=app%3Dweb", "/api/v1/pods fieldSelector=metadata.namespace%21%3Dx"}},
		"AllAgain": {crcache.Options{
			DefaultNamespaces: map[string]crcache.Config{"x": {}},
			ByObject:          map[client.Object]crcache.ByObject{&corev1.Pod{}: {Namespaces: map[string]crcache.Config{}}},
		}, []string{"/api/v1/pods"}},
		"NamespaceByField": {crcache.Options{
			DefaultFieldSelector: fields.OneTermEqualSelector("metadata.namespace", "x"),
		}, []string{"/api/v1/namespaces/x/pods fieldSelector=metadata.namespace%3Dx"}},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, cache.Options{Options: test.opts}, func(w *world) {
				w.listen(&teller{})
				asked := map[string]bool{}
				for _, r := range w.asked() {
					path, query, _ := strings.Cut(strings.TrimPrefix(r, "GET "), "?")
					for _, param := range strings.Split(query, "&") {
						if strings.Contains(param, "Selector=") {
							path += " " + param
						}
					}
					asked[path] = true
				}
				want := map[string]bool{}
				for _, r := range test.want {
					want[r] = true
				}
				if diff := cmp.Diff(want, asked); diff != "" {
					t.Errorf("asked for (-want +got):\n%s", diff)
				}
			})
		})
	}
}

func TestOptionsThatCannotBeHonoured(t *testing.T) {
	server := tinyapi.New()
	for name, opts := range map[string]crcache.Options{
		"NewInformer": {NewInformer: toolscache.NewSharedIndexInformer},
		"Node has Namespaces": {ByObject: map[client.Object]crcache.ByObject{
			&corev1.Node{}: {Namespaces: map[string]crcache.Config{"x": {}}},
		}},
	} {
		opts.Mapper = server.Mapper()
		if _, err := cache.NewFunc(server.Config(), opts); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

func TestReaderFailsOnAMissingInformer(t *testing.T) {
	inWorld(t, cache.Options{Options: crcache.Options{ReaderFailOnMissingInformer: true}}, func(w *world) {
		var missing *crcache.ErrResourceNotCached
		err := w.cache.List(w.Context(), &corev1.PodList{})
		if !errors.As(err, &missing) || missing.GVK.Kind != "Pod" {
			t.Errorf("read of a kind without an informer: %v", err)
		}
		w.listen(&teller{})
		w.names()
	})
}

func TestTransformOfWhatIsRead(t *testing.T) {
	strip := func(obj any) (any, error) {
		if p, ok := obj.(*corev1.Pod); ok {
			p.Spec.NodeName = "stripped"
		}
		return obj, nil
	}
	inWorld(t, cache.Options{Options: crcache.Options{DefaultTransform: strip}}, func(w *world) {
		w.create(pod("a"))
		if p := w.get("typed", "a").(*corev1.Pod); p.Spec.NodeName != "stripped" {
			t.Errorf("read %v", p.Spec)
		}
	})
}

func TestSharedByDefaultWhereAskedFor(t *testing.T) {
	inWorld(t, cache.Options{Options: crcache.Options{DefaultUnsafeDisableDeepCopy: ptr.To(true)}}, func(w *world) {
		w.create(pod("a", labelled("v", "1")))
		w.get("typed", "a").GetLabels()["v"] = "2"
		if got := w.get("typed", "a").GetLabels()["v"]; got != "2" {
			t.Error("a read was copied")
		}
	})
}

func TestPeriodsByKind(t *testing.T) {
	opts := crcache.Options{
		SyncPeriod: ptr.To(time.Duration(0)),
		ByObject:   map[client.Object]crcache.ByObject{&corev1.Pod{}: {SyncPeriod: ptr.To(time.Hour)}},
	}
	inWorld(t, cache.Options{Options: opts}, func(w *world) {
		w.create(pod("a"))
		h := &teller{}
		w.listen(h)
		h.take()
		w.pass(50 * time.Minute)
		w.wantTold(h)
		w.pass(20 * time.Minute)
		w.wantTold(h, "updated a/ to a/")
	})
}

func TestWatchErrorsAreReported(t *testing.T) {
	var reported []string
	opts := crcache.Options{DefaultWatchErrorHandler: func(_ context.Context, r *toolscache.Reflector, err error) {
		reported = append(reported, r.TypeDescription()+": "+err.Error())
	}}
	inWorld(t, cache.Options{Options: opts}, func(w *world) {
		w.server.Fail(tinyapi.Faults{Before: func(r *http.Request) (*http.Response, error) {
			return tinyapi.Failure(403, "Forbidden"), nil
		}})
		if _, err := w.cache.GetInformer(w.Context(), &corev1.Pod{}, crcache.BlockUntilSynced(false)); err != nil {
			t.Fatal(err)
		}
		w.pass(time.Second)
		w.server.Fail(tinyapi.Faults{})
		w.pass(time.Minute)
		if len(reported) == 0 || !strings.Contains(reported[0], "Pod") {
			t.Errorf("reported %q", reported)
		}
	})
}

func TestWithoutBookmarks(t *testing.T) {
	inWorld(t, cache.Options{Options: crcache.Options{DefaultEnableWatchBookmarks: ptr.To(false)}}, func(w *world) {
		w.create(pod("a"))
		w.wantNames([]string{"a"})
		w.pass(4 * time.Minute) // silence is no reason to doubt the watch
		for _, r := range w.server.Requests() {
			if strings.Contains(r, "allowWatchBookmarks=true") || strings.Contains(r, "sendInitialEvents") {
				t.Errorf("asked for %s", r)
			}
		}
		w.create(pod("b"))
		w.wantNames([]string{"a", "b"})
	})
}

// A quiet kind is as new as the server says when somebody waits for that, not a minute later.
func TestWaitForAQuietKind(t *testing.T) {
	inWorld(t, cache.Options{Quiet: time.Hour}, func(w *world) {
		w.names()
		w.create(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "c"}})
		began := time.Now()
		if err := w.cache.WaitFor(w.Context(), &corev1.Pod{}, w.server.Revision()); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(began); took > 5*time.Second {
			t.Errorf("waited for %v", took)
		}
		w.pass(20 * time.Minute)
		if n := len(w.server.Requests()); n > 12 {
			t.Errorf("%d requests in twenty minutes in which nobody waits", n)
		}
	})
}

func TestIndexesOfEveryForm(t *testing.T) {
	inWorld(t, cache.Options{}, func(w *world) {
		w.create(pod("a", func(p *corev1.Pod) { p.Spec.NodeName = "n" }), pod("b", labelled("v", "1")))
		byNode := func(obj client.Object) []string { return []string{obj.(*corev1.Pod).Spec.NodeName} }
		byLabel := func(obj client.Object) []string { return []string{obj.(*metav1.PartialObjectMetadata).Labels["v"]} }
		for field, ix := range map[string]struct {
			of client.Object
			fn client.IndexerFunc
		}{"node": {&corev1.Pod{}, byNode}, "v": {as("metadata"), byLabel}} {
			if err := w.cache.IndexField(w.Context(), ix.of, field, ix.fn); err != nil {
				t.Fatal(err)
			}
			if err := w.cache.IndexField(w.Context(), ix.of, field, ix.fn); err == nil {
				t.Errorf("field %s was indexed twice", field)
			}
		}
		w.wantNames([]string{"a"}, client.MatchingFields{"node": "n"})
		w.wantNames([]string{"b"}, client.MatchingFields{"v": "1"})
		w.wantNames([]string{"b"}, client.MatchingFields{"v": "1", "node": ""})
		err := w.cache.List(w.Context(), &corev1.PodList{}, client.MatchingFields{"status.phase": "x"})
		if err == nil || !strings.Contains(err.Error(), "Index with name field:status.phase does not exist") {
			t.Errorf("list by a field without an index: %v", err)
		}
		differs := &client.ListOptions{FieldSelector: fields.OneTermNotEqualSelector("node", "n")}
		if err := w.cache.List(w.Context(), &corev1.PodList{}, differs); err == nil ||
			!strings.Contains(err.Error(), "non-exact field matches are not supported by the cache") {
			t.Errorf("list by inequality: %v", err)
		}
	})
}

func TestLimitedListSaysThatThereIsMore(t *testing.T) {
	inWorld(t, cache.Options{}, func(w *world) {
		w.create(pod("a"), pod("b"))
		var pods corev1.PodList
		for limit, more := range map[client.Limit]bool{1: true, 2: false} {
			if err := w.cache.List(w.Context(), &pods, limit); err != nil || (pods.Continue != "") != more {
				t.Errorf("limit %d: %d pods, continue %q, %v", limit, len(pods.Items), pods.Continue, err)
			}
		}
		if err := w.cache.List(w.Context(), &pods, client.Continue("x")); err == nil {
			t.Error("a continue token was taken")
		}
	})
}

func TestMetricsSayHowCurrentAKindIs(t *testing.T) {
	inWorld(t, cache.Options{}, func(w *world) {
		registry := prometheus.NewPedanticRegistry()
		registry.MustRegister(w.cache)
		w.create(pod("a"))
		w.names()
		w.server.Hold("pods")
		w.pass(30 * time.Second)
		families, err := registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		got := map[string]float64{}
		for _, f := range families {
			for _, m := range f.Metric {
				got[f.GetName()] = m.GetGauge().GetValue() + m.GetCounter().GetValue()
			}
		}
		delete(got, "setpoint_cache_packed_bytes")
		want := map[string]float64{
			"setpoint_cache_objects": 1, "setpoint_cache_decoded_objects": 1, "setpoint_cache_decodes_total": 1,
			"setpoint_cache_revision": 2, "setpoint_cache_revision_lag": 0, "setpoint_cache_age_seconds": 30,
			"setpoint_cache_lists_total": 1, "setpoint_cache_watches_total": 1, "setpoint_cache_failures_total": 0,
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("metrics (-want +got):\n%s", diff)
		}
	})
}
