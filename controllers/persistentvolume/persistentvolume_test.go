package persistentvolume_test

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/setpoint-dev/setpoint/controllers/controllertest"
	"github.com/setpoint-dev/setpoint/controllers/persistentvolume"
)

var ctx = context.Background()

// volume is a free one of class fast that one node at a time may write.
func volume(name, size string, change func(*corev1.PersistentVolume)) *corev1.PersistentVolume {
	v := &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name)},
		Spec: corev1.PersistentVolumeSpec{
			StorageClassName: "fast", AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Capacity: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(size)},
		},
		Status: corev1.PersistentVolumeStatus{Phase: corev1.VolumeAvailable},
	}
	if change != nil {
		change(v)
	}
	return v
}

// claim asks for 5Gi of class fast.
func claim(name string, change func(*corev1.PersistentVolumeClaim)) *corev1.PersistentVolumeClaim {
	c := &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID("claim-" + name)},
		Spec: corev1.PersistentVolumeClaimSpec{
			StorageClassName: ptr.To("fast"), AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("5Gi")}},
		},
	}
	if change != nil {
		change(c)
	}
	return c
}

func setAside(namespace, name, uid string) func(*corev1.PersistentVolume) {
	return func(v *corev1.PersistentVolume) {
		v.Spec.ClaimRef = &corev1.ObjectReference{Namespace: namespace, Name: name, UID: types.UID(uid)}
	}
}

// TestBestVolumeIsChosen asks which of some volumes a claim takes.
func TestBestVolumeIsChosen(t *testing.T) {
	waits := &storagev1.StorageClass{VolumeBindingMode: ptr.To(storagev1.VolumeBindingWaitForFirstConsumer)}
	for name, c := range map[string]struct {
		change  func(*corev1.PersistentVolumeClaim)
		class   *storagev1.StorageClass
		volumes []*corev1.PersistentVolume
		want    string
	}{
		"the smallest that is large enough": {nil, nil, []*corev1.PersistentVolume{
			volume("a", "20Gi", nil), volume("b", "6Gi", nil), volume("c", "7Gi", nil), volume("d", "4Gi", nil),
		}, "b"},
		"with no more modes than needed": {nil, nil, []*corev1.PersistentVolume{
			volume("a", "5Gi", func(v *corev1.PersistentVolume) {
				v.Spec.AccessModes = append(v.Spec.AccessModes, corev1.ReadOnlyMany)
			}), volume("b", "9Gi", nil),
		}, "b"},
		"one set aside for it": {nil, nil, []*corev1.PersistentVolume{volume("a", "5Gi", nil), volume("b", "9Gi", setAside("ns", "x", ""))}, "b"},
		"not another's":        {nil, nil, []*corev1.PersistentVolume{volume("b", "9Gi", setAside("ns", "y", ""))}, ""},
		"not a namesake's":     {nil, nil, []*corev1.PersistentVolume{volume("b", "9Gi", setAside("ns", "x", "old"))}, ""},
		"not of another class": {nil, nil, []*corev1.PersistentVolume{volume("b", "9Gi", func(v *corev1.PersistentVolume) { v.Spec.StorageClassName = "" })}, ""},
		"not as a device":      {nil, nil, []*corev1.PersistentVolume{volume("b", "9Gi", func(v *corev1.PersistentVolume) { v.Spec.VolumeMode = ptr.To(corev1.PersistentVolumeBlock) })}, ""},
		"not without its mode": {func(c *corev1.PersistentVolumeClaim) {
			c.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany}
		}, nil, []*corev1.PersistentVolume{volume("b", "9Gi", nil)}, ""},
		"not a released one": {nil, nil, []*corev1.PersistentVolume{volume("b", "9Gi", func(v *corev1.PersistentVolume) { v.Status.Phase = corev1.VolumeReleased })}, ""},
		"by its selector": {func(c *corev1.PersistentVolumeClaim) {
			c.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}}
		}, nil, []*corev1.PersistentVolume{
			volume("a", "9Gi", nil), volume("b", "9Gi", func(v *corev1.PersistentVolume) { v.Labels = map[string]string{"a": "b"} }),
		}, "b"},
		"none before its consumer comes": {nil, waits, []*corev1.PersistentVolume{volume("a", "9Gi", nil)}, ""},
		"one set aside, at once":         {nil, waits, []*corev1.PersistentVolume{volume("a", "9Gi", nil), volume("b", "9Gi", setAside("ns", "x", ""))}, "b"},
		"the one it names": {func(c *corev1.PersistentVolumeClaim) { c.Spec.VolumeName = "a" }, nil, []*corev1.PersistentVolume{
			volume("a", "20Gi", nil), volume("b", "5Gi", nil),
		}, "a"},
	} {
		act := persistentvolume.PlanClaim(persistentvolume.ClaimSnapshot{Claim: claim("x", c.change), Class: c.class, Volumes: c.volumes})
		got := ""
		if act.Volume != nil {
			got = act.Volume.Name
		}
		phase := corev1.ClaimPending
		if c.want != "" {
			phase = corev1.ClaimBound
		}
		if got != c.want || act.Status.Phase != phase {
			t.Errorf("%s: %q and %s, want %q and %s", name, got, act.Status.Phase, c.want, phase)
		}
	}
}

