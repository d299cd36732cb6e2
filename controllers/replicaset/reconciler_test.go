package replicaset_test

import (
	"context"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/setpoint-dev/setpoint/controllers/controllertest"
	"github.com/setpoint-dev/setpoint/controllers/replicaset"
)

var request = reconcile.Request{NamespacedName: client.ObjectKey{Namespace: "ns", Name: "web"}}

func setup(t *testing.T, objects ...client.Object) (*controllertest.Client, *replicaset.Reconciler) {
	t.Helper()
	clock := controllertest.NewClock()
	c := controllertest.NewClient(t, clock, nil, objects...)
	return c, replicaset.NewReconciler(c, c, clock, events.NewFakeRecorder(1000))
}

func pods(t *testing.T, c client.Reader) []corev1.Pod {
	t.Helper()
	var list corev1.PodList
	if err := c.List(context.Background(), &list, client.InNamespace("ns")); err != nil {
		t.Fatal(err)
	}
	return list.Items
}

func pass(t *testing.T, r *replicaset.Reconciler) reconcile.Result {
	t.Helper()
	result, err := r.Reconcile(context.Background(), request)
	if err != nil {
		t.Fatalf("pass: %v", err)
	}
	return result
}

func TestReconcileCreatesWhatIsMissingAndThenRests(t *testing.T) {
	c, r := setup(t, newSet(5))
	pass(t, r)
	made := pods(t, c)
	if len(made) != 5 {
		t.Fatalf("%d pods, want 5", len(made))
	}
	for _, pod := range made {
		ref := metav1.GetControllerOf(&pod)
		if ref == nil || ref.UID != "set" || !strings.HasPrefix(pod.Name, "web-") || pod.Labels["app"] != "web" {
			t.Errorf("pod %s: controller %v, labels %v", pod.Name, ref, pod.Labels)
		}
	}
	pass(t, r)
	c.Writes()
	pass(t, r)
	if writes := c.Writes(); len(writes) != 0 {
		t.Errorf("a pass over a converged set writes %v", writes)
	}
}

func TestReconcileScalesDownToNone(t *testing.T) {
	c, r := setup(t, newSet(0), newPod("a"), newPod("b"))
	pass(t, r)
	if left := pods(t, c); len(left) != 0 {
		t.Errorf("%d pods are left, want none", len(left))
	}
}

func TestReconcileAdoptsAndReleases(t *testing.T) {
	orphan := newPod("orphan", func(p *corev1.Pod) { p.OwnerReferences = nil })
	strayed := newPod("strayed", func(p *corev1.Pod) { p.Labels = map[string]string{"app": "other"} })
	c, r := setup(t, newSet(1), orphan, strayed)
	pass(t, r)
	owners := map[string]bool{}
	for _, pod := range pods(t, c) {
		owners[pod.Name] = metav1.GetControllerOf(&pod) != nil
	}
	if diff := cmp.Diff(map[string]bool{"orphan": true, "strayed": false}, owners); diff != "" {
		t.Errorf("who has a controller (-want +got):\n%s", diff)
	}
}

// TestB056_NoAdoptionWhenTheServerSaysDeleting has the cache still show the set as alive.
func TestB056_NoAdoptionWhenTheServerSaysDeleting(t *testing.T) {
	orphan := newPod("orphan", func(p *corev1.Pod) { p.OwnerReferences = nil })
	cached, _ := setup(t, newSet(1), orphan)
	dying := newSet(1)
	dying.DeletionTimestamp, dying.Finalizers = ptr.To(metav1.NewTime(start)), []string{metav1.FinalizerOrphanDependents}
	live, _ := setup(t, dying)
	r := replicaset.NewReconciler(cached, live, controllertest.NewClock(), events.NewFakeRecorder(10))
	if _, err := r.Reconcile(context.Background(), request); err == nil || !strings.Contains(err.Error(), "is being deleted") {
		t.Errorf("error %v, want one that says the set is being deleted", err)
	}
	if writes := cached.Writes(); len(writes) != 0 {
		t.Errorf("wrote %v, want nothing", writes)
	}
}

