package podcontrol_test

import (
	"context"
	"errors"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/setpoint-dev/setpoint/controllers/controllertest"
	"github.com/setpoint-dev/setpoint/controllers/podcontrol"
)

func TestSlowStartStopsAtTheFirstFailure(t *testing.T) {
	calls := 0
	made, err := podcontrol.SlowStart(context.Background(), 100, func(int) error { calls++; return errors.New("refused") })
	if made != 1 || calls != 1 || err == nil {
		t.Errorf("made %d, calls %d, error %v; want one call and its error", made, calls, err)
	}
}

// TestClaimAsksTheServerWhileInDoubt has creates fail in every way; a claim then finds the pod that only
// the server knows of, or does not look.
func TestClaimAsksTheServerWhileInDoubt(t *testing.T) {
	owner := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "o", Namespace: "ns", UID: "u"}}
	refused := apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "p", errors.New("quota"))
	reset := errors.New("connection reset")
	kind := corev1.SchemeGroupVersion.WithKind("ConfigMap")
	template := &corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"a": "b"}}}
	pod := podcontrol.FromTemplate(owner, kind, template)
	pod.Name = "made"
	clock := controllertest.NewClock()
	control := podcontrol.Control{
		Client: controllertest.NewClient(t, clock, nil),
		Live:   controllertest.NewClient(t, clock, nil, pod),
	}
	for _, step := range []struct {
		err  error
		want int
	}{
		{nil, 0},
		{refused, 0},
		{reset, 1},
		{errors.Join(refused, reset), 1},
		{apierrors.NewTimeoutError("slow", 1), 1},
		{errors.Join(refused, refused), 0},
		{reset, 1},
		{controllertest.NamespaceTerminating("ns"), 0},
	} {
		_, err := control.CreateAll(t.Context(), owner, 1, func(int) error { return step.err })
		if ends := podcontrol.NamespaceEnds(step.err); (err != nil) != (step.err != nil && !ends) {
			t.Errorf("CreateAll: %v after %v", err, step.err)
		}
		found, err := control.Claim(t.Context(), podcontrol.Owner{
			Object: owner, Kind: kind, Selector: &metav1.LabelSelector{MatchLabels: template.Labels},
		})
		if err != nil || len(found) != step.want {
			t.Errorf("after %v: %d pods claimed, want %d (%v)", step.err, len(found), step.want, err)
		}
	}
}

func TestClaimWantsASelector(t *testing.T) {
	owner := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "o", Namespace: "ns"}}
	var control podcontrol.Control
	for _, selector := range []*metav1.LabelSelector{
		{},
		{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "a", Operator: "Like"}}},
	} {
		_, err := control.Claim(t.Context(), podcontrol.Owner{Object: owner, Selector: selector})
		if !errors.Is(err, reconcile.TerminalError(nil)) {
			t.Errorf("claim by %v: %v, want a terminal error", selector, err)
		}
	}
}

func TestFromTemplateSharesNothing(t *testing.T) {
	owner := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "o", Namespace: "ns", UID: "u"}}
	template := &corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Name: "no", Labels: map[string]string{"a": "b"}}}
	pod := podcontrol.FromTemplate(owner, corev1.SchemeGroupVersion.WithKind("Pod"), template)
	pod.Labels["a"] = "c"
	if template.Labels["a"] != "b" {
		t.Error("the pod's labels are the template's")
	}
	if ref := metav1.GetControllerOf(pod); pod.Name != "" || pod.GenerateName != "o-" || ref == nil || ref.UID != "u" {
		t.Errorf("made %+v", pod.ObjectMeta)
	}
}
