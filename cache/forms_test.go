package cache_test

import (
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	crcache "sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/setpoint-dev/setpoint/cache"
	"github.com/setpoint-dev/setpoint/internal/tinyapi"
)

// as returns an empty object of pods in each form.
func as(form string) client.Object {
	switch form {
	case "metadata":
		o := &metav1.PartialObjectMetadata{}
		o.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Pod"))
		return o
	case "unstructured":
		o := &unstructured.Unstructured{}
		o.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Pod"))
		return o
	}
	return &corev1.Pod{}
}

func (w *world) get(form, name string) client.Object {
	w.Helper()
	obj := as(form)
	if err := w.cache.Get(w.Context(), types.NamespacedName{Namespace: "default", Name: name}, obj); err != nil {
		w.Fatalf("%s: %v", form, err)
	}
	return obj
}

// asked returns the lists that the server was asked for, by a watch that begins with one or not.
func (w *world) asked() (lists []string) {
	for _, r := range w.server.Requests() {
		if strings.Contains(r, "sendInitialEvents") || strings.HasPrefix(r, "GET") && !strings.Contains(r, "watch=true") {
			lists = append(lists, r)
		}
	}
	return lists
}

func TestAllFormsShareOneListAndWatch(t *testing.T) {
	inWorld(t, cache.Options{}, func(w *world) {
		w.create(pod("a", labelled("v", "1")))
		w.server.Requests()
		for _, form := range []string{"typed", "unstructured", "metadata"} {
			obj := w.get(form, "a")
			if obj.GetLabels()["v"] != "1" || obj.GetObjectKind().GroupVersionKind().Kind != "Pod" {
				t.Errorf("%s: read %v", form, obj)
			}
		}
		if lists := w.asked(); len(lists) != 1 {
			t.Errorf("asked for %q, want one list", lists)
		}
	})
}

func TestMetadataAloneIsAskedForUntilMoreIsWanted(t *testing.T) {
	for _, noWatchList := range []bool{false, true} {
		var whole, partial int
		inWorld(t, cache.Options{}, func(w *world) {
			w.server.Fail(tinyapi.Faults{NoWatchList: noWatchList, Before: counting(&whole, &partial)})
			p := pod("a", labelled("v", "1"))
			p.Spec.NodeName = "n"
			w.create(p)
			informer, err := w.cache.GetInformer(w.Context(), as("metadata"))
			if err != nil {
				t.Fatal(err)
			}
			h := &teller{}
			if _, err := informer.AddEventHandler(h); err != nil {
				t.Fatal(err)
			}
			w.wantTold(h, "found a/1")
			if whole > 0 || partial == 0 {
				t.Errorf("asked %d times for metadata and %d times for more", partial, whole)
			}

			began := time.Now()
			if got := w.get("typed", "a").(*corev1.Pod); got.Spec.NodeName != "n" {
				t.Errorf("read a pod of node %q", got.Spec.NodeName)
			}
			if took := time.Since(began); took > time.Second {
				t.Errorf("waited %v for more than metadata", took)
			}
			partial = 0
			w.wantTold(h) // nothing has changed
			p.Labels["v"] = "2"
			w.update(p)
			w.wantTold(h, "updated a/1 to a/2")
			w.delete(p)
			w.wantTold(h, "deleted a/2")
			if whole == 0 || partial > 0 {
				t.Errorf("asked %d times for more, and %d times for metadata besides", whole, partial)
			}
		})
	}
}

// The last state of what was deleted unseen is told in the form of who is told.
func TestFormsOfWhatIsTold(t *testing.T) {
	inWorld(t, cache.Options{}, func(w *world) {
		tellers := map[string]*teller{}
		for _, form := range []string{"typed", "unstructured", "metadata"} {
			informer, err := w.cache.GetInformer(w.Context(), as(form))
			if err != nil {
				t.Fatal(err)
			}
			tellers[form] = &teller{}
			if _, err := informer.AddEventHandler(tellers[form]); err != nil {
				t.Fatal(err)
			}
		}
		a := pod("a", labelled("v", "1"))
		w.create(a)
		w.server.Hold("pods")
		w.delete(a)
		w.server.Compact()
		w.server.Break()
		w.server.Release("pods")
		w.pass(time.Minute)
		for _, h := range tellers {
			w.wantTold(h, "added a/1", "missed the deletion of a/1")
		}
	})
}

func TestObjectThatCannotBeDecodedHidesNoOther(t *testing.T) {
	inWorld(t, cache.Options{}, func(w *world) {
		h := &teller{}
		w.listen(h)
		broken := as("unstructured").(*unstructured.Unstructured)
		broken.SetNamespace("default")
		broken.SetName("broken")
		broken.Object["spec"] = map[string]any{"nodeName": int64(7)}
		w.create(broken, pod("whole", labelled("v", "1")))
		w.wantTold(h, "added whole/1")
		err := w.cache.Get(w.Context(), types.NamespacedName{Namespace: "default", Name: "broken"}, &corev1.Pod{})
		if err == nil || !strings.Contains(err.Error(), "default/broken") {
			t.Errorf("read of what is no pod: %v", err)
		}
		w.get("typed", "whole")
		w.get("unstructured", "broken")
	})
}

