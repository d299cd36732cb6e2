package node

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
)

// status is the pod's status after a step. It holds nothing that changes by
// itself: equal facts give equal statuses.
func (s *step) status() corev1.PodStatus {
	old := &s.Pod.Status
	status := *old.DeepCopy()
	status.ObservedGeneration = s.Pod.Generation
	status.HostIP = s.HostIP
	status.HostIPs = []corev1.HostIP{{IP: s.HostIP}}
	if status.StartTime == nil {
		now := metav1.NewTime(s.Now).Rfc3339Copy()
		status.StartTime = &now
	}
	if status.QOSClass == "" {
		status.QOSClass = qosClass(&s.Pod.Spec)
	}
	if s.Runtime != nil {
		status.PodIP = s.Runtime.IP
		if s.Pod.Spec.HostNetwork || status.PodIP == "" {
			status.PodIP = s.HostIP
		}
		status.PodIPs = []corev1.PodIP{{IP: status.PodIP}}
	}
	status.InitContainerStatuses = s.containerStatuses(s.Pod.Spec.InitContainers, old.InitContainerStatuses)
	status.ContainerStatuses = s.containerStatuses(s.Pod.Spec.Containers, old.ContainerStatuses)
	status.EphemeralContainerStatuses = s.ephemeralStatuses(old.EphemeralContainerStatuses)
	if !s.terminal() {
		status.Phase = s.phase()
		if r := s.Rejected; r != nil {
			status.Phase, status.Reason, status.Message = corev1.PodFailed, r.Reason, "Pod was rejected: "+r.Message
		} else if s.Pod.DeletionTimestamp == nil && s.overdue() {
			status.Phase = corev1.PodFailed
			status.Reason = "DeadlineExceeded"
			status.Message = "Pod was active on the node longer than the specified deadline"
		}
	}
	status.Conditions = s.conditions(&status)
	return status
}

func (s *step) containerStatuses(
	containers []corev1.Container, old []corev1.ContainerStatus,
) []corev1.ContainerStatus {
	over := s.Rejected != nil || s.terminal()
	if len(containers) == 0 || over && s.Runtime == nil && len(old) == 0 {
		return nil // one that was never begun never will be
	}
	statuses := make([]corev1.ContainerStatus, len(containers))
	for i := range containers {
		c := &containers[i]
		at := slices.IndexFunc(old, func(o corev1.ContainerStatus) bool { return o.Name == c.Name })
		var previous *corev1.ContainerStatus
		if at >= 0 {
			previous = &old[at]
		}
		statuses[i] = s.containerStatus(c, previous)
	}
	return statuses
}

// ephemeralStatuses are never ready: nobody waits for them. Resources they may not declare.
func (s *step) ephemeralStatuses(old []corev1.ContainerStatus) []corev1.ContainerStatus {
	containers := make([]corev1.Container, len(s.Pod.Spec.EphemeralContainers))
	for i := range containers {
		containers[i] = *ephemeral(s.Pod, i)
	}
	statuses := s.containerStatuses(containers, old)
	for i := range statuses {
		statuses[i].Ready, statuses[i].Started = false, nil
		statuses[i].Resources, statuses[i].AllocatedResources = nil, nil
	}
	return statuses
}

