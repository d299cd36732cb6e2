package statefulset_test

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

const (
	retain = appsv1.RetainPersistentVolumeClaimRetentionPolicyType
	remove = appsv1.DeletePersistentVolumeClaimRetentionPolicyType
)

// owners returns whose dependents the claims of the first pods are: "-" for nobody's.
func (w *world) owners(pods int) (list []string) {
	w.Helper()
	for i := range pods {
		claim := w.claim(i)
		owner := "-"
		for _, ref := range claim.OwnerReferences {
			owner = ref.Kind + " " + ref.Name
		}
		list = append(list, owner)
	}
	return list
}

func (w *world) claim(number int) *corev1.PersistentVolumeClaim {
	w.Helper()
	claim := &corev1.PersistentVolumeClaim{}
	if err := w.client.Get(ctx, client.ObjectKey{Namespace: "ns", Name: fmt.Sprint("data-db-", number)}, claim); err != nil {
		w.Fatal(err)
	}
	return claim
}

func (w *world) scale(n int32) {
	w.Helper()
	set := &appsv1.StatefulSet{}
	if err := w.client.Get(ctx, key, set); err != nil {
		w.Fatal(err)
	}
	set.Spec.Replicas = &n
	if err := w.client.Update(ctx, set); err != nil {
		w.Fatal(err)
	}
}

func parallel(whenDeleted, whenScaled appsv1.PersistentVolumeClaimRetentionPolicyType) func(*appsv1.StatefulSetSpec) {
	return func(s *appsv1.StatefulSetSpec) {
		s.PodManagementPolicy = appsv1.ParallelPodManagement
		s.VolumeClaimTemplates = []corev1.PersistentVolumeClaim{{ObjectMeta: metav1.ObjectMeta{Name: "data"}}}
		s.PersistentVolumeClaimRetentionPolicy = &appsv1.StatefulSetPersistentVolumeClaimRetentionPolicy{
			WhenDeleted: whenDeleted, WhenScaled: whenScaled,
		}
	}
}

// TestClaimsGoWithWhatThePolicySays has three pods, and then one: the claims of those that go are theirs
// before they go.
func TestClaimsGoWithWhatThePolicySays(t *testing.T) {
	set := "StatefulSet db"
	for _, c := range []struct {
		deleted, scaled appsv1.PersistentVolumeClaimRetentionPolicyType
		at, after       []string
	}{
		{retain, retain, []string{"-", "-", "-"}, []string{"-", "-", "-"}},
		{remove, retain, []string{set, set, set}, []string{set, set, set}},
		{retain, remove, []string{"-", "-", "-"}, []string{"-", "Pod db-1", "Pod db-2"}},
		{remove, remove, []string{set, set, set}, []string{set, "Pod db-1", "Pod db-2"}},
	} {
		w := newWorld(t, 3, parallel(c.deleted, c.scaled))
		w.pass()
		w.pass()
		if diff := cmp.Diff(c.at, w.owners(3)); diff != "" {
			t.Errorf("deleted: %s, scaled: %s (-want +got):\n%s", c.deleted, c.scaled, diff)
		}
		w.scale(1)
		w.pass()
		if diff := cmp.Diff(c.after, w.owners(3)); diff != "" {
			t.Errorf("deleted: %s, scaled: %s, with one pod (-want +got):\n%s", c.deleted, c.scaled, diff)
		}
		w.pass()
		w.client.Writes()
		w.pass()
		if writes := w.client.Writes(); len(writes) > 0 {
			t.Errorf("deleted: %s, scaled: %s: what is right is written again: %v", c.deleted, c.scaled, writes)
		}
	}
}

// TestClaimOfSomebodyElseStaysHis has a claim be controlled by another object.
func TestClaimOfSomebodyElseStaysHis(t *testing.T) {
	w := newWorld(t, 1, parallel(remove, remove))
	w.pass()
	claim := w.claim(0)
	claim.OwnerReferences = []metav1.OwnerReference{{APIVersion: "x/v1", Kind: "Database", Name: "d", UID: "d", Controller: ptr.To(true)}}
	if err := w.client.Update(ctx, claim); err != nil {
		t.Fatal(err)
	}
	w.pass()
	if diff := cmp.Diff([]string{"Database d"}, w.owners(1)); diff != "" {
		t.Errorf("owners (-want +got):\n%s", diff)
	}
}

// TestPodWaitsForAClaimThatGoes scales down, and up again before the claim of the pod that went has gone.
func TestPodWaitsForAClaimThatGoes(t *testing.T) {
	w := newWorld(t, 2, parallel(retain, remove))
	w.pass()
	w.scale(1)
	w.pass()
	w.scale(2)
	if _, err := w.r.Reconcile(ctx, reconcile.Request{NamespacedName: key}); err == nil {
		t.Error("a pod is made for a claim that goes")
	}
	if err := w.client.Delete(ctx, w.claim(1)); err != nil {
		t.Fatal(err)
	}
	w.pass()
	if diff := cmp.Diff([]string{"-", "-"}, w.owners(2)); diff != "" {
		t.Errorf("owners (-want +got):\n%s", diff)
	}
}
