package namespace_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/setpoint-dev/setpoint/controllers/controllertest"
	"github.com/setpoint-dev/setpoint/controllers/namespace"
)

var (
	podsGVR    = schema.GroupVersionResource{Version: "v1", Resource: "pods"}
	mapsGVR    = schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}
	secretsGVR = schema.GroupVersionResource{Version: "v1", Resource: "secrets"}
	deploysGVR = schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"}
	request    = reconcile.Request{NamespacedName: client.ObjectKey{Name: "ns"}}
)

type fixture struct {
	t      *testing.T
	client *controllertest.Client
	server *controllertest.Metadata
	r      *namespace.Reconciler
}

func newFixture(t *testing.T) *fixture {
	clock := controllertest.NewClock()
	ns := &corev1.Namespace{
		ObjectMeta: metav1.ObjectMeta{
			Name: "ns", DeletionTimestamp: &metav1.Time{Time: controllertest.Start}, Finalizers: []string{"keeps/the-fake-from-deleting"},
		},
		Spec: corev1.NamespaceSpec{Finalizers: []corev1.FinalizerName{"kubernetes", "other"}},
	}
	c := controllertest.NewClient(t, clock, nil, ns)
	server := controllertest.NewMetadata(
		controllertest.Resource{GroupVersionResource: podsGVR, Kind: "Pod", Namespaced: true},
		controllertest.Resource{GroupVersionResource: mapsGVR, Kind: "ConfigMap", Namespaced: true},
		controllertest.Resource{GroupVersionResource: secretsGVR, Kind: "Secret", Namespaced: true},
		controllertest.Resource{GroupVersionResource: deploysGVR, Kind: "Deployment", Namespaced: true},
		controllertest.Resource{GroupVersionResource: schema.GroupVersionResource{Version: "v1", Resource: "nodes"}, Kind: "Node"},
	)
	return &fixture{t, c, server, namespace.NewReconciler(c, server, server, clock)}
}

func (f *fixture) pass() (reconcile.Result, error) {
	return f.r.Reconcile(context.Background(), request)
}

func (f *fixture) conditions() map[string]string {
	f.t.Helper()
	ns := &corev1.Namespace{}
	if err := f.client.Get(context.Background(), request.NamespacedName, ns); err != nil {
		f.t.Fatal(err)
	}
	found := map[string]string{}
	for _, c := range ns.Status.Conditions {
		if c.Status == corev1.ConditionTrue {
			found[string(c.Type)] = c.Message
		}
	}
	return found
}

func (f *fixture) released() bool {
	return slices.ContainsFunc(f.client.Writes(), func(w string) bool { return strings.HasPrefix(w, "finalize ") })
}

func TestEverythingGoesAndThenTheNamespace(t *testing.T) {
	f := newFixture(t)
	for i := range 500 {
		f.server.Put([]schema.GroupVersionResource{podsGVR, mapsGVR, secretsGVR, deploysGVR}[i%4], metav1.ObjectMeta{Namespace: "ns", Name: fmt.Sprint("o", i)})
	}
	f.server.Put(mapsGVR, metav1.ObjectMeta{Namespace: "other", Name: "stays"})
	if _, err := f.pass(); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"configmaps other/stays"}, f.server.Names()); diff != "" {
		t.Errorf("left (-want +got):\n%s", diff)
	}
	if !f.released() {
		t.Error("an empty namespace is not let go")
	}
	if n := len(f.server.Requests()); n != 4 {
		t.Errorf("%d requests delete 500 objects of 4 kinds, want 4", n)
	}
}

func TestB061_PodsGoBeforeEverythingElse(t *testing.T) {
	f := newFixture(t)
	f.server.Put(podsGVR, metav1.ObjectMeta{Namespace: "ns", Name: "slow", Finalizers: []string{"example.com/ending"}})
	f.server.Put(mapsGVR, metav1.ObjectMeta{Namespace: "ns", Name: "config"})
	result, err := f.pass()
	if err != nil || result.RequeueAfter == 0 {
		t.Fatalf("pass: %v, %v; want to look again", result, err)
	}
	if got := f.server.Object(mapsGVR, "ns", "config"); got == nil || got.DeletionTimestamp != nil {
		t.Error("a ConfigMap was deleted while a pod was still there")
	}
	want := map[string]string{
		"NamespaceContentRemaining":    "Some resources are remaining: pods. has 1 resource instances",
		"NamespaceFinalizersRemaining": "Some content in the namespace has finalizers remaining: example.com/ending in 1 resource instances",
	}
	if diff := cmp.Diff(want, f.conditions()); diff != "" {
		t.Errorf("conditions that are true (-want +got):\n%s", diff)
	}
	f.client.Writes()
	if _, err := f.pass(); err != nil {
		t.Fatal(err)
	}
	if writes, requests := f.client.Writes(), f.server.Requests(); len(writes) != 0 || len(requests) != 1 {
		t.Errorf("while nothing changes a pass writes %v, and %v were deleted in all", writes, requests)
	}
}

