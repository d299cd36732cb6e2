// Package scheduler gives pods a node.
//
// It is a controller like any other; its work is "pods without a node get one". What it knows of
// nodes and placed pods is a ledger that events feed; each decision is a pure function of the
// ledger and the pod (place in plan.go); acting on it is a write of a binding. Pods that can't be
// placed say why in their condition PodScheduled and in an event, and are looked at again when
// something changes that may help, each with a back-off of its own.
//
// A pod that fits nowhere has pods of lower priority end, where that makes room (preempt in
// preempt.go): it is nominated for the node in its status, they are given the condition
// DisruptionTarget and deleted, with the time that they have to end. Budgets are kept if there is a
// choice.
//
// Pods that name another scheduler, or have scheduling gates, are left alone. Decisions are made one
// at a time, which takes microseconds and keeps two pods from being given the same place; the
// bindings, which wait for the disk, are written side by side.
package scheduler

import (
	"context"
	"errors"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/setpoint-dev/setpoint/controller"
)

// Reconciler places pods. It may be called concurrently, for different pods.
type Reconciler struct {
	client client.Client
	live   client.Reader
	clock  clock.PassiveClock
	events events.EventRecorder
	name   string

	ledger  *ledger
	waiting *waiting
}

func newReconciler(c client.Client, live client.Reader, clk clock.PassiveClock, rec events.EventRecorder, name string) *Reconciler {
	return &Reconciler{client: c, live: live, clock: clk, events: rec, name: name, ledger: newLedger(), waiting: newWaiting()}
}

// Reconcile places the pod that the request names, if it needs a place.
func (r *Reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	pod := &corev1.Pod{}
	if err := r.client.Get(ctx, req.NamespacedName, pod); err != nil {
		r.waiting.leave(req.NamespacedName)
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	if !r.needsPlace(pod) {
		r.waiting.leave(req.NamespacedName)
		return reconcile.Result{}, nil
	}
	if wait := r.waiting.remaining(req.NamespacedName, pod.UID, r.clock.Now()); wait > 0 {
		return reconcile.Result{RequeueAfter: wait}, nil
	}
	// It waits from before the decision, so that a change that comes during it wakes it.
	r.waiting.enter(req.NamespacedName, pod.UID, r.clock.Now())
	d := r.ledger.place(pod, r.namespaceLabels(ctx))
	if d.node == "" {
		return reconcile.Result{RequeueAfter: lookAgain}, r.makeRoom(ctx, pod, d)
	}
	r.waiting.leave(req.NamespacedName)
	return reconcile.Result{}, r.bind(ctx, pod, d.node)
}

func (r *Reconciler) needsPlace(pod *corev1.Pod) bool {
	return pod.Spec.NodeName == "" && pod.DeletionTimestamp == nil && pod.Spec.SchedulerName == r.name &&
		len(pod.Spec.SchedulingGates) == 0 && !terminal(pod) && !controller.Paused(pod)
}

// bind writes the binding. If the answer is an error the server is asked what is true: a write that
// timed out may have happened, and a pod is never given away twice.
func (r *Reconciler) bind(ctx context.Context, pod *corev1.Pod, node string) error {
	err := r.client.SubResource("binding").Create(ctx, pod, &corev1.Binding{
		ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID},
		Target:     corev1.ObjectReference{Kind: "Node", Name: node},
	})
	if err != nil {
		return r.afterFailedBind(ctx, pod, err)
	}
	r.events.Eventf(pod, nil, corev1.EventTypeNormal, "Scheduled", "Binding",
		"Successfully assigned %s/%s to %s", pod.Namespace, pod.Name, node)
	return nil
}

