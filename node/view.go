package node

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// view is the observed state of a pod's containers, indexed.
type view struct {
	pod        *corev1.Pod
	policy     corev1.RestartPolicy
	instances  map[string][2]*ContainerState // the latest instance and the one before
	waiting    map[string]corev1.ContainerStateWaiting
	unhealthy  map[ContainerID]bool
	mainsBegun bool // a container that is not an init container has had an instance
}

func look(in Input, unhealthy map[ContainerID]bool) view {
	v := view{
		pod:       in.Pod,
		policy:    in.Pod.Spec.RestartPolicy,
		instances: map[string][2]*ContainerState{},
		waiting:   map[string]corev1.ContainerStateWaiting{},
		unhealthy: unhealthy,
	}
	if v.policy == "" {
		v.policy = corev1.RestartPolicyAlways
	}
	if in.Runtime != nil {
		for i := range in.Runtime.Containers {
			v.add(&in.Runtime.Containers[i])
		}
	}
	for _, statuses := range [][]corev1.ContainerStatus{
		in.Pod.Status.InitContainerStatuses, in.Pod.Status.ContainerStatuses, in.Pod.Status.EphemeralContainerStatuses,
	} {
		for i := range statuses {
			v.recall(&statuses[i])
		}
	}
	for i := range in.Pod.Spec.Containers {
		if _, ok := v.latest(in.Pod.Spec.Containers[i].Name); ok {
			v.mainsBegun = true
		}
	}
	return v
}

func (v *view) add(c *ContainerState) {
	two := v.instances[c.ID.Name]
	switch {
	case two[0] == nil || c.ID.Attempt > two[0].ID.Attempt:
		two = [2]*ContainerState{c, two[0]}
	case two[1] == nil || c.ID.Attempt > two[1].ID.Attempt:
		two[1] = c
	}
	v.instances[c.ID.Name] = two
}

// recall takes an instance from the pod's status that the runtime has no record
// of: it has been, so it counts as a restart and is not started again.
func (v *view) recall(status *corev1.ContainerStatus) {
	if _, ok := v.instances[status.Name]; ok {
		return
	}
	last := status.State.Terminated
	if last == nil {
		last = status.LastTerminationState.Terminated
	}
	if running := status.State.Running; running != nil {
		last = &corev1.ContainerStateTerminated{
			ExitCode: 137, Reason: ReasonStatusUnknown,
			Message:   "the container could not be located when the pod was last seen",
			StartedAt: running.StartedAt, FinishedAt: running.StartedAt,
		}
	}
	if last == nil {
		return
	}
	v.add(&ContainerState{
		ID:         ContainerID{Pod: v.pod.UID, Name: status.Name, Attempt: status.RestartCount},
		StartedAt:  last.StartedAt.Time,
		FinishedAt: last.FinishedAt.Time,
		ExitCode:   last.ExitCode, Signal: last.Signal, Reason: last.Reason, Message: last.Message,
	})
}

func (v *view) latest(name string) (ContainerState, bool) {
	if c := v.instances[name][0]; c != nil {
		return *c, true
	}
	return ContainerState{}, false
}

// restarts says whether a container that has ended is to be started again. One
// that was stopped for its health is, even if it then ended well.
func (v *view) restarts(c *corev1.Container, last ContainerState) bool {
	switch {
	case sidecar(c):
		return true
	case v.isEphemeral(c):
		return false
	case v.policy == corev1.RestartPolicyNever:
		return false
	case v.policy == corev1.RestartPolicyOnFailure || v.isInit(c):
		return last.ExitCode != 0 || v.unhealthy[last.ID]
	default:
		return true
	}
}

func (v *view) isInit(c *corev1.Container) bool { return isInit(v.pod, c) }

func isInit(pod *corev1.Pod, c *corev1.Container) bool {
	for i := range pod.Spec.InitContainers {
		if pod.Spec.InitContainers[i].Name == c.Name {
			return true
		}
	}
	return false
}

func (v *view) isEphemeral(c *corev1.Container) bool {
	for i := range v.pod.Spec.EphemeralContainers {
		if v.pod.Spec.EphemeralContainers[i].Name == c.Name {
			return true
		}
	}
	return false
}

// over says whether a container has ended for good.
func (v *view) over(c *corev1.Container) bool {
	current, ok := v.latest(c.Name)
	return ok && !current.Running && !v.restarts(c, current)
}

func (v *view) mainsOver() bool {
	for i := range v.pod.Spec.Containers {
		if !v.over(&v.pod.Spec.Containers[i]) {
			return false
		}
	}
	return true
}

func (v *view) mainsRunning() bool {
	for i := range v.pod.Spec.Containers {
		if c, ok := v.latest(v.pod.Spec.Containers[i].Name); ok && c.Running {
			return true
		}
	}
	return false
}

func (v *view) anyRunning() bool {
	for _, two := range v.instances {
		if two[0].Running || two[1] != nil && two[1].Running {
			return true
		}
	}
	return false
}

// terminated is the status of an instance that has ended.
func terminated(c *ContainerState) *corev1.ContainerStateTerminated {
	reason := c.Reason
	if reason == "" {
		reason = ReasonCompleted
		if c.ExitCode != 0 {
			reason = ReasonError
		}
	}
	return &corev1.ContainerStateTerminated{
		ExitCode: c.ExitCode, Signal: c.Signal, Reason: reason, Message: c.Message,
		StartedAt:   metav1.NewTime(c.StartedAt).Rfc3339Copy(),
		FinishedAt:  metav1.NewTime(c.FinishedAt).Rfc3339Copy(),
		ContainerID: containerURL(c.ID),
	}
}

func containerURL(id ContainerID) string { return "process://" + id.String() }
