package scales_test

import (
	"testing"
	"testing/synctest"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/setpoint-dev/setpoint/controllers/scales"
	"github.com/setpoint-dev/setpoint/setpointtest"
)

// TestScale reads and writes the scale of a replica set, once on what has changed meanwhile.
func TestScale(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cp := setpointtest.Start(t, setpointtest.Controllers("none"))
		labels := map[string]string{"app": "web"}
		rs := &appsv1.ReplicaSet{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"},
			Spec: appsv1.ReplicaSetSpec{
				Replicas: ptr.To[int32](3), Selector: &metav1.LabelSelector{MatchLabels: labels},
				Template: corev1.PodTemplateSpec{
					ObjectMeta: metav1.ObjectMeta{Labels: labels},
					Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "x"}}},
				},
			},
		}
		if err := cp.Client.Create(t.Context(), rs); err != nil {
			t.Fatal(err)
		}
		target := scales.Target{APIVersion: "apps/v1", Kind: "ReplicaSet", Namespace: "default", Name: "web"}
		scale, err := scales.Get(t.Context(), cp.Client, target)
		if err != nil || scale.Spec.Replicas != 3 || scale.UID != rs.UID || scale.Status.Selector != "app=web" {
			t.Fatalf("scale %+v, error %v; want 3 replicas of %s", scale, err, rs.UID)
		}
		scale.Spec.Replicas = 5
		if err := scales.Update(t.Context(), cp.Client, target, scale); err != nil {
			t.Fatal(err)
		}
		if err := cp.Client.Get(t.Context(), client.ObjectKeyFromObject(rs), rs); err != nil || *rs.Spec.Replicas != 5 {
			t.Errorf("%d replicas, error %v; want 5", *rs.Spec.Replicas, err)
		}
		if err := scales.Update(t.Context(), cp.Client, target, scale); !apierrors.IsConflict(err) {
			t.Errorf("on an old state: %v, want a conflict", err)
		}
		target.Name = "none"
		if _, err := scales.Get(t.Context(), cp.Client, target); !apierrors.IsNotFound(err) {
			t.Errorf("of nothing: %v, want not found", err)
		}
	})
}