func (s *step) containerStatus(c *corev1.Container, old *corev1.ContainerStatus) corev1.ContainerStatus {
	status := corev1.ContainerStatus{Name: c.Name, Image: c.Image, ImageID: c.Image}
	two := s.view.instances[c.Name]
	latest, started := two[0], false
	waiting, waits := s.view.waiting[c.Name]
	if latest == nil {
		if !waits {
			waiting.Reason = ReasonContainerCreating
			if len(s.Pod.Spec.InitContainers) > 0 && !s.view.isInit(c) || s.view.isInit(c) && s.Runtime != nil {
				waiting.Reason = ReasonPodInitializing
			}
			waiting.Message = s.creation.message
		}
		status.State.Waiting = &waiting
		status.ImageID = ""
		status.Started = &started
		return status
	}
	// What is declared is what runs: a change is given to running instances before the step.
	status.Resources, status.AllocatedResources = c.Resources.DeepCopy(), c.Resources.DeepCopy().Requests
	status.RestartCount = latest.ID.Attempt
	status.ContainerID = containerURL(latest.ID)
	switch {
	case latest.Running:
		h := s.health(c, latest.ID)
		started = h.Started
		status.Ready = h.Ready && h.Started
		if s.view.isInit(c) && !sidecar(c) {
			status.Ready = false
		}
		status.State.Running = &corev1.ContainerStateRunning{
			StartedAt: metav1.NewTime(latest.StartedAt).Rfc3339Copy(),
		}
	case waits:
		status.State.Waiting = &waiting
		status.LastTerminationState.Terminated = terminated(latest)
	default:
		status.State.Terminated = terminated(latest)
		status.Ready = s.view.isInit(c) && !sidecar(c) && latest.ExitCode == 0
	}
	switch {
	case status.LastTerminationState.Terminated != nil:
	case two[1] != nil:
		status.LastTerminationState.Terminated = terminated(two[1])
	case old != nil && old.RestartCount == status.RestartCount:
		status.LastTerminationState = *old.LastTerminationState.DeepCopy()
	}
	status.Started = &started
	return status
}

// phase sums up the containers. A pod being deleted has ended when all of them
// have, whatever its restart policy.
func (s *step) phase() corev1.PodPhase {
	v := &s.view
	ending := s.Pod.DeletionTimestamp != nil
	for i := range s.Pod.Spec.InitContainers {
		c := &s.Pod.Spec.InitContainers[i]
		last, ok := v.latest(c.Name)
		failed := ok && !last.Running && last.ExitCode != 0 && !sidecar(c) && !v.mainsBegun
		if failed && (ending || !v.restarts(c, last)) && !v.anyRunning() {
			return corev1.PodFailed
		}
	}
	var running, ended, failed, restarting int
	for i := range s.Pod.Spec.Containers {
		c := &s.Pod.Spec.Containers[i]
		last, ok := v.latest(c.Name)
		switch {
		case !ok:
		case last.Running:
			running++
		default:
			ended++
			if last.ExitCode != 0 {
				failed++
			}
			if !ending && v.restarts(c, last) {
				restarting++
			}
		}
	}
	total := len(s.Pod.Spec.Containers)
	switch {
	case ending && !v.anyRunning() && running+ended > 0:
		if failed > 0 || ended < total {
			return corev1.PodFailed
		}
		return corev1.PodSucceeded
	case running+ended < total:
		return corev1.PodPending
	case running > 0 || restarting > 0 || v.anyRunning():
		return corev1.PodRunning
	case failed > 0:
		return corev1.PodFailed
	default:
		return corev1.PodSucceeded
	}
}

// conditions returns the conditions that the agent owns, in a kubelet's order,
// and behind them those of others as they were.
func (s *step) conditions(status *corev1.PodStatus) []corev1.PodCondition {
	ready := s.containersReady(status)
	gates := s.readinessGates(ready)
	own := []corev1.PodCondition{
		{Type: corev1.PodReadyToStartContainers, Status: boolean(s.Runtime != nil && !ended(status.Phase))},
		s.initialized(status),
		gates,
		ready,
		{Type: corev1.PodScheduled, Status: corev1.ConditionTrue},
	}
	ours := sets.New[corev1.PodConditionType]()
	for i := range own {
		c := &own[i]
		ours.Insert(c.Type)
		c.ObservedGeneration = s.Pod.Generation
		c.LastTransitionTime = metav1.NewTime(s.Now).Rfc3339Copy()
		for _, old := range s.Pod.Status.Conditions {
			if old.Type == c.Type && old.Status == c.Status && !old.LastTransitionTime.IsZero() {
				c.LastTransitionTime = old.LastTransitionTime
			}
		}
	}
	for _, c := range s.Pod.Status.Conditions {
		if !ours.Has(c.Type) {
			own = append(own, c)
		}
	}
	return own
}

