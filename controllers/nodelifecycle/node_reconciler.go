package nodelifecycle

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
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

// podsByNode is the index the reconciler needs on pods.
const podsByNode = "nodelifecycle.pods.node"

// confirmAfter is how soon a node is looked at again whose lease is newer at the server than in the
// cache: the cache is behind, and will have caught up.
const confirmAfter = time.Second

// NodeReconciler keeps one node's conditions and taints true to its lease, and ends the pods of a
// node that is gone. It may be called concurrently for different keys.
type NodeReconciler struct {
	client     client.Client
	live       client.Reader
	clock      clock.PassiveClock
	events     events.EventRecorder
	grace      grace
	quarantine time.Duration

	mu         sync.Mutex
	heartbeats map[string]heartbeat // by node
	missing    map[string]time.Time // since when a node that pods name has been missing
}

func newNodeReconciler(c client.Client, live client.Reader, clk clock.PassiveClock,
	rec events.EventRecorder, opts Options,
) *NodeReconciler {
	return &NodeReconciler{
		client: c, live: live, clock: clk, events: rec,
		grace:      grace{Running: opts.GracePeriod, Startup: opts.StartupGracePeriod},
		quarantine: opts.Quarantine,
		heartbeats: map[string]heartbeat{},
		missing:    map[string]time.Time{},
	}
}

// Reconcile makes one pass over the node that the request names.
func (r *NodeReconciler) Reconcile(ctx context.Context,
	req reconcile.Request,
) (reconcile.Result, error) {
	node := &corev1.Node{}
	err := r.client.Get(ctx, req.NamespacedName, node)
	if apierrors.IsNotFound(err) {
		return r.endOrphans(ctx, req.Name)
	}
	if err != nil {
		return reconcile.Result{}, err
	}
	silent, wait, err := r.listen(ctx, node)
	if err != nil {
		return reconcile.Result{}, err
	}
	if err := r.apply(ctx, node, planNode(node, silent, r.clock.Now())); err != nil {
		return reconcile.Result{}, err
	}
	if silent {
		err = r.markPodsNotReady(ctx, node.Name)
	}
	return reconcile.Result{RequeueAfter: wait}, err
}

// renewed takes note of a lease that was written, and says whether its node is to be looked at: if it
// is one that was silent. What a pass over the others would find can wait until their grace period
// is over, and a pass at every heartbeat of every node would be most of what there is to do.
func (r *NodeReconciler) renewed(lease *coordinationv1.Lease) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	beat, known := r.heartbeats[lease.Name]
	if known && lease.Spec.RenewTime != nil {
		r.heartbeats[lease.Name] = beat.renewed(lease.Spec.RenewTime.Time, r.clock.Now())
	}
	return known && !beat.Awaited
}

// listen reports whether the node's agent is silent, else how long it has until it is. That a lease
// has expired is believed only if the server says so too: the cache may lag.
func (r *NodeReconciler) listen(ctx context.Context,
	node *corev1.Node,
) (silent bool, wait time.Duration, err error) {
	lease := &coordinationv1.Lease{}
	key := types.NamespacedName{Namespace: corev1.NamespaceNodeLease, Name: node.Name}
	if err := r.client.Get(ctx, key, lease); client.IgnoreNotFound(err) != nil {
		return false, 0, err
	}
	now := r.clock.Now()
	r.mu.Lock()
	delete(r.missing, node.Name)
	beat := r.heartbeats[node.Name].observe(node, lease, now)
	wait = r.grace.left(beat, node, now)
	beat.Awaited = wait > 0
	r.heartbeats[node.Name] = beat
	r.mu.Unlock()
	if wait > 0 {
		return false, wait, nil
	}
	if err := r.live.Get(ctx, key, lease); client.IgnoreNotFound(err) != nil {
		return false, 0, fmt.Errorf("read the lease of node %s: %w", node.Name, err)
	}
	if lease.Spec.RenewTime != nil && lease.Spec.RenewTime.After(beat.Renewed) {
		return false, confirmAfter, nil
	}
	return true, 0, nil
}

func (r *NodeReconciler) apply(ctx context.Context, node *corev1.Node, act nodeActions) error {
	// An agent that has come back says so in the same conditions: what was decided is of what was read.
	err := controller.PatchStatus(ctx, r.client, node, func() {
		if act.Conditions != nil {
			node.Status.Conditions = act.Conditions
		}
	})
	if err != nil {
		return err
	}
	if act.Lost {
		r.events.Eventf(node, nil, corev1.EventTypeNormal, "NodeNotReady", "Watch",
			"Node %s status is now: NodeNotReady", node.Name)
	}
	if act.Taints == nil {
		return nil
	}
	base := node.DeepCopy()
	node.Spec.Taints = *act.Taints
	patch := client.MergeFromWithOptions(base, client.MergeFromWithOptimisticLock{})
	return client.IgnoreNotFound(r.client.Patch(ctx, node, patch))
}

// markPodsNotReady says of the pods of a silent node that they are not ready, so that nobody is
// sent to them.
func (r *NodeReconciler) markPodsNotReady(ctx context.Context, node string) error {
	pods, err := podcontrol.List(ctx, r.client, client.MatchingFields{podsByNode: node},
		client.UnsafeDisableDeepCopy)
	if err != nil {
		return err
	}
	var errs []error
	for _, pod := range pods {
		if !podfacts.Ready(pod) {
			continue
		}
		pod = pod.DeepCopy()
		ready := *podfacts.Condition(pod, corev1.PodReady)
		ready.Status = corev1.ConditionFalse
		ready.Reason, ready.Message = "NodeNotReady", ""
		ready.LastTransitionTime = metav1.NewTime(r.clock.Now())
		err := controller.PatchStatus(ctx, r.client, pod, func() { podfacts.SetCondition(pod, ready) })
		if err != nil {
			errs = append(errs, fmt.Errorf("mark pod %s/%s not ready: %w", pod.Namespace, pod.Name,
				err))
		}
	}
	return errors.Join(errs...)
}

// endOrphans ends the pods of a node that is gone: after it has been missing for the quarantine,
// and if the server, too, has no such node.
func (r *NodeReconciler) endOrphans(ctx context.Context, node string) (reconcile.Result, error) {
	pods, err := podcontrol.List(ctx, r.client, client.MatchingFields{podsByNode: node},
		client.UnsafeDisableDeepCopy)
	if err != nil {
		return reconcile.Result{}, err
	}
	now := r.clock.Now()
	r.mu.Lock()
	delete(r.heartbeats, node)
	since, known := r.missing[node]
	switch {
	case len(pods) == 0:
		delete(r.missing, node)
	case !known:
		since = now
		r.missing[node] = now
	}
	r.mu.Unlock()
	if len(pods) == 0 {
		return reconcile.Result{}, nil
	}
	if wait := since.Add(r.quarantine).Sub(now); wait > 0 {
		return reconcile.Result{RequeueAfter: wait}, nil
	}
	err = r.live.Get(ctx, types.NamespacedName{Name: node}, &corev1.Node{})
	if err == nil {
		return reconcile.Result{RequeueAfter: confirmAfter}, nil // the cache has yet to see it
	}
	if !apierrors.IsNotFound(err) {
		return reconcile.Result{}, fmt.Errorf("read node %s: %w", node, err)
	}
	var errs []error
	for _, pod := range pods {
		errs = append(errs, endPod(ctx, r.client, pod.DeepCopy(), &corev1.PodCondition{
			Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: "DeletionByPodGC",
			Message: "The node no longer exists.", LastTransitionTime: metav1.NewTime(now),
		}))
	}
	return reconcile.Result{}, errors.Join(errs...)
}
