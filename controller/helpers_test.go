package controller_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	applycorev1 "k8s.io/client-go/applyconfigurations/core/v1"
	cr "sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/setpoint-dev/setpoint/controller"
	"github.com/setpoint-dev/setpoint/setpointtest"
)

func ExampleName() {
	name := controller.Name("web", "5d1c3e0a-uid-of-the-owner", "primary")
	fmt.Println(name, name == controller.Name("web", "5d1c3e0a-uid-of-the-owner", "primary"))
	fmt.Println(len(controller.Name(strings.Repeat("long-", 30))))
	fmt.Println(controller.Name("web", "ab", "c") == controller.Name("web", "a", "bc"))
	// Output:
	// web-2gwdbx6f7a true
	// 63
	// false
}

func ExampleSetCondition() {
	var conditions []metav1.Condition
	db := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Generation: 1}}
	now := time.Date(2030, 1, 1, 12, 0, 0, 0, time.UTC)
	ready := metav1.Condition{Type: "Ready", Status: metav1.ConditionTrue, Reason: "Running"}
	fmt.Println(controller.SetCondition(&conditions, db, now, ready))
	fmt.Println(controller.SetCondition(&conditions, db, now.Add(time.Hour), ready)) // says nothing new
	db.Generation = 2                                                                // somebody asks for something else
	fmt.Println(controller.IsCurrent(conditions, db, "Ready"))
	fmt.Println(controller.SetCondition(&conditions, db, now.Add(time.Hour), ready))
	fmt.Println(controller.IsCurrent(conditions, db, "Ready"), conditions[0].LastTransitionTime.UTC().Hour())
	// Output:
	// true
	// false
	// false
	// true
	// true 12
}

// counted is a client that counts what it asks of the server.
type counted struct {
	cr.Client
	asked []string
}

func (c *counted) Apply(ctx context.Context, obj runtime.ApplyConfiguration, opts ...cr.ApplyOption) error {
	c.asked = append(c.asked, "apply")
	return c.Client.Apply(ctx, obj, opts...)
}

func (c *counted) Patch(ctx context.Context, obj cr.Object, patch cr.Patch, opts ...cr.PatchOption) error {
	c.asked = append(c.asked, "patch")
	return c.Client.Patch(ctx, obj, patch, opts...)
}

// TestApplyOwnsWhatItSays creates, repeats, changes and takes back.
func TestApplyOwnsWhatItSays(t *testing.T) {
	cp := setpointtest.Start(t, setpointtest.Controllers("none"))
	c := &counted{Client: cp.Client}
	intent := func(data map[string]string, finalizers ...string) *corev1.ConfigMap {
		return &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "shared", Finalizers: finalizers}, Data: data,
		}
	}
	apply := func(owner string, obj cr.Object, wantChanged bool, wantAsked int) {
		t.Helper()
		c.asked = nil
		changed, err := controller.Apply(t.Context(), c, obj, cr.FieldOwner(owner))
		if err != nil || changed != wantChanged || len(c.asked) != wantAsked {
			t.Errorf("Apply() = %v, %v after %d requests, want %v after %d", changed, err, len(c.asked), wantChanged, wantAsked)
		}
	}
	apply("me", intent(map[string]string{"a": "1", "b": "1"}, "example.dev/mine"), true, 1)
	apply("me", intent(map[string]string{"a": "1", "b": "1"}, "example.dev/mine"), false, 0)
	apply("you", intent(map[string]string{"c": "1"}, "example.dev/yours"), true, 1)
	got := intent(map[string]string{"a": "2"}, "example.dev/mine")
	apply("me", got, true, 1)
	if diff := cmp.Diff(map[string]string{"a": "2", "c": "1"}, got.Data); diff != "" {
		t.Errorf("data (-want +got):\n%s", diff)
	}
	slices.Sort(got.Finalizers)
	if diff := cmp.Diff([]string{"example.dev/mine", "example.dev/yours"}, got.Finalizers); diff != "" {
		t.Errorf("finalizers (-want +got):\n%s", diff)
	}
	_, err := controller.Apply(t.Context(), c, intent(map[string]string{"c": "2"}), cr.FieldOwner("me"))
	if !apierrors.IsConflict(err) || !strings.Contains(err.Error(), `conflict with "you"`) {
		t.Errorf("Apply() of another's field: %v, want a conflict with you", err)
	}
	// Who only takes back is heard, and so is who first says what is so already.
	apply("me", intent(nil, "example.dev/mine"), true, 1)
	apply("third", intent(map[string]string{"c": "1"}), true, 1)
	apply("third", intent(map[string]string{"c": "1"}), false, 0)
	// A status is not spoken of, whatever it says.
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "team"}}
	apply("me", ns, true, 1)
	ns.Status.Phase = corev1.NamespaceTerminating
	apply("me", ns, false, 0)
	if _, err := controller.Apply(t.Context(), c, intent(nil)); err == nil || !strings.Contains(err.Error(), "FieldOwner") {
		t.Errorf("Apply() by nobody: %v", err)
	}
}

