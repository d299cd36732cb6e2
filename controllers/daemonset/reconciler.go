package daemonset

import (
	"context"
	"errors"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/setpoint-dev/setpoint/controllers/podcontrol"
	"github.com/setpoint-dev/setpoint/controllers/podfacts"
	"github.com/setpoint-dev/setpoint/controllers/revisions"
)

var kind = appsv1.SchemeGroupVersion.WithKind("DaemonSet")

// Reconciler brings one DaemonSet nearer to what it declares. It may be called concurrently for different
// keys.
type Reconciler struct {
	client  client.Client
	clock   clock.PassiveClock
	pods    podcontrol.Control
	history revisions.History
	streaks streaks
}

func newReconciler(c client.Client, live client.Reader, clk clock.PassiveClock, rec events.EventRecorder) *Reconciler {
	return &Reconciler{
		client: c, clock: clk,
		pods:    podcontrol.Control{Client: c, Live: live, Events: rec},
		history: revisions.History{Client: c, Live: live},
	}
}

// Reconcile makes one pass over the DaemonSet that the request names.
func (r *Reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	set := &appsv1.DaemonSet{}
	if err := r.client.Get(ctx, req.NamespacedName, set); err != nil {
		if apierrors.IsNotFound(err) {
			r.pods.Forget(req.NamespacedName)
			return reconcile.Result{}, nil
		}
		return reconcile.Result{}, err
	}
	if set.DeletionTimestamp != nil {
		return reconcile.Result{}, nil
	}
	pods, err := r.pods.Claim(ctx, podcontrol.Owner{Object: set, Kind: kind, Selector: set.Spec.Selector})
	if err != nil {
		return reconcile.Result{}, err
	}
	nodes, err := r.nodes(ctx)
	if err != nil {
		return reconcile.Result{}, err
	}
	owner := &revisions.Owner{
		Object: set, Kind: kind, Selector: set.Spec.Selector, Template: &set.Spec.Template,
		HashLabel:  appsv1.ControllerRevisionHashLabelKey,
		Collisions: ptr.Deref(set.Status.CollisionCount, 0),
	}
	current, all, err := r.history.Sync(ctx, owner)
	if err != nil {
		return reconcile.Result{}, err
	}
	hash := current.Labels[appsv1.ControllerRevisionHashLabelKey]
	snap := snapshot{
		Set: set, Nodes: nodes, Pods: pods, Hash: hash, Now: r.clock.Now(),
		Failures: func(node string) int { return r.streaks.failures(place{set.UID, node, hash}, r.clock.Now()) },
	}
	act := plan(snap)
	for _, pod := range act.Delete {
		if podfacts.Terminal(pod) && snap.updated(pod) {
			r.streaks.replaced(place{set.UID, nodeOf(pod), hash}, snap.Now)
		}
	}
	failure := r.apply(ctx, set, act, hash)
	next := status(snap)
	if owner.Collisions > 0 {
		next.CollisionCount = ptr.To(owner.Collisions)
	}
	if err := r.writeStatus(ctx, set, next); err != nil {
		return reconcile.Result{}, errors.Join(failure, err)
	}
	err = r.history.Truncate(ctx, all, func(rev *appsv1.ControllerRevision) bool {
		return rev.Name == current.Name || used(pods, rev.Labels[appsv1.ControllerRevisionHashLabelKey])
	}, ptr.Deref(set.Spec.RevisionHistoryLimit, 10))
	return reconcile.Result{RequeueAfter: act.Wait}, errors.Join(failure, err)
}

// used says whether a pod is of the revision with a hash.
func used(pods []*corev1.Pod, hash string) bool {
	for _, pod := range pods {
		if pod.Labels[appsv1.ControllerRevisionHashLabelKey] == hash {
			return true
		}
	}
	return false
}

func (r *Reconciler) nodes(ctx context.Context) ([]*corev1.Node, error) {
	var list corev1.NodeList
	if err := r.client.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		return nil, err
	}
	nodes := make([]*corev1.Node, len(list.Items))
	for i := range list.Items {
		nodes[i] = &list.Items[i]
	}
	return nodes, nil
}

// apply creates and deletes what the plan says.
func (r *Reconciler) apply(ctx context.Context, set *appsv1.DaemonSet, act actions, hash string) error {
	_, createErr := r.pods.CreateAll(ctx, set, len(act.Create), func(i int) error {
		return r.pods.Create(ctx, set, makePod(set, act.Create[i], hash))
	})
	return errors.Join(createErr, r.pods.DeleteAll(ctx, set, act.Delete))
}

func (r *Reconciler) writeStatus(ctx context.Context, set *appsv1.DaemonSet, next appsv1.DaemonSetStatus) error {
	if equality.Semantic.DeepEqual(set.Status, next) {
		return nil
	}
	set.Status = next
	return client.IgnoreNotFound(r.client.Status().Update(ctx, set))
}