func (s *step) initialized(status *corev1.PodStatus) corev1.PodCondition {
	c := corev1.PodCondition{Type: corev1.PodInitialized, Status: corev1.ConditionTrue}
	var incomplete []string
	for i := range status.InitContainerStatuses {
		st, spec := &status.InitContainerStatuses[i], &s.Pod.Spec.InitContainers[i]
		done := st.Ready || s.view.mainsBegun || sidecar(spec) && st.Started != nil && *st.Started
		if !done {
			incomplete = append(incomplete, st.Name)
		}
	}
	switch {
	case status.Phase == corev1.PodSucceeded:
		c.Reason = "PodCompleted"
	case len(incomplete) > 0:
		c.Status = corev1.ConditionFalse
		c.Reason = "ContainersNotInitialized"
		c.Message = fmt.Sprintf("containers with incomplete status: %v", incomplete)
	}
	return c
}

func (s *step) containersReady(status *corev1.PodStatus) corev1.PodCondition {
	c := corev1.PodCondition{Type: corev1.ContainersReady, Status: corev1.ConditionTrue}
	var unready []string
	for i := range status.InitContainerStatuses {
		if sidecar(&s.Pod.Spec.InitContainers[i]) && !status.InitContainerStatuses[i].Ready {
			unready = append(unready, status.InitContainerStatuses[i].Name)
		}
	}
	for i := range status.ContainerStatuses {
		if !status.ContainerStatuses[i].Ready {
			unready = append(unready, status.ContainerStatuses[i].Name)
		}
	}
	switch {
	case status.Phase == corev1.PodSucceeded:
		c.Status, c.Reason = corev1.ConditionFalse, "PodCompleted"
	case status.Phase == corev1.PodFailed:
		c.Status, c.Reason = corev1.ConditionFalse, "PodFailed"
	case len(unready) > 0:
		c.Status, c.Reason = corev1.ConditionFalse, "ContainersNotReady"
		c.Message = fmt.Sprintf("containers with unready status: %v", unready)
	}
	return c
}

// readinessGates is the condition Ready: the containers', and what others must
// say by the gates.
func (s *step) readinessGates(containers corev1.PodCondition) corev1.PodCondition {
	c := containers
	c.Type = corev1.PodReady
	if c.Status != corev1.ConditionTrue {
		return c
	}
	for _, gate := range s.Pod.Spec.ReadinessGates {
		at := slices.IndexFunc(s.Pod.Status.Conditions, func(o corev1.PodCondition) bool {
			return o.Type == gate.ConditionType
		})
		message := ""
		switch {
		case at < 0:
			message = fmt.Sprintf("corresponding condition of pod readiness gate %q does not exist.", gate.ConditionType)
		case s.Pod.Status.Conditions[at].Status != corev1.ConditionTrue:
			message = fmt.Sprintf("the status of pod readiness gate %q is not \"True\", but %v",
				gate.ConditionType, s.Pod.Status.Conditions[at].Status)
		default:
			continue
		}
		c.Status, c.Reason = corev1.ConditionFalse, "ReadinessGatesNotReady"
		if c.Message != "" {
			c.Message += ", "
		}
		c.Message += message
	}
	return c
}

func ended(phase corev1.PodPhase) bool {
	return phase == corev1.PodSucceeded || phase == corev1.PodFailed
}

func boolean(b bool) corev1.ConditionStatus {
	if b {
		return corev1.ConditionTrue
	}
	return corev1.ConditionFalse
}

// qosClass is Guaranteed when every container limits CPU and memory and asks
// for exactly that, BestEffort when none asks for anything, else Burstable.
func qosClass(spec *corev1.PodSpec) corev1.PodQOSClass {
	guaranteed, any := true, false
	for _, containers := range [][]corev1.Container{spec.InitContainers, spec.Containers} {
		for i := range containers {
			r := &containers[i].Resources
			for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
				request, limit := r.Requests[name], r.Limits[name]
				any = any || !request.IsZero() || !limit.IsZero()
				if limit.IsZero() || !request.IsZero() && request.Cmp(limit) != 0 {
					guaranteed = false
				}
			}
		}
	}
	switch {
	case !any:
		return corev1.PodQOSBestEffort
	case guaranteed:
		return corev1.PodQOSGuaranteed
	default:
		return corev1.PodQOSBurstable
	}
}
