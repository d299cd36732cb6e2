package setpointtest_test

import (
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/setpoint-dev/setpoint/node/simulated"
	"github.com/setpoint-dev/setpoint/setpointtest"
)

// What a test's pods wait for happens by itself: init containers end, probes succeed, and Jobs complete
// if asked to.
func TestSimulatedPodsGetWhereTheyShould(t *testing.T) {
	cp := setpointtest.Start(t, setpointtest.Nodes(1), setpointtest.Containers(simulated.Handlers{JobsEnd: true}))
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "p"},
		Spec: corev1.PodSpec{
			InitContainers: []corev1.Container{{Name: "first", Image: "i"}},
			Containers: []corev1.Container{{
				Name: "c", Image: "i",
				ReadinessProbe: &corev1.Probe{ProbeHandler: corev1.ProbeHandler{
					HTTPGet: &corev1.HTTPGetAction{Port: intstr.FromInt32(8080)},
				}},
			}},
		},
	}
	job := &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "j"},
		Spec: batchv1.JobSpec{Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{
			RestartPolicy: corev1.RestartPolicyNever,
			Containers:    []corev1.Container{{Name: "c", Image: "i"}},
		}}},
	}
	if err := cp.Client.Create(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	if err := cp.Client.Create(t.Context(), job); err != nil {
		t.Fatal(err)
	}
	cp.Await(pod, "it is ready", func() bool {
		for _, c := range pod.Status.Conditions {
			if c.Type == corev1.PodReady {
				return c.Status == corev1.ConditionTrue
			}
		}
		return false
	})
	cp.Await(job, "it is complete", func() bool { return job.Status.CompletionTime != nil })
}