// afterFailedBind returns nil if there is nothing left to do, and the error if the pod still needs a
// place.
func (r *Reconciler) afterFailedBind(ctx context.Context, pod *corev1.Pod, failure error) error {
	now := &corev1.Pod{}
	err := r.live.Get(ctx, client.ObjectKeyFromObject(pod), now)
	switch {
	case apierrors.IsNotFound(err) || (err == nil && now.UID != pod.UID):
		r.ledger.dropPod(pod.UID)
		return nil
	case err != nil:
		// Nobody knows. The assumption stays, so that the place is not given to another pod; the next
		// try binds to the same node, or finds out.
		return failure
	case now.Spec.NodeName != "":
		r.ledger.setPod(now)
		return nil
	default:
		r.ledger.forget(pod.UID)
		return failure
	}
}

// makeRoom has others end for a pod that was refused, if that helps, and tells the pod where it
// stands. It is nominated first: what is not written then is decided anew.
func (r *Reconciler) makeRoom(ctx context.Context, pod *corev1.Pod, d decision) error {
	var list policyv1.PodDisruptionBudgetList
	if err := r.client.List(ctx, &list); err != nil {
		return err
	}
	p := r.ledger.preempt(pod, r.namespaceLabels(ctx), budgetsOf(list.Items))
	if err := r.refuse(ctx, pod, d.message(), p.node); err != nil {
		r.ledger.unnominate(pod.UID)
		return ignoreReplaced(err)
	}
	var failures []error
	for _, victim := range p.victims {
		failures = append(failures, ignoreReplaced(r.end(ctx, victim, pod, p.node)))
	}
	return errors.Join(failures...)
}

// refuse tells the pod why it has no node, and for which it is nominated, if it has not been told the
// same before.
func (r *Reconciler) refuse(ctx context.Context, pod *corev1.Pod, message, nominated string) error {
	changed := pod.DeepCopy()
	return controller.PatchOwnStatus(ctx, r.client, changed, func() {
		news := setCondition(changed, corev1.PodCondition{
			Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable,
			Message: message, LastTransitionTime: metav1.NewTime(r.clock.Now()),
		})
		changed.Status.NominatedNodeName = nominated
		if news {
			r.events.Eventf(pod, nil, corev1.EventTypeWarning, "FailedScheduling", "Scheduling", "%s", message)
		}
	})
}

// end says on a pod why it goes, and deletes it.
func (r *Reconciler) end(ctx context.Context, victim, preemptor *corev1.Pod, node string) error {
	changed := victim.DeepCopy()
	err := controller.PatchOwnStatus(ctx, r.client, changed, func() {
		setCondition(changed, corev1.PodCondition{
			Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: corev1.PodReasonPreemptionByScheduler,
			Message:            r.name + ": preempting to accommodate a higher priority pod",
			LastTransitionTime: metav1.NewTime(r.clock.Now()),
		})
	})
	if err != nil {
		return err
	}
	if err := r.client.Delete(ctx, victim, client.Preconditions{UID: &victim.UID}); err != nil {
		return err
	}
	r.events.Eventf(victim, preemptor, corev1.EventTypeNormal, "Preempted", "Preempting",
		"Preempted by pod %v on node %v", preemptor.UID, node)
	return nil
}

// ignoreReplaced returns nil if a pod is gone, or another one has its name.
func ignoreReplaced(err error) error {
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil
	}
	return err
}

// setCondition sets a condition and says whether that changed anything. The time of a transition is
// kept if the status is.
func setCondition(pod *corev1.Pod, c corev1.PodCondition) bool {
	for i := range pod.Status.Conditions {
		old := &pod.Status.Conditions[i]
		if old.Type != c.Type {
			continue
		}
		if old.Status == c.Status {
			c.LastTransitionTime = old.LastTransitionTime
		}
		changed := old.Status != c.Status || old.Reason != c.Reason || old.Message != c.Message
		*old = c
		return changed
	}
	pod.Status.Conditions = append(pod.Status.Conditions, c)
	return true
}

func (r *Reconciler) namespaceLabels(ctx context.Context) labelsOf {
	return func(name string) labels.Set {
		ns := &corev1.Namespace{}
		if err := r.client.Get(ctx, types.NamespacedName{Name: name}, ns); err != nil {
			return nil
		}
		return ns.Labels
	}
}
