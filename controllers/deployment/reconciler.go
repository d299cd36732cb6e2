package deployment

import (
	"context"
	"errors"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
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

	"github.com/setpoint-dev/setpoint/cache"
	"github.com/setpoint-dev/setpoint/controllers/ownership"
)

var kind = appsv1.SchemeGroupVersion.WithKind("Deployment")

// Reconciler moves one Deployment a step towards what it declares. It may be called concurrently
// for different keys.
type Reconciler struct {
	client client.Client
	live   client.Reader
	clock  clock.PassiveClock
	events events.EventRecorder
	hash   func(template *corev1.PodTemplateSpec, collisions *int32) string
}

func newReconciler(c client.Client, live client.Reader, clk clock.PassiveClock,
	rec events.EventRecorder,
) *Reconciler {
	return &Reconciler{client: c, live: live, clock: clk, events: rec, hash: hashTemplate}
}

// Reconcile makes one pass over the Deployment that the request names.
func (r *Reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	d := &appsv1.Deployment{}
	if err := r.client.Get(ctx, req.NamespacedName, d); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	snap, err := r.observe(ctx, d)
	if err != nil {
		return reconcile.Result{}, err
	}
	act := plan(snap)
	if err := r.apply(ctx, d, act); err != nil {
		return reconcile.Result{}, err
	}
	if err := r.record(ctx, d, act); err != nil {
		return reconcile.Result{}, err
	}
	return reconcile.Result{RequeueAfter: act.Wait}, nil
}

// observe reads what a pass decides on, after adoptions and releases.
func (r *Reconciler) observe(ctx context.Context, d *appsv1.Deployment) (snapshot, error) {
	selector, err := ownership.Selector(d.Spec.Selector)
	if err != nil {
		return snapshot{}, reconcile.TerminalError(fmt.Errorf("spec.selector: %w", err))
	}
	var candidates []*appsv1.ReplicaSet
	for _, owner := range []types.UID{d.UID, ""} {
		var list appsv1.ReplicaSetList
		err := r.client.List(ctx, &list, client.InNamespace(d.Namespace),
			client.MatchingFields{cache.ControllerField: string(owner)}, client.UnsafeDisableDeepCopy)
		if err != nil {
			return snapshot{}, err
		}
		for i := range list.Items {
			candidates = append(candidates, &list.Items[i])
		}
	}
	claimer := ownership.Claimer{Client: r.client, Live: r.live}
	sets, err := ownership.Claim(ctx, claimer, d, kind, selector, candidates)
	if err != nil {
		return snapshot{}, err
	}
	snap := snapshot{Deployment: d, Sets: sets, Now: r.clock.Now(),
		Hash: r.hash(&d.Spec.Template, d.Status.CollisionCount)}
	if d.Spec.Strategy.Type == appsv1.RecreateDeploymentStrategyType {
		snap.Pods, err = r.podsOf(ctx, sets, selector)
	}
	return snap, err
}

// podsOf returns the pods of the sets.
func (r *Reconciler) podsOf(ctx context.Context, sets []*appsv1.ReplicaSet,
	selector labels.Selector,
) ([]*corev1.Pod, error) {
	if len(sets) == 0 {
		return nil, nil
	}
	own := map[types.UID]bool{}
	for _, set := range sets {
		own[set.UID] = true
	}
	var list corev1.PodList
	err := r.client.List(ctx, &list, client.InNamespace(sets[0].Namespace),
		client.MatchingLabelsSelector{Selector: selector}, client.UnsafeDisableDeepCopy)
	if err != nil {
		return nil, err
	}
	var pods []*corev1.Pod
	for i := range list.Items {
		if ref := metav1.GetControllerOfNoCopy(&list.Items[i]); ref != nil && own[ref.UID] {
			pods = append(pods, &list.Items[i])
		}
	}
	return pods, nil
}

