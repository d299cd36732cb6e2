package node_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// An ephemeral container runs once, beside the others, and goes when their work is done.
func TestMachineRunsEphemeralContainersOnce(t *testing.T) {
	pod := shellPod("web", "")
	pod.Spec.RestartPolicy = corev1.RestartPolicyNever
	w := newWorld(t, pod)
	w.expect("create", "start c0/0")
	for _, name := range []string{"debug", "other"} {
		w.in.Pod = w.in.Pod.DeepCopy()
		w.in.Pod.Spec.EphemeralContainers = append(w.in.Pod.Spec.EphemeralContainers, corev1.EphemeralContainer{
			EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: name, Image: "none"},
		})
		w.expect("start " + name + "/0")
	}
	w.end("debug", 1)
	w.expect()
	statuses := w.plan.Status.EphemeralContainerStatuses
	if len(statuses) != 2 || statuses[0].State.Terminated == nil || statuses[1].State.Running == nil || statuses[1].Ready {
		t.Errorf("the statuses are %+v", statuses)
	}
	if got := w.plan.Status.Phase; got != corev1.PodRunning {
		t.Errorf("the phase is %s", got)
	}
	w.end("c0", 0)
	w.expect("stop other in 30s")
	w.end("other", 137)
	w.expect()
	if got := w.plan.Status.Phase; got != corev1.PodSucceeded {
		t.Errorf("when all have ended the phase is %s", got)
	}
}

func TestMachineStopsEphemeralContainersOfADeletedPod(t *testing.T) {
	pod := shellPod("web", "")
	pod.Spec.EphemeralContainers = []corev1.EphemeralContainer{
		{EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: "debug", Image: "none"}},
	}
	w := newWorld(t, pod)
	w.expect("create", "start c0/0", "start debug/0")
	w.delete(5)
	w.expect("stop c0 in 5s", "stop debug in 5s")
	w.end("c0", 0)
	w.end("debug", 0)
	w.expect("remove", "delete")
}
