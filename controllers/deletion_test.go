package controllers_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/setpoint-dev/setpoint/setpointtest"
)

// world is a control plane, and what a test does to it.
type world struct {
	*setpointtest.ControlPlane
	t *testing.T
}

func newWorld(t *testing.T, opts ...setpointtest.Option) *world {
	return &world{setpointtest.Start(t, append([]setpointtest.Option{setpointtest.Nodes(1)}, opts...)...), t}
}

func (w *world) do(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) create(objs ...client.Object) {
	w.t.Helper()
	for _, obj := range objs {
		w.do(w.Client.Create(w.t.Context(), obj))
	}
}

func (w *world) delete(obj client.Object, opts ...client.DeleteOption) {
	w.t.Helper()
	w.do(w.Client.Delete(w.t.Context(), obj, opts...))
}

func (w *world) patch(obj client.Object, patch string) {
	w.t.Helper()
	w.do(w.Client.Patch(w.t.Context(), obj, client.RawPatch("application/merge-patch+json", []byte(patch))))
}

// settle lets everything happen that happens in a while.
func (w *world) settle(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

// names are those of all Services, Deployments, ReplicaSets and Pods of the namespace default, without
// what was made up for them.
func (w *world) names() (all []string) {
	w.t.Helper()
	for kind, list := range map[string]client.ObjectList{
		"service": &corev1.ServiceList{}, "deployment": &appsv1.DeploymentList{}, "set": &appsv1.ReplicaSetList{}, "pod": &corev1.PodList{},
	} {
		w.do(w.Client.List(w.t.Context(), list, client.InNamespace("default")))
		for _, obj := range items(list) {
			if name, _, _ := strings.Cut(obj.GetName(), "-"); name != "kubernetes" {
				all = append(all, kind+" "+name)
			}
		}
	}
	slices.Sort(all)
	return all
}

func (w *world) expect(names ...string) {
	w.t.Helper()
	if diff := cmp.Diff(names, w.names()); diff != "" {
		w.t.Errorf("objects (-want +got):\n%s", diff)
	}
}

func items(list client.ObjectList) (all []client.Object) {
	switch list := list.(type) {
	case *corev1.ServiceList:
		for i := range list.Items {
			all = append(all, &list.Items[i])
		}
	case *appsv1.DeploymentList:
		for i := range list.Items {
			all = append(all, &list.Items[i])
		}
	case *appsv1.ReplicaSetList:
		for i := range list.Items {
			all = append(all, &list.Items[i])
		}
	case *corev1.PodList:
		for i := range list.Items {
			all = append(all, &list.Items[i])
		}
	}
	return all
}

// deleted returns what waits for the deletion of an object that is there now, and says at which revision it was.
func (w *world) deleted(list client.ObjectList, namespace, name string) (revision func() string) {
	w.t.Helper()
	ctx := w.t.Context()
	w.do(w.Client.List(ctx, list, client.InNamespace(namespace)))
	events, err := w.Client.Watch(ctx, list, client.InNamespace(namespace),
		&client.ListOptions{Raw: &metav1.ListOptions{ResourceVersion: list.GetResourceVersion()}})
	w.do(err)
	w.t.Cleanup(events.Stop)
	return func() string {
		w.t.Helper()
		for ev := range events.ResultChan() {
			if obj, ok := ev.Object.(client.Object); ok && ev.Type == watch.Deleted && obj.GetName() == name {
				return obj.GetResourceVersion()
			}
		}
		w.t.Fatalf("the watch ended before %s was deleted", name)
		return ""
	}
}

// podsAt are the pods of a namespace as of a revision, or now if it is empty.
func (w *world) podsAt(namespace, revision string) []corev1.Pod {
	w.t.Helper()
	opts := &client.ListOptions{Namespace: namespace}
	if revision != "" {
		opts.Raw = &metav1.ListOptions{ResourceVersion: revision, ResourceVersionMatch: metav1.ResourceVersionMatchExact}
	}
	var list corev1.PodList
	w.do(w.Client.List(w.t.Context(), &list, opts))
	return list.Items
}

// TestB051_HeldObjectGoesHoweverOftenItIsDeleted deletes an object that somebody holds twice, as the server
// and the collector of garbage have it together, and then lets go.
func TestB051_HeldObjectGoesHoweverOftenItIsDeleted(t *testing.T) {
	for _, policy := range []client.PropagationPolicy{"Foreground", "Orphan", "Background"} {
		t.Run(string(policy), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				held := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
					Namespace: "default", Name: "held", Finalizers: []string{"example.com/hold"},
				}}
				w.create(held)
				for range 2 {
					w.delete(held, policy)
					w.settle(time.Minute)
					w.do(w.Client.Get(t.Context(), client.ObjectKeyFromObject(held), held))
					if len(held.Finalizers) != 1 {
						t.Errorf("finalizers %v, want only the object's own", held.Finalizers)
					}
				}
				w.delete(held, policy) // and lets go before anybody has looked
				w.patch(held, `{"metadata":{"labels":{"l":"1"}}}`)
				w.do(w.Client.Get(t.Context(), client.ObjectKeyFromObject(held), held))
				held.Finalizers = slices.DeleteFunc(held.Finalizers, func(f string) bool { return f == "example.com/hold" })
				w.do(w.Client.Update(t.Context(), held))
				w.settle(10 * time.Second)
				w.AwaitGone(held)
			})
		})
	}
}

