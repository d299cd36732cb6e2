package volumeprotection_test

import (
	"context"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/setpoint-dev/setpoint/controllers/controllertest"
	"github.com/setpoint-dev/setpoint/controllers/volumeprotection"
)

var ctx = context.Background()

func claim() *corev1.PersistentVolumeClaim {
	return &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "c", UID: "c"},
		Status:     corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimBound},
	}
}

// user is a pod that has the claim.
func user(node string, phase corev1.PodPhase) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p"},
		Spec: corev1.PodSpec{NodeName: node, Volumes: []corev1.Volume{{VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "c"},
		}}}},
		Status: corev1.PodStatus{Phase: phase},
	}
}

// settle makes passes until one writes nothing.
func settle(t *testing.T, c *controllertest.Client, r reconcile.Reconciler, key client.ObjectKey) {
	t.Helper()
	for range 10 {
		c.Writes()
		if _, err := r.Reconcile(ctx, reconcile.Request{NamespacedName: key}); err != nil {
			t.Fatal(err)
		}
		if len(c.Writes()) == 0 {
			return
		}
	}
	t.Fatal("the controller goes on writing")
}

// TestClaimStaysWhileAPodUsesIt deletes a claim that pods of several states have.
func TestClaimStaysWhileAPodUsesIt(t *testing.T) {
	for name, c := range map[string]struct {
		cached, live []client.Object
		stays        bool
	}{
		"nobody":                  {nil, nil, false},
		"one that runs":           {[]client.Object{user("n", corev1.PodRunning)}, []client.Object{user("n", corev1.PodRunning)}, true},
		"one that was just made":  {nil, []client.Object{user("n", corev1.PodPending)}, true},
		"one on no node":          {[]client.Object{user("", corev1.PodPending)}, []client.Object{user("", corev1.PodPending)}, false},
		"one that has ended":      {[]client.Object{user("n", corev1.PodSucceeded)}, []client.Object{user("n", corev1.PodSucceeded)}, false},
		"one that has just ended": {[]client.Object{user("n", corev1.PodRunning)}, nil, true},
	} {
		clock := controllertest.NewClock()
		cached := controllertest.NewClient(t, clock, nil, append(c.cached, claim())...)
		live := controllertest.NewClient(t, clock, nil, c.live...)
		r := volumeprotection.NewClaims(cached, live, clock)
		settle(t, cached, r, client.ObjectKeyFromObject(claim()))
		found := claim()
		if err := cached.Get(ctx, client.ObjectKeyFromObject(found), found); err != nil || len(found.Finalizers) != 1 {
			t.Fatalf("%s: error %v, finalizers %v; want one", name, err, found.Finalizers)
		}
		if err := cached.Delete(ctx, found); err != nil {
			t.Fatal(err)
		}
		settle(t, cached, r, client.ObjectKeyFromObject(claim()))
		err := cached.Get(ctx, client.ObjectKeyFromObject(found), found)
		if stays := err == nil; stays != c.stays || err != nil && !apierrors.IsNotFound(err) {
			t.Errorf("%s: error %v; want that it stays: %v", name, err, c.stays)
		}
	}
}

// TestUnusedSince has a pod come and go.
func TestUnusedSince(t *testing.T) {
	clock := controllertest.NewClock()
	c := controllertest.NewClient(t, clock, nil, claim())
	r := volumeprotection.NewClaims(c, c, clock)
	condition := func() corev1.PersistentVolumeClaimCondition {
		t.Helper()
		settle(t, c, r, client.ObjectKeyFromObject(claim()))
		found := claim()
		if err := c.Get(ctx, client.ObjectKeyFromObject(found), found); err != nil || len(found.Status.Conditions) != 1 {
			t.Fatalf("error %v, conditions %v; want one", err, found.Status.Conditions)
		}
		return found.Status.Conditions[0]
	}
	first := condition()
	clock.Step(time.Hour)
	if again := condition(); first.Status != "True" || !again.LastTransitionTime.Equal(&first.LastTransitionTime) {
		t.Errorf("%+v, and an hour later %+v; want that it has been unused since then", first, again)
	}
	pod := user("n", corev1.PodRunning)
	if err := c.Create(ctx, pod); err != nil {
		t.Fatal(err)
	}
	if used := condition(); used.Status != "False" || used.Reason != "PodUsingPVC" {
		t.Errorf("with a pod: %+v", used)
	}
	if err := c.Delete(ctx, pod); err != nil {
		t.Fatal(err)
	}
	if unused := condition(); unused.Status != "True" || !unused.LastTransitionTime.Time.Equal(clock.Now()) {
		t.Errorf("when the pod has gone: %+v, want unused since now", unused)
	}
}

