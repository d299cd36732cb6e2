package node_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// The status says what a container has, from its first instance on, and follows a resize without a
// restart.
func TestStatusSaysResources(t *testing.T) {
	pod := shellPod("web", "", "")
	declared := func(cpu string) corev1.ResourceRequirements {
		return corev1.ResourceRequirements{
			Requests: corev1.ResourceList{"cpu": resource.MustParse(cpu)}, Limits: corev1.ResourceList{"cpu": resource.MustParse("2")},
		}
	}
	pod.Spec.Containers[0].Resources = declared("100m")
	w := newWorld(t, pod)
	if w.step(); w.plan.Status.ContainerStatuses[0].Resources != nil {
		t.Error("a container that was never started has resources")
	}
	w.expect("start c0/0", "start c1/0")
	for _, cpu := range []string{"100m", "300m"} {
		w.in.Pod = w.in.Pod.DeepCopy()
		w.in.Pod.Spec.Containers[0].Resources = declared(cpu)
		w.expect()
		want := declared(cpu)
		got := w.plan.Status.ContainerStatuses
		if diff := cmp.Diff(&want, got[0].Resources) + cmp.Diff(want.Requests, got[0].AllocatedResources); diff != "" {
			t.Errorf("with %s (-want +got):\n%s", cpu, diff)
		}
		if diff := cmp.Diff(&corev1.ResourceRequirements{}, got[1].Resources); diff != "" || got[1].AllocatedResources != nil {
			t.Errorf("of a container that declares nothing (-want +got):\n%s", diff)
		}
	}
}