// TestB053_DeletionGoesDownAllLevels has a service own a deployment, which owns a set, which owns pods.
func TestB053_DeletionGoesDownAllLevels(t *testing.T) {
	for name, c := range map[string]struct {
		root string
		opts []client.DeleteOption
		left []string
	}{
		"the service":            {"service", nil, nil},
		"in the background":      {"service", []client.DeleteOption{client.PropagationPolicy("Background")}, nil},
		"in the foreground":      {"service", []client.DeleteOption{client.PropagationPolicy("Foreground")}, nil},
		"orphan the deployment":  {"service", []client.DeleteOption{client.PropagationPolicy("Orphan")}, []string{"deployment web", "pod web", "pod web", "set web"}},
		"orphan the replica set": {"deployment", []client.DeleteOption{client.PropagationPolicy("Orphan")}, []string{"pod web", "pod web", "service web", "set web"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				svc := &corev1.Service{
					ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"}, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}},
				}
				w.create(svc)
				d := web(2)
				d.OwnerReferences = []metav1.OwnerReference{{
					APIVersion: "v1", Kind: "Service", Name: svc.Name, UID: svc.UID, BlockOwnerDeletion: ptr.To(true),
				}}
				w.create(d)
				w.Await(d, "it runs", func() bool { return d.Status.ReadyReplicas == 2 })
				w.expect("deployment web", "pod web", "pod web", "service web", "set web")
				w.delete(map[string]client.Object{"service": svc, "deployment": d}[c.root], c.opts...)
				w.settle(5 * time.Minute)
				w.expect(c.left...)
			})
		})
	}
}

// TestB056_OrphansLive deletes sets and leaves their pods, whose controller sees what happens at once, or
// only when it is over: each pod is let go of before its owner is gone, and none is taken again.
func TestB056_OrphansLive(t *testing.T) {
	for _, blind := range []bool{false, true} {
		t.Run(fmt.Sprint("blind ", blind), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				const replicas, rounds = 20, 4
				faults := setpointtest.NewFaults(1)
				w := newWorld(t, setpointtest.Controllers("-replicaset"), setpointtest.Inject(faults))
				defer start(t, w.ControlPlane, trials()["replicaset"], nil)()
				for round := range rounds {
					set := replicaSet(replicas)
					w.create(set)
					w.Await(set, "its pods are ready", func() bool { return set.Status.ReadyReplicas == replicas })
					before := map[string]bool{}
					for _, pod := range pods(t, w.ControlPlane) {
						before[string(pod.UID)] = true
					}
					see := func() {}
					if blind {
						see = faults.FreezeWatches()
					}
					gone := w.deleted(&appsv1.ReplicaSetList{}, "default", set.Name)
					w.delete(set, client.PropagationPolicy("Orphan"))
					left := w.podsAt("default", gone())
					w.settle(time.Minute)
					see()
					w.settle(time.Minute)
					for when, pods := range map[string][]corev1.Pod{"as the set went": left, "later": pods(t, w.ControlPlane)} {
						if len(pods) != replicas {
							t.Fatalf("round %d: %d pods %s, want %d", round, len(pods), when, replicas)
						}
						for _, pod := range pods {
							if !before[string(pod.UID)] || pod.DeletionTimestamp != nil || len(pod.OwnerReferences) != 0 {
								t.Fatalf("round %d: pod %s %s: owners %v, deleted %v", round, pod.Name, when, pod.OwnerReferences, pod.DeletionTimestamp)
							}
						}
					}
					w.do(w.Client.DeleteAllOf(t.Context(), &corev1.Pod{}, client.InNamespace("default"), client.GracePeriodSeconds(0)))
				}
			})
		})
	}
}

