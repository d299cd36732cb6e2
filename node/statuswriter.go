package node

import (
	"context"
	"encoding/json"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// A status that could not be written is tried again after 0.2 s, 0.4 s, … 10 s.
const (
	writeDelayMin = 200 * time.Millisecond
	writeDelayMax = 10 * time.Second
)

// statusWriter writes a pod's status, one write at a time, and only when it
// differs from the newest that is known. It belongs to a worker's goroutine.
type statusWriter struct {
	writing bool
	delay   time.Duration // after failures
	retry   time.Time
}

// write begins a write if one is needed. It reports whether the status is what
// the server has, and when to come again after a failure.
func (s *statusWriter) write(
	ctx context.Context, w *worker, pod *corev1.Pod, status corev1.PodStatus,
) (written bool, retry time.Time) {
	if equality.Semantic.DeepEqual(pod.Status, status) {
		return !s.writing, time.Time{}
	}
	if s.writing {
		return false, time.Time{}
	}
	if w.agent.Clock.Now().Before(s.retry) {
		return false, s.retry
	}
	patch, err := statusPatch(pod, status)
	if err != nil {
		w.log.Error("status", "error", err)
		return false, time.Time{}
	}
	s.writing = true
	w.tasks.Go(func() {
		target := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name}}
		err := ask(ctx, func(ctx context.Context) error {
			return w.agent.Client.Status().Patch(ctx, target, client.RawPatch(types.StrategicMergePatchType, patch))
		})
		w.post(func() {
			s.writing = false
			s.done(w, target, err)
		})
	})
	return false, time.Time{}
}

func (s *statusWriter) done(w *worker, result *corev1.Pod, err error) {
	switch {
	case err == nil:
		s.delay, s.retry = 0, time.Time{}
		// The next step sees the own write, even if the watch is late.
		w.see(result)
	case apierrors.IsNotFound(err) || apierrors.IsConflict(err):
		// Gone, or another by the same name; the watch will tell.
		s.retry = w.agent.Clock.Now().Add(writeDelayMax)
	default:
		w.log.Warn("writing the status", "error", err)
		s.delay = min(max(writeDelayMin, 2*s.delay), writeDelayMax)
		s.retry = w.agent.Clock.Now().Add(s.delay)
	}
}

// statusPatch is the difference as a strategic merge patch, so that conditions
// of others stay, bound to this very pod by its uid.
func statusPatch(pod *corev1.Pod, status corev1.PodStatus) ([]byte, error) {
	before, err := json.Marshal(corev1.Pod{Status: pod.Status})
	if err != nil {
		return nil, err
	}
	after, err := json.Marshal(corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: pod.UID}, Status: status})
	if err != nil {
		return nil, err
	}
	return strategicpatch.CreateTwoWayMergePatch(before, after, corev1.Pod{})
}
