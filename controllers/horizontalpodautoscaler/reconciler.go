package horizontalpodautoscaler

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/setpoint-dev/setpoint/controllers/podcontrol"
	"github.com/setpoint-dev/setpoint/controllers/scales"
)

// period is how often each autoscaler is looked at. It is Kubernetes' value.
const period = 15 * time.Second

// Reconciler keeps one autoscaler's target at its size. It may be called concurrently for different keys.
type Reconciler struct {
	client client.Client
	live   client.Reader // asks for metrics, which no cache has
	clock  clock.PassiveClock
	events events.EventRecorder

	mu        sync.Mutex
	histories map[types.NamespacedName]*history // each is used by one pass at a time
}

func newReconciler(c client.Client, live client.Reader, clk clock.PassiveClock, rec events.EventRecorder) *Reconciler {
	return &Reconciler{client: c, live: live, clock: clk, events: rec, histories: map[types.NamespacedName]*history{}}
}

// Reconcile makes one pass over the autoscaler that the request names.
func (r *Reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	hpa := &autoscalingv2.HorizontalPodAutoscaler{}
	if err := r.client.Get(ctx, req.NamespacedName, hpa); err != nil {
		if apierrors.IsNotFound(err) {
			r.forget(req.NamespacedName)
		}
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	if hpa.DeletionTimestamp != nil {
		return reconcile.Result{}, nil
	}
	target := targetOf(hpa)
	scale, err := scales.Get(ctx, r.client, target)
	if err != nil {
		next := *hpa.Status.DeepCopy()
		setCondition(&next, autoscalingv2.AbleToScale, false, "FailedGetScale",
			"the HPA controller was unable to get the target's current scale: "+err.Error(), r.clock.Now())
		return reconcile.Result{RequeueAfter: period}, r.writeStatus(ctx, hpa, next)
	}
	snap := snapshot{
		HPA: hpa, Scale: scale, Now: r.clock.Now(), History: r.history(req.NamespacedName),
		Samples: func(resource corev1.ResourceName, container string) (map[string]sample, error) {
			return r.samples(ctx, hpa.Namespace, scale.Status.Selector, resource, container)
		},
	}
	if snap.Pods, err = r.pods(ctx, hpa.Namespace, scale.Status.Selector); err != nil {
		return reconcile.Result{}, err
	}
	act := plan(snap)
	failure := r.rescale(ctx, snap, target, &act)
	return reconcile.Result{RequeueAfter: period}, errors.Join(failure, r.writeStatus(ctx, hpa, act.Status))
}

func targetOf(hpa *autoscalingv2.HorizontalPodAutoscaler) scales.Target {
	ref := hpa.Spec.ScaleTargetRef
	return scales.Target{APIVersion: ref.APIVersion, Kind: ref.Kind, Namespace: hpa.Namespace, Name: ref.Name}
}

func (r *Reconciler) pods(ctx context.Context, namespace, selector string) ([]*corev1.Pod, error) {
	if selector == "" {
		return nil, nil
	}
	s, err := labels.Parse(selector)
	if err != nil {
		return nil, reconcile.TerminalError(fmt.Errorf("the target's selector: %w", err))
	}
	return podcontrol.List(ctx, r.client, client.InNamespace(namespace), client.MatchingLabelsSelector{Selector: s},
		client.UnsafeDisableDeepCopy)
}

// rescale scales the target, if it is to be, and says so in the plan's status.
func (r *Reconciler) rescale(ctx context.Context, s snapshot, target scales.Target, act *actions) error {
	from := s.Scale.Spec.Replicas
	if act.Replicas == from {
		return nil
	}
	scale := s.Scale.DeepCopy()
	scale.Spec.Replicas = act.Replicas
	if err := scales.Update(ctx, r.client, target, scale); err != nil {
		act.set(s, autoscalingv2.AbleToScale, false, "FailedUpdateScale", "the HPA controller was unable to update the target scale: "+err.Error())
		act.Status.DesiredReplicas = from
		r.events.Eventf(s.HPA, nil, corev1.EventTypeWarning, "FailedRescale", "Rescale",
			"New size: %d; reason: %s; error: %v", act.Replicas, act.Reason, err)
		return fmt.Errorf("rescale: %w", err)
	}
	s.History.scaled(from, act.Replicas, s.Now)
	act.set(s, autoscalingv2.AbleToScale, true, "SucceededRescale",
		fmt.Sprintf("the HPA controller was able to update the target scale to %d", act.Replicas))
	act.Status.LastScaleTime = ptr.To(metav1.NewTime(s.Now))
	r.events.Eventf(s.HPA, nil, corev1.EventTypeNormal, "SuccessfulRescale", "Rescale", "New size: %d; reason: %s", act.Replicas, act.Reason)
	return nil
}

// writeStatus writes a status that is another, and tells of conditions that have become false.
func (r *Reconciler) writeStatus(ctx context.Context, hpa *autoscalingv2.HorizontalPodAutoscaler,
	next autoscalingv2.HorizontalPodAutoscalerStatus,
) error {
	if equality.Semantic.DeepEqual(hpa.Status, next) {
		return nil
	}
	before := map[autoscalingv2.HorizontalPodAutoscalerConditionType]string{}
	for _, c := range hpa.Status.Conditions {
		before[c.Type] = c.Reason
	}
	hpa.Status = next
	if err := r.client.Status().Update(ctx, hpa); err != nil {
		return client.IgnoreNotFound(err)
	}
	for _, c := range next.Conditions {
		trouble := c.Type == autoscalingv2.ScalingActive && c.Reason != "ScalingDisabled" || c.Type == autoscalingv2.AbleToScale
		if trouble && c.Status == corev1.ConditionFalse && before[c.Type] != c.Reason {
			r.events.Eventf(hpa, nil, corev1.EventTypeWarning, c.Reason, "Reconcile", "%s", c.Message)
		}
	}
	return nil
}

func (r *Reconciler) history(key types.NamespacedName) *history {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.histories[key] == nil {
		r.histories[key] = &history{}
	}
	return r.histories[key]
}

func (r *Reconciler) forget(key types.NamespacedName) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.histories, key)
}
