package replicaset

import (
	"context"
	"errors"
	"fmt"

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

	"github.com/setpoint-dev/setpoint/controllers/ownership"
	"github.com/setpoint-dev/setpoint/controllers/podcontrol"
	"github.com/setpoint-dev/setpoint/controllers/podfacts"
)

// Indexes the reconciler needs on pods and on ReplicaSets.
const (
	podsByController = "replicaset.pods.controller"
	setsByController = "replicaset.sets.controller"
)

var kind = appsv1.SchemeGroupVersion.WithKind("ReplicaSet")

// Reconciler brings one ReplicaSet to what it declares. It may be called concurrently for different
// keys.
type Reconciler struct {
	client client.Client
	live   client.Reader
	clock  clock.PassiveClock
	pods   podcontrol.Control
	doubts podcontrol.Doubts
}

func newReconciler(c client.Client, live client.Reader, clk clock.PassiveClock,
	rec events.EventRecorder,
) *Reconciler {
	return &Reconciler{client: c, live: live, clock: clk, pods: podcontrol.Control{Client: c, Events: rec}}
}

// Reconcile makes one pass over the ReplicaSet that the request names.
func (r *Reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	set := &appsv1.ReplicaSet{}
	if err := r.client.Get(ctx, req.NamespacedName, set); err != nil {
		if apierrors.IsNotFound(err) {
			r.doubts.Note(req.NamespacedName, nil)
			return reconcile.Result{}, nil
		}
		return reconcile.Result{}, err
	}
	pods, err := r.claimedPods(ctx, set)
	if err != nil {
		return reconcile.Result{}, err
	}
	snap := snapshot{Set: set, Pods: pods, Now: r.clock.Now(), Related: func() []*corev1.Pod {
		return r.siblingPods(ctx, set)
	}}
	act := plan(snap)
	failure := r.apply(ctx, set, act)
	if err := r.writeStatus(ctx, set, status(snap, act, failure)); err != nil {
		return reconcile.Result{}, errors.Join(failure, err)
	}
	return reconcile.Result{RequeueAfter: act.Wait}, failure
}

// claimedPods returns the pods the set owns, after adoptions and releases.
func (r *Reconciler) claimedPods(ctx context.Context, set *appsv1.ReplicaSet) ([]*corev1.Pod, error) {
	selector, err := metav1.LabelSelectorAsSelector(set.Spec.Selector)
	if err != nil {
		return nil, reconcile.TerminalError(fmt.Errorf("spec.selector: %w", err))
	}
	if selector.Empty() {
		return nil, reconcile.TerminalError(errors.New("spec.selector: is empty and would match every pod"))
	}
	pods, err := r.candidates(ctx, set)
	if err != nil {
		return nil, err
	}
	claimer := ownership.Claimer{Client: r.client, Live: r.live}
	return ownership.Claim(ctx, claimer, set, kind, selector, pods)
}

// candidates returns the pods of the namespace that the set owns or nobody does.
func (r *Reconciler) candidates(ctx context.Context, set *appsv1.ReplicaSet) ([]*corev1.Pod, error) {
	if r.doubts.Has(client.ObjectKeyFromObject(set)) {
		return podcontrol.List(ctx, r.live, client.InNamespace(set.Namespace))
	}
	owned, err := r.podsOf(ctx, set.Namespace, set.UID)
	if err != nil {
		return nil, err
	}
	orphans, err := r.podsOf(ctx, set.Namespace, "")
	return append(owned, filter(orphans, podfacts.Active)...), err
}

func (r *Reconciler) podsOf(ctx context.Context, namespace string,
	uid types.UID,
) ([]*corev1.Pod, error) {
	return podcontrol.List(ctx, r.client, client.InNamespace(namespace),
		client.MatchingFields{podsByController: string(uid)}, client.UnsafeDisableDeepCopy)
}

// siblingPods returns the pods of all sets that have the same controller, this one included. It
// only serves to rank pods: what cannot be read is left out.
func (r *Reconciler) siblingPods(ctx context.Context, set *appsv1.ReplicaSet) []*corev1.Pod {
	siblings := []types.UID{set.UID}
	if owner := metav1.GetControllerOfNoCopy(set); owner != nil {
		var list appsv1.ReplicaSetList
		err := r.client.List(ctx, &list, client.InNamespace(set.Namespace),
			client.MatchingFields{setsByController: string(owner.UID)}, client.UnsafeDisableDeepCopy)
		if err == nil {
			siblings = siblings[:0]
			for i := range list.Items {
				siblings = append(siblings, list.Items[i].UID)
			}
		}
	}
	var all []*corev1.Pod
	for _, uid := range siblings {
		if pods, err := r.podsOf(ctx, set.Namespace, uid); err == nil {
			all = append(all, pods...)
		}
	}
	return all
}

// apply creates and deletes what the plan says. A namespace that is being deleted refuses every
// create; that is not a failure of the set, and nothing is gained by trying again.
func (r *Reconciler) apply(ctx context.Context, set *appsv1.ReplicaSet, act actions) error {
	_, createErr := podcontrol.SlowStart(ctx, act.Create, func(int) error { return r.createPod(ctx, set) })
	if podcontrol.NamespaceEnds(createErr) {
		createErr = nil
	}
	r.doubts.Note(client.ObjectKeyFromObject(set), createErr)
	deleteErr := podcontrol.Together(len(act.Remove), func(i int) error {
		return r.pods.Delete(ctx, set, act.Remove[i])
	})
	return errors.Join(createErr, deleteErr)
}

func (r *Reconciler) createPod(ctx context.Context, set *appsv1.ReplicaSet) error {
	return r.pods.Create(ctx, set, podcontrol.FromTemplate(set, kind, &set.Spec.Template))
}

func (r *Reconciler) writeStatus(ctx context.Context, set *appsv1.ReplicaSet,
	next appsv1.ReplicaSetStatus,
) error {
	if equality.Semantic.DeepEqual(set.Status, next) {
		return nil
	}
	set.Status = next
	return client.IgnoreNotFound(r.client.Status().Update(ctx, set))
}
