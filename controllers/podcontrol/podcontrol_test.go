package podcontrol_test

import (
	"context"
	"errors"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/setpoint-dev/setpoint/controllers/podcontrol"
)

func TestSlowStartStopsAtTheFirstFailure(t *testing.T) {
	calls := 0
	made, err := podcontrol.SlowStart(context.Background(), 100, func(int) error { calls++; return errors.New("refused") })
	if made != 1 || calls != 1 || err == nil {
		t.Errorf("made %d, calls %d, error %v; want one call and its error", made, calls, err)
	}
}

func TestDoubtsAreAboutWhatIsUnknown(t *testing.T) {
	owner := types.NamespacedName{Namespace: "ns", Name: "o"}
	refused := apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "p", errors.New("quota"))
	var d podcontrol.Doubts
	for _, step := range []struct {
		err  error
		want bool
	}{
		{nil, false},
		{refused, false},
		{errors.New("connection reset"), true},
		{errors.Join(refused, errors.New("connection reset")), true},
		{apierrors.NewTimeoutError("slow", 1), true},
		{errors.Join(refused, refused), false},
		{errors.New("connection reset"), true},
		{nil, false},
	} {
		if d.Note(owner, step.err); d.Has(owner) != step.want {
			t.Errorf("after %v there is a doubt: %t", step.err, !step.want)
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