func TestWhyAClaimWaits(t *testing.T) {
	class := func(provisioner string, mode storagev1.VolumeBindingMode) *storagev1.StorageClass {
		return &storagev1.StorageClass{Provisioner: provisioner, VolumeBindingMode: &mode}
	}
	none := func(c *corev1.PersistentVolumeClaim) { c.Spec.StorageClassName = ptr.To("") }
	named := func(c *corev1.PersistentVolumeClaim) { c.Spec.VolumeName = "v" }
	lost := func(c *corev1.PersistentVolumeClaim) {
		named(c)
		c.Annotations = map[string]string{"pv.kubernetes.io/bind-completed": "yes"}
	}
	for _, c := range []struct {
		change  func(*corev1.PersistentVolumeClaim)
		class   *storagev1.StorageClass
		volumes []*corev1.PersistentVolume
		want    string
	}{
		{none, nil, nil, "Pending FailedBinding"},
		{nil, nil, nil, "Pending ProvisioningFailed"},
		{nil, class("x.io/p", storagev1.VolumeBindingImmediate), nil, "Pending ExternalProvisioning"},
		{nil, class("kubernetes.io/no-provisioner", storagev1.VolumeBindingImmediate), nil, "Pending FailedBinding"},
		{nil, class("x.io/p", storagev1.VolumeBindingWaitForFirstConsumer), nil, "Pending WaitForFirstConsumer"},
		{named, nil, nil, "Pending "},
		{named, nil, []*corev1.PersistentVolume{volume("v", "1Gi", nil)}, "Pending VolumeMismatch"},
		{named, nil, []*corev1.PersistentVolume{volume("v", "9Gi", setAside("ns", "y", "y"))}, "Pending FailedBinding"},
		{lost, nil, nil, "Lost ClaimLost"},
		{lost, nil, []*corev1.PersistentVolume{volume("v", "9Gi", setAside("ns", "y", "y"))}, "Lost ClaimMisbound"},
	} {
		act := persistentvolume.PlanClaim(persistentvolume.ClaimSnapshot{Claim: claim("x", c.change), Class: c.class, Volumes: c.volumes})
		got := fmt.Sprint(act.Status.Phase, " ", persistentvolume.Reason(act.Note))
		if got != c.want || act.Volume != nil {
			t.Errorf("%q and volume %v, want %q and none", got, act.Volume, c.want)
		}
		if p := "volume.kubernetes.io/storage-provisioner"; c.want == "Pending ExternalProvisioning" && act.Claim.Annotations[p] != "x.io/p" {
			t.Errorf("annotations %v, want the provisioner", act.Claim.Annotations)
		}
	}
}

