package nodelifecycle

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/setpoint-dev/setpoint/controller"
	"github.com/setpoint-dev/setpoint/controllers/podcontrol"
	"github.com/setpoint-dev/setpoint/controllers/podfacts"
)

// PodReconciler evicts one pod when its node's taints ask for it. It may be called concurrently for
// different keys.
type PodReconciler struct {
	client client.Client
	clock  clock.PassiveClock
	events events.EventRecorder
}

func newPodReconciler(c client.Client, clk clock.PassiveClock,
	rec events.EventRecorder,
) *PodReconciler {
	return &PodReconciler{client: c, clock: clk, events: rec}
}

// Reconcile makes one pass over the pod that the request names.
func (r *PodReconciler) Reconcile(ctx context.Context,
	req reconcile.Request,
) (reconcile.Result, error) {
	pod := &corev1.Pod{}
	if err := r.client.Get(ctx, req.NamespacedName, pod); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	node, err := r.nodeOf(ctx, pod)
	if err != nil {
		return reconcile.Result{}, err
	}
	act := planPod(pod, node, r.clock.Now())
	switch {
	case act.End:
		return reconcile.Result{}, endPod(ctx, r.client, pod, nil)
	case act.Evict:
		return reconcile.Result{}, r.evict(ctx, pod)
	}
	return reconcile.Result{RequeueAfter: act.Wait}, nil
}

func (r *PodReconciler) nodeOf(ctx context.Context, pod *corev1.Pod) (*corev1.Node, error) {
	if pod.Spec.NodeName == "" {
		return nil, nil
	}
	node := &corev1.Node{}
	err := r.client.Get(ctx, types.NamespacedName{Name: pod.Spec.NodeName}, node)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	return node, err
}

// evict says on the pod why it goes, and deletes it.
func (r *PodReconciler) evict(ctx context.Context, pod *corev1.Pod) error {
	err := controller.PatchOwnStatus(ctx, r.client, pod, func() {
		podfacts.SetCondition(pod, corev1.PodCondition{
			Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: "DeletionByTaintManager",
			Message:            "A NoExecute taint of the node is not tolerated, or no longer.",
			LastTransitionTime: metav1.NewTime(r.clock.Now()),
		})
	})
	if err != nil {
		return client.IgnoreNotFound(err)
	}
	r.events.Eventf(pod, nil, corev1.EventTypeNormal, "TaintManagerEviction", "Evict",
		"Marking for deletion Pod %s/%s", pod.Namespace, pod.Name)
	return client.IgnoreNotFound(r.client.Delete(ctx, pod, client.Preconditions{UID: &pod.UID}))
}

// endPod records that a pod has failed, if it has not ended, for no agent will; and takes it away.
func endPod(ctx context.Context, c client.Client, pod *corev1.Pod, why *corev1.PodCondition) error {
	err := controller.PatchStatus(ctx, c, pod, func() {
		if podfacts.Terminal(pod) {
			return
		}
		pod.Status.Phase = corev1.PodFailed
		if why != nil {
			podfacts.SetCondition(pod, *why)
		}
	})
	if err != nil {
		return fmt.Errorf("record the end of pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	err = c.Delete(ctx, pod, client.Preconditions{UID: &pod.UID}, client.GracePeriodSeconds(0))
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("delete pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	return nil
}

// EndedReconciler bounds how many ended pods are kept. It has one key.
type EndedReconciler struct {
	client client.Client
	keep   int
}

// Reconcile makes one pass over all pods.
func (r *EndedReconciler) Reconcile(ctx context.Context,
	_ reconcile.Request,
) (reconcile.Result, error) {
	pods, err := podcontrol.List(ctx, r.client, client.UnsafeDisableDeepCopy)
	if err != nil {
		return reconcile.Result{}, err
	}
	var errs []error
	for _, pod := range planEnded(pods, r.keep) {
		errs = append(errs, endPod(ctx, r.client, pod.DeepCopy(), nil))
	}
	return reconcile.Result{}, errors.Join(errs...)
}