// TestB058_DyingNamespaceIsLeftAlone has a namespace wait to end, while a deployment in it has lost its pods: its
// controllers do not try for ever to make them again, and who holds the namespace can let go.
func TestB058_DyingNamespaceIsLeftAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var tries atomic.Int64
		faults := setpointtest.NewFaults(1)
		faults.Add(setpointtest.Rule{Verbs: []string{"create"}, Effect: func(req *http.Request, next http.RoundTripper) (*http.Response, error) {
			if strings.Contains(req.URL.Path, "/namespaces/dying/") {
				tries.Add(1)
			}
			return next.RoundTrip(req)
		}})
		w := newWorld(t, setpointtest.Controllers("-replicaset"), setpointtest.Inject(faults))
		defer start(t, w.ControlPlane, trials()["replicaset"], nil)()
		ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "dying"}}
		hold := metav1.ObjectMeta{Namespace: "dying", Name: "web", Finalizers: []string{"example.com/hold"}}
		set := replicaSet(5)
		set.ObjectMeta = hold
		held := &corev1.Pod{ObjectMeta: hold, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}}}
		w.create(ns, set, held)
		w.Await(set, "its pods are ready", func() bool { return set.Status.ReadyReplicas == 5 })
		tries.Store(0)
		w.delete(ns)
		w.settle(10 * time.Minute)
		// The pods went, and all at once; the set is not yet being deleted, since one pod is still there.
		if left := w.podsAt("dying", ""); len(left) != 1 || left[0].Name != "web" {
			t.Errorf("%d pods are left, want the one that is held", len(left))
		}
		if n := tries.Load(); n > 50 {
			t.Errorf("%d pods and events were tried to be made in ten minutes, want no loop", n)
		}
		w.patch(held, `{"metadata":{"labels":{"l":"1"},"finalizers":null}}`)
		w.settle(time.Minute)
		w.patch(set, `{"metadata":{"finalizers":null}}`)
		w.AwaitGone(ns)
	})
}

// TestB060_NamespaceDeletedInTheForegroundEnds has the collector of garbage be late, or not.
func TestB060_NamespaceDeletedInTheForegroundEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		faults := setpointtest.NewFaults(1)
		w := newWorld(t, setpointtest.Controllers("-garbagecollector"), setpointtest.Inject(faults))
		defer start(t, w.ControlPlane, trials()["garbagecollector"], nil)()
		for round := range 8 {
			name := fmt.Sprint("ns-", round)
			ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
			d := web(2)
			d.Namespace = name
			w.create(ns, d)
			w.Await(d, "it runs", func() bool { return d.Status.ReadyReplicas == 2 })
			see := func() {}
			if round%2 == 1 {
				see = faults.FreezeWatches()
			}
			w.delete(ns, client.PropagationPolicy("Foreground"))
			w.settle(time.Duration(round%4) * 10 * time.Second)
			see()
			w.AwaitGone(ns)
		}
	})
}

// TestB061_PodsGoBeforeWhatGuardsThem deletes a namespace in which a job's pods are held until the job's controller
// has counted them, and one pod until a person lets go: what guards the pods outlives them all, and the
// controller can still do its part.
func TestB061_PodsGoBeforeWhatGuardsThem(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "going"}}
		j := lasting(36000)
		j.Namespace, j.Spec.Parallelism = "going", ptr.To[int32](3)
		guard := &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "going", Name: "guard"}}
		slow := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "going", Name: "slow", Finalizers: []string{"example.com/hold"}},
			Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}},
		}
		w.create(ns, j, guard, slow)
		w.Await(j, "it runs", func() bool { return ptr.Deref(j.Status.Ready, 0) == 3 })
		gone := w.deleted(&networkingv1.NetworkPolicyList{}, "going", "guard")
		w.delete(ns)
		w.settle(time.Minute)
		if left := w.podsAt("going", ""); len(left) != 1 || left[0].Name != "slow" {
			t.Errorf("%d pods are left after a minute, want the slow one", len(left))
		}
		for _, obj := range []client.Object{guard, &batchv1.Job{ObjectMeta: j.ObjectMeta}} {
			w.do(w.Client.Get(t.Context(), client.ObjectKeyFromObject(obj), obj))
			if obj.GetDeletionTimestamp() != nil {
				t.Errorf("%s is being deleted while a pod is still there", obj.GetName())
			}
		}
		w.do(w.Client.Get(t.Context(), client.ObjectKeyFromObject(ns), ns))
		if !slices.ContainsFunc(ns.Status.Conditions, func(c corev1.NamespaceCondition) bool {
			return c.Type == corev1.NamespaceFinalizersRemaining && strings.Contains(c.Message, "example.com/hold in 1 resource")
		}) {
			t.Errorf("the conditions do not name what holds it: %v", ns.Status.Conditions)
		}
		w.patch(slow, `{"metadata":{"finalizers":null}}`)
		if left := w.podsAt("going", gone()); len(left) != 0 {
			t.Errorf("the guard went before %d pods", len(left))
		}
		w.AwaitGone(ns)
	})
}