// Elements of lists are known by their keys, of which some may be left to the server's defaults: nothing is
// asked for that is so, and what one no longer says of one element is taken back though another has it.
func TestApplyKnowsElementsByTheirKeys(t *testing.T) {
	cp := setpointtest.Start(t, setpointtest.Controllers("none"))
	c := &counted{Client: cp.Client}
	apply := func(obj cr.Object, wantAsked int) {
		t.Helper()
		c.asked = nil
		_, err := controller.Apply(t.Context(), c, obj, cr.FieldOwner("me"))
		if err != nil || len(c.asked) != wantAsked {
			t.Errorf("Apply() of %s: %v after %d requests, want %d", obj.GetName(), err, len(c.asked), wantAsked)
		}
	}
	service := func() *corev1.Service {
		s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"}}
		s.Spec.Ports = []corev1.ServicePort{
			{Name: "a", Port: 80, TargetPort: intstr.FromInt32(80)}, {Name: "b", Port: 81, TargetPort: intstr.FromInt32(81)},
		}
		return s
	}
	apply(service(), 1)
	apply(service(), 0)

	env := []corev1.EnvVar{{Name: "X", Value: "1"}}
	set := func(ofSecond ...corev1.EnvVar) *appsv1.Deployment {
		labels := map[string]string{"app": "web"}
		d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"}}
		d.Spec.Selector = &metav1.LabelSelector{MatchLabels: labels}
		d.Spec.Template.Labels = labels
		d.Spec.Template.Spec.Containers = []corev1.Container{
			{Name: "first", Image: "x", Env: env}, {Name: "second", Image: "x", Env: ofSecond},
		}
		return d
	}
	apply(set(env...), 1)
	apply(set(env...), 0)
	less := set()
	if apply(less, 1); less.Spec.Template.Spec.Containers[1].Env != nil {
		t.Errorf("the second container has kept %v", less.Spec.Template.Spec.Containers[1].Env)
	}
}

// What an owner has applied of a status is not of the object it applies.
func TestApplyLooksAtNoSubresource(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cp := setpointtest.Start(t, setpointtest.Controllers("none"))
		c := &counted{Client: cp.Client}
		ns := func() *corev1.Namespace {
			return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "default", Labels: map[string]string{"a": "b"}}}
		}
		status := applycorev1.Namespace("default").WithStatus(applycorev1.NamespaceStatus().WithPhase(corev1.NamespaceActive))
		if err := cp.Client.Status().Apply(t.Context(), status, cr.FieldOwner("me"), cr.ForceOwnership); err != nil {
			t.Fatal(err)
		}
		<-time.After(time.Minute) // the older entry is the first
		for i, want := range []int{1, 0} {
			c.asked = nil
			if _, err := controller.Apply(t.Context(), c, ns(), cr.FieldOwner("me")); err != nil || len(c.asked) != want {
				t.Errorf("Apply() no. %d: %v after %d requests, want %d", i+1, err, len(c.asked), want)
			}
		}
	})
}

// TestB125_FinalizersOfOthersStay has two add a finalizer to what both have read.
func TestB125_FinalizersOfOthersStay(t *testing.T) {
	cp := setpointtest.Start(t, setpointtest.Controllers("none"))
	cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "a"}}
	if err := cp.Client.Create(t.Context(), cm); err != nil {
		t.Fatal(err)
	}
	late := cm.DeepCopy()
	if err := controller.EnsureFinalizer(t.Context(), cp.Client, cm, "example.dev/one"); err != nil {
		t.Fatal(err)
	}
	if err := controller.EnsureFinalizer(t.Context(), cp.Client, late, "example.dev/two"); !apierrors.IsConflict(err) {
		t.Errorf("a finalizer was added to what had changed: %v, want a conflict", err)
	}
	if err := cp.Client.Get(t.Context(), cr.ObjectKeyFromObject(cm), late); err != nil {
		t.Fatal(err)
	}
	if err := controller.EnsureFinalizer(t.Context(), cp.Client, late, "example.dev/two"); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"example.dev/one", "example.dev/two"}, late.Finalizers); diff != "" {
		t.Errorf("finalizers (-want +got):\n%s", diff)
	}
	if err := cp.Client.Delete(t.Context(), late); err != nil {
		t.Fatal(err)
	}
	if err := cp.Client.Get(t.Context(), cr.ObjectKeyFromObject(cm), late); err != nil {
		t.Fatal(err)
	}
	if err := controller.EnsureFinalizer(t.Context(), cp.Client, late, "example.dev/three"); err == nil {
		t.Error("a finalizer was added to what is being deleted")
	}
	more := cr.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":["example.dev/one","example.dev/two","x.dev/y"]}}`))
	if err := cp.Client.Patch(t.Context(), late.DeepCopy(), more); !apierrors.IsInvalid(err) && !apierrors.IsForbidden(err) {
		t.Errorf("the server takes a finalizer for what is being deleted: %v", err)
	}
	closed := errors.New("the office is closed")
	err := controller.Finalize(t.Context(), cp.Client, late, "example.dev/one", func(context.Context) error { return closed })
	if !errors.Is(err, closed) || len(late.Finalizers) != 2 {
		t.Errorf("Finalize() = %v with %v left, want the clean-up's error and both", err, late.Finalizers)
	}
	for i, name := range []string{"example.dev/one", "example.dev/two", "example.dev/two"} {
		runs := 0
		err := controller.Finalize(t.Context(), cp.Client, late, name, func(context.Context) error { runs++; return nil })
		if err != nil || (runs == 1) != (i < 2) {
			t.Errorf("Finalize(%s) = %v after %d clean-ups", name, err, runs)
		}
	}
	cp.AwaitGone(cm)
}

