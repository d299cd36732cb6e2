package podfacts_test

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/setpoint-dev/setpoint/controllers/podfacts"
)

var start = time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)

func readyAt(at time.Time) *corev1.Pod {
	return &corev1.Pod{Status: corev1.PodStatus{Phase: corev1.PodRunning, Conditions: []corev1.PodCondition{{
		Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(at),
	}}}}
}

func TestAvailableAfterMinReadySeconds(t *testing.T) {
	pod := readyAt(start)
	for _, c := range []struct {
		minReady int32
		after    time.Duration
		want     bool
	}{
		{0, 0, true},
		{10, 9 * time.Second, false},
		{10, 10 * time.Second, true},
	} {
		if got := podfacts.Available(pod, c.minReady, start.Add(c.after)); got != c.want {
			t.Errorf("Available(minReadySeconds=%d, %v after ready) = %v, want %v", c.minReady, c.after, got, c.want)
		}
	}
	if podfacts.Available(readyAt(time.Time{}), 10, start) {
		t.Error("a pod that does not say since when it is ready counts as available")
	}
}

func TestNextAvailableIsTheEarliest(t *testing.T) {
	pods := []*corev1.Pod{readyAt(start.Add(3 * time.Second)), readyAt(start), readyAt(start.Add(-time.Hour)), {}}
	if got, want := podfacts.NextAvailable(pods, 10, start.Add(4*time.Second)), 6*time.Second; got != want {
		t.Errorf("NextAvailable = %v, want %v", got, want)
	}
	if got := podfacts.NextAvailable(pods, 10, start.Add(time.Hour)); got != 0 {
		t.Errorf("NextAvailable with all available = %v, want 0", got)
	}
}

func TestSetConditionKeepsTheTransitionTime(t *testing.T) {
	pod := readyAt(start)
	same := corev1.PodCondition{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(start.Add(time.Hour))}
	if podfacts.SetCondition(pod, same) {
		t.Error("setting the same status again reports a change")
	}
	same.Status = corev1.ConditionFalse
	if !podfacts.SetCondition(pod, same) || podfacts.Ready(pod) {
		t.Error("a changed status is not reported or not set")
	}
	if got := podfacts.Condition(pod, corev1.PodReady).LastTransitionTime.Time; !got.Equal(start.Add(time.Hour)) {
		t.Errorf("transition time = %v, want that of the change", got)
	}
}

func TestActiveTerminatingTerminal(t *testing.T) {
	now := metav1.NewTime(start)
	for _, c := range []struct {
		name                          string
		phase                         corev1.PodPhase
		deleted                       bool
		active, terminating, terminal bool
	}{
		{"running", corev1.PodRunning, false, true, false, false},
		{"pending", corev1.PodPending, false, true, false, false},
		{"leaving", corev1.PodRunning, true, false, true, false},
		{"failed", corev1.PodFailed, false, false, false, true},
		{"failed and deleted", corev1.PodFailed, true, false, false, true},
	} {
		pod := &corev1.Pod{Status: corev1.PodStatus{Phase: c.phase}}
		if c.deleted {
			pod.DeletionTimestamp = &now
		}
		got := [3]bool{podfacts.Active(pod), podfacts.Terminating(pod), podfacts.Terminal(pod)}
		if want := [3]bool{c.active, c.terminating, c.terminal}; got != want {
			t.Errorf("%s: active, terminating, terminal = %v, want %v", c.name, got, want)
		}
	}
}
