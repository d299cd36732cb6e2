package node

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/setpoint-dev/setpoint/node/logs"
)

// What a status quotes of a log, as a kubelet does: its last lines.
const (
	quotedLinesMax = 80
	quotedBytesMax = 2 << 10
)

// addMessages gives instances that failed without a message the end of their
// log as one, where the pod asks for that. Each log is read once.
func (w *worker) addMessages(pod *corev1.Pod, state *PodState) {
	if state == nil {
		return
	}
	for i := range state.Containers {
		c := &state.Containers[i]
		spec := containerNamed(pod, c.ID.Name)
		if c.Running || c.ExitCode == 0 || c.Message != "" || spec == nil ||
			spec.TerminationMessagePolicy != corev1.TerminationMessageFallbackToLogsOnError {
			continue
		}
		if _, read := w.messages[c.ID]; !read {
			w.messages[c.ID] = logs.Tail(c.LogPath, quotedLinesMax, quotedBytesMax)
		}
		c.Message = w.messages[c.ID]
	}
}
