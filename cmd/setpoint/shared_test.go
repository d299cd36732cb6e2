package main

import (
	"fmt"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/setpoint-dev/setpoint/store/etcd/etcdtest"
)

// Two servers, each a process of its own, keep their objects on one etcd: what one acknowledged the
// other shows, and when the one whose controllers work is killed the other's take over.
func TestServersOnOneEtcd(t *testing.T) {
	if testing.Short() {
		t.Skip("waits until a lease has run out")
	}
	store := "--store=etcd://" + etcdtest.Start(t)
	first := newMachine(t, "server", store)
	second := newMachine(t, "server", store)

	made := webOf(1)
	if err := first.client.Create(t.Context(), made); err != nil {
		t.Fatal(err)
	}
	var seen appsv1.Deployment
	if err := second.client.Get(t.Context(), client.ObjectKeyFromObject(made), &seen); err != nil {
		t.Fatal(err)
	}
	if seen.UID != made.UID {
		t.Errorf("the other server shows %s, and %s was made", seen.UID, made.UID)
	}
	awaitPods(second, 1) // the first's controllers work: they were there first
	first.kill()
	scale := client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"replicas":3}}`))
	if err := second.client.Patch(t.Context(), made, scale); err != nil {
		t.Fatal(err)
	}
	awaitPods(second, 3)
}

func webOf(replicas int32) *appsv1.Deployment {
	labels := map[string]string{"app": "web"}
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"},
		Spec: appsv1.DeploymentSpec{
			Replicas: &replicas,
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "x"}}},
			},
		},
	}
}

func awaitPods(m *machine, want int) {
	m.t.Helper()
	until(m, fmt.Sprint(want, " pods"), &corev1.PodList{}, func(l *corev1.PodList) bool { return len(l.Items) == want })
}