func TestVolumeStaysWhileItIsBound(t *testing.T) {
	for _, phase := range []corev1.PersistentVolumePhase{corev1.VolumeBound, corev1.VolumeReleased, corev1.VolumeAvailable} {
		v := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "v"}, Status: corev1.PersistentVolumeStatus{Phase: phase}}
		c := controllertest.NewClient(t, controllertest.NewClock(), nil, v)
		r := volumeprotection.NewVolumes(c)
		settle(t, c, r, client.ObjectKey{Name: "v"})
		if err := c.Delete(ctx, v); err != nil {
			t.Fatal(err)
		}
		settle(t, c, r, client.ObjectKey{Name: "v"})
		err := c.Get(ctx, client.ObjectKey{Name: "v"}, v)
		if stays := err == nil; stays != (phase == corev1.VolumeBound) {
			t.Errorf("%s: error %v", phase, err)
		}
	}
}

// TestClassStaysWhileItIsHad deletes a class of attributes that claims and volumes have, each in its way.
func TestClassStaysWhileItIsHad(t *testing.T) {
	name, other := "gold", "silver"
	asked, given, target, volume := claim(), claim(), claim(), &corev1.PersistentVolume{}
	asked.Spec.VolumeAttributesClassName = &name
	given.Status.CurrentVolumeAttributesClassName = &name
	target.Status.ModifyVolumeStatus = &corev1.ModifyVolumeStatus{TargetVolumeAttributesClassName: name}
	volume.Name, volume.Spec.VolumeAttributesClassName = "v", &name
	another := claim()
	another.Spec.VolumeAttributesClassName = &other
	for what, c := range map[string]struct {
		cached, live []client.Object
		stays        bool
	}{
		"nobody has":           {nil, nil, false},
		"a claim asks for":     {[]client.Object{asked}, []client.Object{asked}, true},
		"a claim has":          {[]client.Object{given}, []client.Object{given}, true},
		"a claim is given":     {[]client.Object{target}, []client.Object{target}, true},
		"a volume has":         {[]client.Object{volume}, []client.Object{volume}, true},
		"a new claim asks for": {nil, []client.Object{asked}, true},
		"a claim had":          {[]client.Object{asked}, nil, true},
		"no claim has":         {[]client.Object{another}, []client.Object{another}, false},
	} {
		clock := controllertest.NewClock()
		class := &storagev1.VolumeAttributesClass{ObjectMeta: metav1.ObjectMeta{Name: name}}
		cached := controllertest.NewClient(t, clock, nil, append(c.cached, class)...)
		live := controllertest.NewClient(t, clock, nil, c.live...)
		r, key := volumeprotection.NewClasses(cached, live), client.ObjectKey{Name: name}
		settle(t, cached, r, key)
		if err := cached.Get(ctx, key, class); err != nil || len(class.Finalizers) != 1 {
			t.Fatalf("one that %s: error %v, finalizers %v; want one", what, err, class.Finalizers)
		}
		if err := cached.Delete(ctx, class); err != nil {
			t.Fatal(err)
		}
		settle(t, cached, r, key)
		err := cached.Get(ctx, key, class)
		if stays := err == nil; stays != c.stays || err != nil && !apierrors.IsNotFound(err) {
			t.Errorf("one that %s: error %v; want that it stays: %v", what, err, c.stays)
		}
	}
}