func TestReadersShareOneDecodedObject(t *testing.T) {
	inWorld(t, cache.Options{}, func(w *world) {
		w.create(pod("a", labelled("v", "1")))
		key := types.NamespacedName{Namespace: "default", Name: "a"}
		var one, two corev1.Pod
		for _, p := range []*corev1.Pod{&one, &two} {
			if err := w.cache.Get(w.Context(), key, p, client.UnsafeDisableDeepCopy); err != nil {
				t.Fatal(err)
			}
		}
		one.Labels["v"] = "changed" // to see that it is one map
		if two.Labels["v"] != "changed" {
			t.Error("an object was decoded twice")
		}
		// What nobody has read for long enough is decoded anew, from what the server sent.
		w.pass(time.Hour)
		runtime.GC()
		if err := w.cache.Get(w.Context(), key, &two, client.UnsafeDisableDeepCopy); err != nil || two.Labels["v"] != "1" {
			t.Errorf("read labels %v, %v", two.Labels, err)
		}
	})
}

// withEnv gives a pod what pods of one template have.
func withEnv(p *corev1.Pod) {
	p.Spec.Containers = []corev1.Container{{Name: "c", Env: []corev1.EnvVar{{Name: "A", Value: "what all have"}}}}
}

func (w *world) envOf(name string) *corev1.EnvVar {
	w.Helper()
	var p corev1.Pod
	key := types.NamespacedName{Namespace: "default", Name: name}
	if err := w.cache.Get(w.Context(), key, &p, client.UnsafeDisableDeepCopy); err != nil {
		w.Fatal(err)
	}
	return &p.Spec.Containers[0].Env[0]
}

// What objects have in common is held once, if nobody may change it.
func TestObjectsShareParts(t *testing.T) {
	untouched := func(obj any) (any, error) { return obj, nil }
	for name, c := range map[string]struct {
		opts  cache.Options
		share bool
	}{
		"usually":          {cache.Options{}, true},
		"transformed":      {cache.Options{Options: crcache.Options{DefaultTransform: untouched}}, false},
		"mutations sought": {cache.Options{DetectMutations: true}, false},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, c.opts, func(w *world) {
				w.create(pod("a", withEnv), pod("b", withEnv))
				if got := w.envOf("a") == w.envOf("b"); got != c.share {
					t.Errorf("held once: %v, want %v", got, c.share)
				}
			})
		})
	}
}

// What no object of late had is not kept for those to come.
func TestPartsAreNotKeptForever(t *testing.T) {
	inWorld(t, cache.Options{}, func(w *world) {
		w.create(pod("a", withEnv))
		before := w.envOf("a")
		w.pass(time.Hour)
		runtime.GC()
		if w.envOf("a") == before {
			t.Error("a part was kept that nobody had read for an hour")
		}
	})
}

func TestMutationOfASharedObjectIsDetected(t *testing.T) {
	inWorld(t, cache.Options{DetectMutations: true}, func(w *world) {
		a := pod("a", labelled("v", "1"))
		w.create(a)
		var p corev1.Pod
		key := types.NamespacedName{Namespace: "default", Name: "a"}
		for range 2 {
			if err := w.cache.Get(w.Context(), key, &p, client.UnsafeDisableDeepCopy); err != nil {
				t.Fatal(err)
			}
		}
		p.Labels["v"] = "changed"
		defer func() {
			p.Labels["v"] = "1" // or the end of the cache finds it too
			if found, _ := recover().(string); !strings.Contains(found, "Pod default/a") || !strings.Contains(found, "changed") {
				t.Errorf("found %q", found)
			}
		}()
		_ = w.cache.Get(w.Context(), key, &p)
	})
}

func TestRemovedInformerLeavesOtherForms(t *testing.T) {
	inWorld(t, cache.Options{}, func(w *world) {
		typed, loose := &teller{}, &teller{}
		w.listen(typed)
		informer, err := w.cache.GetInformer(w.Context(), as("unstructured"))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := informer.AddEventHandler(loose); err != nil {
			t.Fatal(err)
		}
		if err := w.cache.RemoveInformer(w.Context(), &corev1.Pod{}); err != nil {
			t.Fatal(err)
		}
		w.create(pod("a"))
		w.wantTold(typed)
		w.wantTold(loose, "added a/")
		w.server.Requests()
		w.names() // makes the typed informer anew, out of what is held
		if r := w.server.Requests(); len(r) > 0 {
			t.Errorf("asked for %q", r)
		}
		synctest.Wait()
	})
}