func TestB060_ForegroundDeletionInADyingNamespaceEnds(t *testing.T) {
	f := newFixture(t)
	f.server.Put(mapsGVR, metav1.ObjectMeta{
		Namespace: "ns", Name: "waits", Finalizers: []string{metav1.FinalizerDeleteDependents}, DeletionTimestamp: &metav1.Time{Time: controllertest.Start},
	})
	if result, err := f.pass(); err != nil || result.RequeueAfter == 0 || f.released() {
		t.Errorf("with an object waiting for its dependents: %v, %v; want to look again", result, err)
	}
}

func TestDiscoveryFailureKeepsTheNamespace(t *testing.T) {
	f := newFixture(t)
	f.server.Put(mapsGVR, metav1.ObjectMeta{Namespace: "ns", Name: "config"})
	f.server.FailDiscovery(schema.GroupVersion{Group: "apps", Version: "v1"}, errors.New("no answer"))
	if _, err := f.pass(); err == nil {
		t.Error("a pass that did not discover everything reports no error")
	}
	if f.released() {
		t.Error("the namespace was let go though a group was not discovered")
	}
	if names := f.server.Names(); len(names) != 0 {
		t.Errorf("%v is left though its kind was discovered", names)
	}
	if message := f.conditions()["NamespaceDeletionDiscoveryFailure"]; !strings.Contains(message, "no answer") {
		t.Errorf("the condition says %q", message)
	}
	f.server.FailDiscovery(schema.GroupVersion{}, nil)
	if _, err := f.pass(); err != nil || !f.released() {
		t.Errorf("after discovery works again the namespace is not let go; error %v", err)
	}
	if left := f.conditions(); len(left) != 0 {
		t.Errorf("conditions that are still true: %v", left)
	}
}

func TestDeletionFailureKeepsTheNamespace(t *testing.T) {
	f := newFixture(t)
	f.server.Put(mapsGVR, metav1.ObjectMeta{Namespace: "ns", Name: "config"})
	f.server.Before = func(request string) error {
		if strings.HasPrefix(request, "deletecollection configmaps") {
			return errors.New("not today")
		}
		return nil
	}
	if _, err := f.pass(); err == nil || f.released() {
		t.Errorf("error %v; want one, and the namespace kept", err)
	}
	if message := f.conditions()["NamespaceDeletionContentFailure"]; !strings.Contains(message, "not today") {
		t.Errorf("the condition says %q", message)
	}
}

// A kind may go while its objects are being deleted, and they with it. Nothing is left of it then, and
// nothing has failed.
func TestB063_AKindThatVanishesHasNoObjects(t *testing.T) {
	for _, when := range []string{"list secrets", "deletecollection secrets"} {
		t.Run(when, func(t *testing.T) {
			f := newFixture(t)
			f.server.Put(secretsGVR, metav1.ObjectMeta{Namespace: "ns", Name: "held", Finalizers: []string{"example.com/f"}})
			f.server.Put(mapsGVR, metav1.ObjectMeta{Namespace: "ns", Name: "config"})
			f.server.Before = func(request string) error {
				if strings.HasPrefix(request, when) { // discovery has listed it
					f.server.RemoveResource(secretsGVR)
				}
				return nil
			}
			if _, err := f.pass(); err != nil || !f.released() {
				t.Errorf("error %v; want none, and the namespace let go", err)
			}
			if left := f.conditions(); len(left) != 0 {
				t.Errorf("conditions that are true: %v", left)
			}
		})
	}
}

func TestOtherFinalizersStay(t *testing.T) {
	f := newFixture(t)
	var left []corev1.FinalizerName
	f.client.Before = func(verb string, o client.Object) error {
		if verb == "finalize" {
			left = o.(*corev1.Namespace).Spec.Finalizers
		}
		return nil
	}
	if _, err := f.pass(); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]corev1.FinalizerName{"other"}, left); diff != "" {
		t.Errorf("finalizers that are left (-want +got):\n%s", diff)
	}
}

func TestLookAgainIsBounded(t *testing.T) {
	for deleting, want := range map[time.Duration]time.Duration{0: 100 * time.Millisecond, 8 * time.Second: 2 * time.Second, time.Hour: 10 * time.Second} {
		if got := namespace.LookAgain(deleting); got != want {
			t.Errorf("after %v, look again in %v, want %v", deleting, got, want)
		}
	}
}
