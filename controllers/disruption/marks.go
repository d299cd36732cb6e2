package disruption

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/setpoint-dev/setpoint/controller"
	"github.com/setpoint-dev/setpoint/controllers/podfacts"
)

// markMax is how long a pod may be marked as about to be disrupted and stay. It is Kubernetes' value.
const markMax = 2 * time.Minute

// MarkReconciler takes the condition DisruptionTarget back from pods that were marked and then were not
// deleted, as when whoever marked them stopped half-way. It may be called concurrently for different keys.
type MarkReconciler struct {
	client client.Client
	clock  clock.PassiveClock
}

func newMarkReconciler(c client.Client, clk clock.PassiveClock) *MarkReconciler {
	return &MarkReconciler{client: c, clock: clk}
}

// Reconcile makes one pass over the pod that the request names.
func (r *MarkReconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	pod := &corev1.Pod{}
	if err := r.client.Get(ctx, req.NamespacedName, pod); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	if !marked(pod) {
		return reconcile.Result{}, nil
	}
	since := podfacts.Condition(pod, corev1.DisruptionTarget).LastTransitionTime
	if wait := since.Add(markMax).Sub(r.clock.Now()); wait > 0 {
		return reconcile.Result{RequeueAfter: wait}, nil
	}
	// Somebody may have marked it anew meanwhile: it is the mark that was read that is taken back.
	return reconcile.Result{}, controller.PatchStatus(ctx, r.client, pod, func() {
		podfacts.SetCondition(pod, corev1.PodCondition{
			Type: corev1.DisruptionTarget, Status: corev1.ConditionFalse, LastTransitionTime: metav1.NewTime(r.clock.Now()),
		})
	})
}

// marked says whether a pod is about to be disrupted, and nothing was done about it. What its own node
// has decided may take any time.
func marked(pod *corev1.Pod) bool {
	c := podfacts.Condition(pod, corev1.DisruptionTarget)
	return c != nil && c.Status == corev1.ConditionTrue && c.Reason != corev1.PodReasonTerminationByKubelet &&
		pod.DeletionTimestamp == nil && !podfacts.Terminal(pod)
}

var marks = predicate.NewPredicateFuncs(func(pod client.Object) bool { return marked(pod.(*corev1.Pod)) })