func TestB058_TerminatingNamespaceIsNotAFailure(t *testing.T) {
	c, r := setup(t, newSet(3))
	var tries atomic.Int32
	c.Before = func(verb string, _ client.Object) error {
		if verb != "create" {
			return nil
		}
		tries.Add(1)
		return controllertest.NamespaceTerminating("ns")
	}
	if result := pass(t, r); result.RequeueAfter != 0 {
		t.Errorf("the set is to be looked at again in %v, want not at all", result.RequeueAfter)
	}
	if tries.Load() != 1 {
		t.Errorf("%d creates tried, want 1", tries.Load())
	}
}

// lagging reads pods as they were when it was made.
type lagging struct {
	client.Client
	then []corev1.Pod
}

func (l lagging) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	if pods, ok := list.(*corev1.PodList); ok {
		pods.Items = slices.Clone(l.then)
		return nil
	}
	return l.Client.List(ctx, list, opts...)
}

// TestB065_TimedOutCreatesAreNeitherLostNorRepeated has every third create time out, half of those
// after the pod was stored, while the cache shows no pod at all.
func TestB065_TimedOutCreatesAreNeitherLostNorRepeated(t *testing.T) {
	clock := controllertest.NewClock()
	c := controllertest.NewClient(t, clock, nil, newSet(8))
	var n atomic.Int32
	timeout := apierrors.NewTimeoutError("the answer did not come", 1)
	c.Before = func(verb string, _ client.Object) error {
		if verb == "create" && n.Add(1)%6 == 3 {
			return timeout
		}
		return nil
	}
	c.After = func(verb string, _ client.Object) error {
		if verb == "create" && n.Load()%6 == 0 {
			return timeout
		}
		return nil
	}
	r := replicaset.NewReconciler(lagging{Client: c}, c, clock, events.NewFakeRecorder(1000))
	failures := 0
	for range 20 {
		_, err := r.Reconcile(context.Background(), request)
		if err == nil {
			break
		}
		failures++
		if !apierrors.IsTimeout(err) && !strings.Contains(err.Error(), "did not come") {
			t.Fatalf("pass: %v", err)
		}
	}
	if failures == 0 {
		t.Fatal("no create timed out: the test shows nothing")
	}
	if got := len(pods(t, c)); got != 8 {
		t.Errorf("%d pods, want exactly 8", got)
	}
}

func TestDeleteSparesANamesake(t *testing.T) {
	c, r := setup(t, newSet(0), newPod("a"))
	c.Before = func(verb string, o client.Object) error {
		if verb == "delete" {
			return apierrors.NewConflict(corev1.Resource("pods"), o.GetName(), nil)
		}
		return nil
	}
	pass(t, r)
}

func TestFailureIsReportedAndRetried(t *testing.T) {
	c, r := setup(t, newSet(4))
	c.Before = func(verb string, o client.Object) error {
		if verb == "create" {
			return apierrors.NewForbidden(corev1.Resource("pods"), "", nil)
		}
		return nil
	}
	if _, err := r.Reconcile(context.Background(), request); err == nil {
		t.Error("a pass that could not create reports no error")
	}
	set := &appsv1.ReplicaSet{}
	if err := c.Get(context.Background(), request.NamespacedName, set); err != nil {
		t.Fatal(err)
	}
	if len(set.Status.Conditions) != 1 || set.Status.Conditions[0].Reason != "FailedCreate" {
		t.Errorf("conditions %v, want ReplicaFailure with reason FailedCreate", set.Status.Conditions)
	}
}

func TestWaitIsTheResult(t *testing.T) {
	set := newSet(1)
	set.Spec.MinReadySeconds = 30
	_, r := setup(t, set, newPod("a", ready(10*time.Second)))
	if result := pass(t, r); result.RequeueAfter != 20*time.Second {
		t.Errorf("RequeueAfter %v, want 20s", result.RequeueAfter)
	}
}
