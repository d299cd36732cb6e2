package disruption_test

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/setpoint-dev/setpoint/controllers/controllertest"
	"github.com/setpoint-dev/setpoint/controllers/disruption"
	"github.com/setpoint-dev/setpoint/controllers/podfacts"
)

// TestMarkOfADisruptionThatDidNotComeIsTakenBack looks at pods that are marked, before two minutes are
// over and after.
func TestMarkOfADisruptionThatDidNotComeIsTakenBack(t *testing.T) {
	for _, c := range []struct {
		about  string
		change func(*corev1.Pod)
		want   bool // it is taken back
	}{
		{"marked", func(*corev1.Pod) {}, true},
		{"by its node", func(p *corev1.Pod) { p.Status.Conditions[0].Reason = "TerminationByKubelet" }, false},
		{"ended", func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed }, false},
		{"being deleted", func(p *corev1.Pod) {
			p.DeletionTimestamp, p.Finalizers = &metav1.Time{Time: controllertest.Start}, []string{"example.com/f"}
		}, false},
	} {
		t.Run(c.about, func(t *testing.T) {
			clock := controllertest.NewClock()
			pod := pods(1, 0)[0]
			pod.Status.Conditions = []corev1.PodCondition{{
				Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: "PreemptionByScheduler",
				LastTransitionTime: metav1.NewTime(clock.Now()),
			}}
			c.change(pod)
			cl := controllertest.NewClient(t, clock, nil, pod)
			pass := func() (reconcile.Result, corev1.ConditionStatus) {
				result, err := disruption.NewMarkReconciler(cl, clock).
					Reconcile(t.Context(), reconcile.Request{NamespacedName: client.ObjectKeyFromObject(pod)})
				if err != nil {
					t.Fatal(err)
				}
				got := &corev1.Pod{}
				if err := cl.Get(t.Context(), client.ObjectKeyFromObject(pod), got); err != nil {
					t.Fatal(err)
				}
				return result, podfacts.Condition(got, corev1.DisruptionTarget).Status
			}
			clock.Step(30 * time.Second)
			wait := map[bool]time.Duration{true: 90 * time.Second}[c.want]
			if result, status := pass(); status != corev1.ConditionTrue || result.RequeueAfter != wait {
				t.Errorf("after 30 s the mark is %s, looked at again in %s; want True, %s", status, result.RequeueAfter, wait)
			}
			clock.Step(wait)
			want := map[bool]corev1.ConditionStatus{true: corev1.ConditionFalse, false: corev1.ConditionTrue}[c.want]
			if _, status := pass(); status != want {
				t.Errorf("after two minutes the mark is %s, want %s", status, want)
			}
		})
	}
}

// A pod that is marked anew in the very moment in which its old mark is taken back stays marked.
func TestMarkThatIsRenewedStays(t *testing.T) {
	clock := controllertest.NewClock()
	pod := pods(1, 0)[0]
	pod.Status.Conditions = []corev1.PodCondition{{
		Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: "PreemptionByScheduler",
		LastTransitionTime: metav1.NewTime(clock.Now()),
	}}
	cl := controllertest.NewClient(t, clock, nil, pod)
	clock.Step(2 * time.Minute)
	key := client.ObjectKeyFromObject(pod)
	cl.Before = func(string, client.Object) error {
		cl.Before = nil
		if err := cl.Get(t.Context(), key, pod); err != nil {
			return err
		}
		pod.Status.Conditions[0].LastTransitionTime = metav1.NewTime(clock.Now())
		return cl.Status().Update(t.Context(), pod)
	}
	_, err := disruption.NewMarkReconciler(cl, clock).Reconcile(t.Context(), reconcile.Request{NamespacedName: key})
	if !apierrors.IsConflict(err) {
		t.Errorf("the pass returned %v, want a conflict", err)
	}
	if err := cl.Get(t.Context(), key, pod); err != nil {
		t.Fatal(err)
	}
	if c := podfacts.Condition(pod, corev1.DisruptionTarget); c.Status != corev1.ConditionTrue {
		t.Errorf("the mark is %s, want True", c.Status)
	}
}
