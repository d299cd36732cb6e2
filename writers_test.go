package setpoint_test

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/setpoint-dev/setpoint/setpointtest"
)

// TestEachControllerWritesUnderItsName looks at who owns fields of what a deployment becomes.
func TestEachControllerWritesUnderItsName(t *testing.T) {
	cp := setpointtest.Start(t, setpointtest.Nodes(1))
	d := &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"},
		Spec: appsv1.DeploymentSpec{
			Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "web"}},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "x"}}},
			},
		},
	}
	if err := cp.Client.Create(t.Context(), d, client.FieldOwner("me")); err != nil {
		t.Fatal(err)
	}
	root := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "kube-root-ca.crt"}}
	cp.Await(root, "it is there", func() bool { return true })
	cp.Await(d, "a replica is ready", func() bool { return d.Status.ReadyReplicas == 1 })
	for _, test := range []struct {
		list client.ObjectList
		want []string
	}{
		{&appsv1.DeploymentList{}, []string{"deployment-controller", "me"}},
		{&appsv1.ReplicaSetList{}, []string{"deployment-controller", "replicaset-controller"}},
		{&corev1.PodList{}, []string{"replicaset-controller", "setpoint-node"}},
		{&corev1.NodeList{}, []string{"setpoint-node"}},
		{&corev1.ConfigMapList{}, []string{"serviceaccount-controller"}},
	} {
		got := writers(t, cp, test.list)
		// The scheduler says so in the pod when it looks before the node has joined.
		got = slices.DeleteFunc(got, func(name string) bool { return name == "default-scheduler" })
		if diff := cmp.Diff(test.want, got); diff != "" {
			t.Errorf("who wrote %T (-want +got):\n%s", test.list, diff)
		}
	}
}

// writers returns the field managers of all objects of a kind, in order.
func writers(t *testing.T, cp *setpointtest.ControlPlane, list client.ObjectList) (names []string) {
	t.Helper()
	if err := cp.Client.List(t.Context(), list); err != nil {
		t.Fatal(err)
	}
	_ = meta.EachListItem(list, func(item runtime.Object) error {
		for _, e := range item.(client.Object).GetManagedFields() {
			names = append(names, e.Manager)
		}
		return nil
	})
	slices.Sort(names)
	return slices.Compact(names)
}