// apply changes the sets as planned, and stops at the first failure: what follows was decided on
// its success.
func (r *Reconciler) apply(ctx context.Context, d *appsv1.Deployment, act actions) error {
	if act.Create != nil {
		if err := r.createSet(ctx, d, act.Create); err != nil {
			return err
		}
	}
	for _, c := range act.Update {
		if err := r.client.Update(ctx, c.To.DeepCopy()); err != nil {
			return fmt.Errorf("update replicaset %s: %w", c.To.Name, err)
		}
		r.reportScaling(d, c.To, ptr.Deref(c.From.Spec.Replicas, 1), *c.To.Spec.Replicas)
	}
	for _, set := range act.Remove {
		err := r.client.Delete(ctx, set.DeepCopy(), client.Preconditions{UID: &set.UID,
			ResourceVersion: &set.ResourceVersion})
		if client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("delete replicaset %s: %w", set.Name, err)
		}
	}
	return nil
}

// createSet makes the set of the declared template. If the name is taken, by a create whose answer
// was lost that set is the one; by another template the hash collided, and is changed.
func (r *Reconciler) createSet(ctx context.Context, d *appsv1.Deployment,
	set *appsv1.ReplicaSet,
) error {
	err := r.client.Create(ctx, set.DeepCopy())
	switch {
	case err == nil:
		r.reportScaling(d, set, 0, *set.Spec.Replicas)
		return nil
	case apierrors.IsAlreadyExists(err):
		return r.settleName(ctx, d, set, err)
	case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		return err
	}
	message := fmt.Sprintf("Cannot create replica set %q: %v", set.Name, err)
	r.events.Eventf(d, nil, corev1.EventTypeWarning, reasonCreateError, "Create", "%s", message)
	return errors.Join(err, r.record(ctx, d, actions{Status: withCreateError(d, message,
		r.clock.Now())}))
}

func (r *Reconciler) settleName(ctx context.Context, d *appsv1.Deployment, set *appsv1.ReplicaSet,
	taken error,
) error {
	found := &appsv1.ReplicaSet{}
	if err := r.live.Get(ctx, client.ObjectKeyFromObject(set), found); err != nil {
		return fmt.Errorf("read replicaset %s, whose name is taken: %w", set.Name, err)
	}
	if metav1.IsControlledBy(found, d) && sameTemplate(&found.Spec.Template, &set.Spec.Template) {
		return nil
	}
	next := *d.Status.DeepCopy()
	next.CollisionCount = ptr.To(ptr.Deref(next.CollisionCount, 0) + 1)
	return errors.Join(taken, r.writeStatus(ctx, d, next))
}

// record writes what the pass learned to the deployment: the status, and the revision, in one write.
// The status subresource takes annotations too; written to the deployment itself, one would count
// as a new generation that somebody asked for.
func (r *Reconciler) record(ctx context.Context, d *appsv1.Deployment, act actions) error {
	changed := !equality.Semantic.DeepEqual(d.Status, act.Status)
	if act.Revision != "" && d.Annotations[revisionAnnotation] != act.Revision {
		metav1.SetMetaDataAnnotation(&d.ObjectMeta, revisionAnnotation, act.Revision)
		changed = true
	}
	if !changed {
		return nil
	}
	return r.writeStatus(ctx, d, act.Status)
}

func (r *Reconciler) writeStatus(ctx context.Context, d *appsv1.Deployment,
	next appsv1.DeploymentStatus,
) error {
	d.Status = next
	return client.IgnoreNotFound(r.client.Status().Update(ctx, d))
}

func (r *Reconciler) reportScaling(d *appsv1.Deployment, set *appsv1.ReplicaSet, from, to int32) {
	if from == to {
		return
	}
	direction := "up"
	if to < from {
		direction = "down"
	}
	r.events.Eventf(d, set, corev1.EventTypeNormal, "ScalingReplicaSet", "Scale",
		"Scaled %s replica set %s from %d to %d", direction, set.Name, from, to)
}