func TestPhaseOfAVolume(t *testing.T) {
	bound := claim("x", func(c *corev1.PersistentVolumeClaim) { c.Spec.VolumeName = "v" })
	elsewhere := claim("x", func(c *corev1.PersistentVolumeClaim) { c.Spec.VolumeName = "w" })
	deletes := func(v *corev1.PersistentVolume) {
		setAside("ns", "x", "old")(v)
		v.Spec.PersistentVolumeReclaimPolicy = corev1.PersistentVolumeReclaimDelete
	}
	byController := func(v *corev1.PersistentVolume) {
		setAside("ns", "x", "claim-x")(v)
		v.Annotations = map[string]string{"pv.kubernetes.io/bound-by-controller": "yes"}
	}
	for _, c := range []struct {
		change func(*corev1.PersistentVolume)
		claim  *corev1.PersistentVolumeClaim
		want   string
		freed  bool
	}{
		{nil, nil, "Available", false},
		{setAside("ns", "x", ""), nil, "Available", false},
		{setAside("ns", "x", "claim-x"), bound, "Bound", false},
		{setAside("ns", "x", "claim-x"), claim("x", nil), "Available", false},
		{setAside("ns", "x", "claim-x"), nil, "Released", false},
		{setAside("ns", "x", "old"), bound, "Released", false},
		{deletes, nil, "Failed", false},
		{byController, elsewhere, "Available", true},
		{setAside("ns", "x", "claim-x"), elsewhere, "Available", false},
	} {
		v := volume("v", "5Gi", c.change)
		act := persistentvolume.PlanVolume(persistentvolume.VolumeSnapshot{Volume: v, Claim: c.claim})
		if freed := act.Volume != nil && act.Volume.Spec.ClaimRef == nil; string(act.Status.Phase) != c.want || freed != c.freed {
			t.Errorf("claimRef %v, claim %v: %s, freed %v; want %s, %v", v.Spec.ClaimRef, c.claim, act.Status.Phase, freed, c.want, c.freed)
		}
	}
}

// TestTwoClaimsGetTwoVolumes runs both controllers to the end, and again after one claim is deleted.
func TestTwoClaimsGetTwoVolumes(t *testing.T) {
	c := controllertest.NewClient(t, controllertest.NewClock(), nil,
		volume("small", "5Gi", nil), volume("large", "50Gi", nil), claim("x", nil), claim("y", nil))
	claims, volumes := persistentvolume.NewReconcilers(c, c, events.NewFakeRecorder(100))
	settle := func() {
		t.Helper()
		for range 10 {
			c.Writes()
			for _, name := range []string{"x", "y"} {
				if _, err := claims.Reconcile(ctx, reconcile.Request{NamespacedName: client.ObjectKey{Namespace: "ns", Name: name}}); err != nil {
					t.Fatal(err)
				}
			}
			for _, name := range []string{"small", "large"} {
				if _, err := volumes.Reconcile(ctx, reconcile.Request{NamespacedName: client.ObjectKey{Name: name}}); err != nil {
					t.Fatal(err)
				}
			}
			if len(c.Writes()) == 0 {
				return
			}
		}
		t.Fatal("the controllers go on writing")
	}
	text := func() (lines []string) {
		var list corev1.PersistentVolumeClaimList
		var all corev1.PersistentVolumeList
		if err := c.List(ctx, &list); err != nil {
			t.Fatal(err)
		}
		if err := c.List(ctx, &all); err != nil {
			t.Fatal(err)
		}
		for _, x := range list.Items {
			size := x.Status.Capacity[corev1.ResourceStorage]
			lines = append(lines, fmt.Sprintf("%s %s %s %s", x.Name, x.Status.Phase, x.Spec.VolumeName, size.String()))
		}
		for _, v := range all.Items {
			lines = append(lines, fmt.Sprintf("%s %s %s", v.Name, v.Status.Phase, v.Spec.ClaimRef.Name))
		}
		slices.Sort(lines)
		return lines
	}
	settle()
	if diff := cmp.Diff([]string{"large Bound y", "small Bound x", "x Bound small 5Gi", "y Bound large 50Gi"}, text()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if err := c.Delete(ctx, claim("y", nil)); err != nil {
		t.Fatal(err)
	}
	settle()
	if diff := cmp.Diff([]string{"large Released y", "small Bound x", "x Bound small 5Gi"}, text()); diff != "" {
		t.Errorf("without y (-want +got):\n%s", diff)
	}
}
