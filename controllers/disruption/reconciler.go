package disruption

import (
	"context"
	"errors"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/setpoint-dev/setpoint/controllers/podcontrol"
)

// Reconciler counts one PodDisruptionBudget. It may be called concurrently for different keys.
type Reconciler struct {
	client client.Client
	clock  clock.PassiveClock
	events events.EventRecorder
}

func newReconciler(c client.Client, clk clock.PassiveClock, rec events.EventRecorder) *Reconciler {
	return &Reconciler{client: c, clock: clk, events: rec}
}

// Reconcile makes one pass over the budget that the request names. If it cannot be counted, its status
// says why, and the pass is made again.
func (r *Reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	b := &policyv1.PodDisruptionBudget{}
	if err := r.client.Get(ctx, req.NamespacedName, b); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	if b.DeletionTimestamp != nil {
		return reconcile.Result{}, nil
	}
	act, notes, failure := r.decide(ctx, b)
	if failure != nil {
		act.Status = failed(b, failure, r.clock.Now())
		notes = []note{{corev1.EventTypeWarning, "CalculateExpectedPodCountFailed",
			"Failed to calculate the number of expected pods: " + failure.Error()}}
	}
	if equality.Semantic.DeepEqual(b.Status, act.Status) {
		return reconcile.Result{RequeueAfter: act.Wait}, failure
	}
	b.Status = act.Status
	if err := r.client.Status().Update(ctx, b); err != nil {
		return reconcile.Result{}, errors.Join(failure, client.IgnoreNotFound(err))
	}
	for _, n := range notes {
		r.events.Eventf(b, nil, n.level, n.reason, "Reconcile", "%s", n.message)
	}
	for _, pod := range act.Overdue {
		r.events.Eventf(pod, b, corev1.EventTypeWarning, "NotDeleted", "Evict",
			"Pod was expected by PDB %s/%s to be deleted but it wasn't", b.Namespace, b.Name)
	}
	return reconcile.Result{RequeueAfter: act.Wait}, failure
}

// note is an event about a budget.
type note struct{ level, reason, message string }

func (r *Reconciler) decide(ctx context.Context, b *policyv1.PodDisruptionBudget) (act actions, notes []note, err error) {
	selector, err := metav1.LabelSelectorAsSelector(b.Spec.Selector)
	if err != nil {
		return actions{}, nil, err
	}
	snap := snapshot{Budget: b, Now: r.clock.Now()}
	snap.Pods, err = podcontrol.List(ctx, r.client, client.InNamespace(b.Namespace),
		client.MatchingLabelsSelector{Selector: selector}, client.UnsafeDisableDeepCopy)
	if err != nil {
		return actions{}, nil, err
	}
	if len(snap.Pods) == 0 {
		notes = append(notes, note{corev1.EventTypeNormal, "NoPods", "No matching pods found"})
	}
	if needsScale(b) {
		var unmanaged []string
		if snap.Scale, unmanaged, err = r.scale(ctx, snap.Pods); err != nil {
			return actions{}, nil, err
		}
		if len(unmanaged) > 0 {
			notes = append(notes, note{corev1.EventTypeWarning, "UnmanagedPods", "Pods that this budget selects have " +
				"no controller and are left out of the reckoning; to have them counted, give spec.minAvailable as a number"})
		}
	}
	act, err = plan(snap)
	return act, notes, err
}
