package replicaset_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
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

// TestReplicationControllerKeepsPods makes passes over one that wants two pods and may make none at first.
func TestReplicationControllerKeepsPods(t *testing.T) {
	labels := map[string]string{"app": "old"}
	rc := &corev1.ReplicationController{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "old", UID: "rc", Generation: 4},
		Spec: corev1.ReplicationControllerSpec{
			Replicas: ptr.To[int32](2), Selector: labels,
			Template: &corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}},
		},
	}
	clock := controllertest.NewClock()
	c := controllertest.NewClient(t, clock, nil, rc)
	r := replicaset.NewControllerReconciler(c, c, clock, events.NewFakeRecorder(100))
	pass := func() error {
		_, err := r.Reconcile(t.Context(), reconcile.Request{NamespacedName: client.ObjectKeyFromObject(rc)})
		return err
	}
	status := func() corev1.ReplicationControllerStatus {
		if err := c.Get(t.Context(), client.ObjectKeyFromObject(rc), rc); err != nil {
			t.Fatal(err)
		}
		return rc.Status
	}
	c.Before = func(verb string, _ client.Object) error {
		if verb == "create" {
			return apierrors.NewForbidden(corev1.Resource("pods"), "", nil)
		}
		return nil
	}
	if err := pass(); err == nil {
		t.Error("no error, though no pod can be made")
	}
	if s := status(); len(s.Conditions) != 1 || s.Conditions[0].Type != corev1.ReplicationControllerReplicaFailure {
		t.Errorf("conditions: %+v, want ReplicaFailure", s.Conditions)
	}
	c.Before = nil
	for range 2 {
		if err := pass(); err != nil {
			t.Fatal(err)
		}
	}
	want := corev1.ReplicationControllerStatus{Replicas: 2, FullyLabeledReplicas: 2, ObservedGeneration: 4}
	if diff := cmp.Diff(want, status()); diff != "" {
		t.Errorf("status (-want +got):\n%s", diff)
	}
	var pods corev1.PodList
	if err := c.List(t.Context(), &pods); err != nil || len(pods.Items) != 2 {
		t.Fatalf("%d pods, error %v; want 2", len(pods.Items), err)
	}
	if ref := metav1.GetControllerOf(&pods.Items[0]); ref == nil || ref.Kind != "ReplicationController" || ref.APIVersion != "v1" {
		t.Errorf("the pod's controller is %+v", ref)
	}
	c.Writes()
	if err := pass(); err != nil || len(c.Writes()) > 0 {
		t.Errorf("error %v, or what is right was written again", err)
	}
}