// TestPatchStatusIsOnePatchOrNothing writes a status twice, and then one that is out of date.
func TestPatchStatusIsOnePatchOrNothing(t *testing.T) {
	cp := setpointtest.Start(t, setpointtest.Controllers("none"))
	rs := replicaSet("web", 1)
	rs.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}
	rs.Spec.Template.Labels = rs.Spec.Selector.MatchLabels
	rs.Spec.Template.Spec.Containers = []corev1.Container{{Name: "c", Image: "x"}}
	if err := cp.Client.Create(t.Context(), rs); err != nil {
		t.Fatal(err)
	}
	stale := rs.DeepCopy()
	write := func(rs *appsv1.ReplicaSet, n int32) (changed bool, err error) {
		before := rs.ResourceVersion
		err = controller.PatchStatus(t.Context(), cp.Client, rs, func() { rs.Status.Replicas = n })
		return rs.ResourceVersion != before, err
	}
	for i, want := range []bool{true, false} {
		if changed, err := write(rs, 1); err != nil || changed != want {
			t.Errorf("write %d: changed %v, %v; want %v", i, changed, err, want)
		}
	}
	if _, err := write(stale, 2); !apierrors.IsConflict(err) {
		t.Errorf("a status from what was read before: %v, want a conflict", err)
	}
	if err := cp.Client.Delete(t.Context(), rs); err != nil {
		t.Fatal(err)
	}
	if _, err := write(rs, 3); err != nil {
		t.Errorf("the status of what is gone: %v, want nothing", err)
	}
}

// TestPatchOwnStatusLeavesWhatOthersWrote marks a pod as it was read before its agent wrote, and as it was
// before another took its name.
func TestPatchOwnStatusLeavesWhatOthersWrote(t *testing.T) {
	cp := setpointtest.Start(t, setpointtest.Controllers("none"))
	made := func() *corev1.Pod {
		pod := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "p"},
			Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "x"}}},
		}
		if err := cp.Client.Create(t.Context(), pod); err != nil {
			t.Fatal(err)
		}
		return pod
	}
	say := func(pod *corev1.Pod, typ corev1.PodConditionType) error {
		return controller.PatchOwnStatus(t.Context(), cp.Client, pod, func() {
			pod.Status.Conditions = append(pod.Status.Conditions, corev1.PodCondition{Type: typ, Status: corev1.ConditionTrue})
		})
	}
	pod := made()
	stale, gone := pod.DeepCopy(), pod.DeepCopy()
	if err := say(pod, corev1.PodReady); err != nil {
		t.Fatal(err)
	}
	if err := say(stale, corev1.DisruptionTarget); err != nil || len(stale.Status.Conditions) != 2 {
		t.Errorf("a mark of what was read before: %v, conditions %v; want both", err, stale.Status.Conditions)
	}
	before := stale.ResourceVersion
	if err := controller.PatchOwnStatus(t.Context(), cp.Client, stale, func() {}); err != nil || stale.ResourceVersion != before {
		t.Errorf("a change of nothing: %v, at %s, want nothing at %s", err, stale.ResourceVersion, before)
	}
	if err := cp.Client.Delete(t.Context(), pod, cr.GracePeriodSeconds(0)); err != nil {
		t.Fatal(err)
	}
	if err := say(gone.DeepCopy(), corev1.PodReady); !apierrors.IsNotFound(err) {
		t.Errorf("a mark of what is gone: %v, want not found", err)
	}
	made()
	if err := say(gone, corev1.PodReady); !apierrors.IsInvalid(err) {
		t.Errorf("a mark of another of the name: %v, want that it is another", err)
	}
}
