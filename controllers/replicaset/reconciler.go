package replicaset

import (
	"context"
	"errors"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/setpoint-dev/setpoint/cache"
	"github.com/setpoint-dev/setpoint/controllers/podcontrol"
)

// Reconciler brings one ReplicaSet, or one ReplicationController, to what it declares. It may be called
// concurrently for different keys.
type Reconciler struct {
	client client.Client
	clock  clock.PassiveClock
	pods   podcontrol.Control
	empty  func() subject // of the kind that the reconciler is for
}

func newReconciler(c client.Client, live client.Reader, clk clock.PassiveClock,
	rec events.EventRecorder, empty func() subject,
) *Reconciler {
	return &Reconciler{
		client: c, clock: clk, empty: empty,
		pods: podcontrol.Control{Client: c, Live: live, Events: rec},
	}
}

// Reconcile makes one pass over the object that the request names.
func (r *Reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	s := r.empty()
	if err := r.client.Get(ctx, req.NamespacedName, s.object()); err != nil {
		if apierrors.IsNotFound(err) {
			r.pods.Forget(req.NamespacedName)
			return reconcile.Result{}, nil
		}
		return reconcile.Result{}, err
	}
	set := s.asSet()
	pods, err := r.pods.Claim(ctx, podcontrol.Owner{Object: s.object(), Kind: s.kind(), Selector: set.Spec.Selector})
	if err != nil {
		return reconcile.Result{}, err
	}
	snap := snapshot{Set: set, Pods: pods, Now: r.clock.Now(), Related: func() []*corev1.Pod {
		return r.siblingPods(ctx, set)
	}}
	act := plan(snap)
	failure := r.apply(ctx, s, set, act)
	if err := r.writeStatus(ctx, s, status(snap, act, failure)); err != nil {
		return reconcile.Result{}, errors.Join(failure, err)
	}
	return reconcile.Result{RequeueAfter: act.Wait}, failure
}

// siblingPods returns the pods of all sets that have the same controller, this one included. It
// only serves to rank pods: what cannot be read is left out.
func (r *Reconciler) siblingPods(ctx context.Context, set *appsv1.ReplicaSet) []*corev1.Pod {
	siblings := []types.UID{set.UID}
	if owner := metav1.GetControllerOfNoCopy(set); owner != nil {
		var list appsv1.ReplicaSetList
		err := r.client.List(ctx, &list, client.InNamespace(set.Namespace),
			client.MatchingFields{cache.ControllerField: string(owner.UID)}, client.UnsafeDisableDeepCopy)
		if err == nil {
			siblings = siblings[:0]
			for i := range list.Items {
				siblings = append(siblings, list.Items[i].UID)
			}
		}
	}
	var all []*corev1.Pod
	for _, uid := range siblings {
		if pods, err := r.pods.Owned(ctx, set.Namespace, uid); err == nil {
			all = append(all, pods...)
		}
	}
	return all
}

// apply creates and deletes what the plan says.
func (r *Reconciler) apply(ctx context.Context, s subject, set *appsv1.ReplicaSet, act actions) error {
	_, createErr := r.pods.CreateAll(ctx, s.object(), act.Create, func(int) error {
		return r.pods.Create(ctx, s.object(), podcontrol.FromTemplate(s.object(), s.kind(), &set.Spec.Template))
	})
	return errors.Join(createErr, r.pods.DeleteAll(ctx, s.object(), act.Remove))
}

// writeStatus writes a status, unless what the kind has room for of it is there already.
func (r *Reconciler) writeStatus(ctx context.Context, s subject, next appsv1.ReplicaSetStatus) error {
	before := s.asSet().Status
	s.setStatus(next)
	if equality.Semantic.DeepEqual(before, s.asSet().Status) {
		return nil
	}
	return client.IgnoreNotFound(r.client.Status().Update(ctx, s.object()))
}
