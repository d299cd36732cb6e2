package statefulset

import (
	"context"
	"errors"
	"fmt"

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
	"github.com/setpoint-dev/setpoint/controllers/revisions"
)

// hashLabel is where a revision of a StatefulSet has its hash.
const hashLabel = "controller.kubernetes.io/hash"

var kind = appsv1.SchemeGroupVersion.WithKind("StatefulSet")

// Reconciler brings one StatefulSet nearer to what it declares. It may be called concurrently for different
// keys.
type Reconciler struct {
	client  client.Client
	clock   clock.PassiveClock
	pods    podcontrol.Control
	history revisions.History
}

func newReconciler(c client.Client, live client.Reader, clk clock.PassiveClock, rec events.EventRecorder) *Reconciler {
	return &Reconciler{
		client: c, clock: clk,
		pods:    podcontrol.Control{Client: c, Live: live, Events: rec},
		history: revisions.History{Client: c, Live: live},
	}
}

// templates are those of the revisions that pods are of before and after a roll-out.
type templates struct{ current, update *corev1.PodTemplateSpec }

// Reconcile makes one pass over the StatefulSet that the request names.
func (r *Reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	set := &appsv1.StatefulSet{}
	if err := r.client.Get(ctx, req.NamespacedName, set); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	if set.DeletionTimestamp != nil {
		return reconcile.Result{}, nil
	}
	pods, err := r.pods.Claim(ctx, podcontrol.Owner{
		Object: set, Kind: kind, Selector: set.Spec.Selector,
		MayAdopt: func(pod *corev1.Pod) bool { return parentOf(pod) == set.Name },
	})
	if err != nil {
		return reconcile.Result{}, err
	}
	owner := &revisions.Owner{
		Object: set, Kind: kind, Selector: set.Spec.Selector, Template: &set.Spec.Template,
		HashLabel: hashLabel, Collisions: ptr.Deref(set.Status.CollisionCount, 0),
	}
	update, all, err := r.history.Sync(ctx, owner)
	if err != nil {
		return reconcile.Result{}, err
	}
	current := update
	for _, rev := range all {
		if rev.Name == set.Status.CurrentRevision {
			current = rev
		}
	}
	snap := snapshot{Set: set, Pods: pods, Current: current.Name, Update: update.Name, Now: r.clock.Now()}
	if err := r.retain(ctx, snap); err != nil {
		return reconcile.Result{}, err
	}
	act := plan(snap)
	failure := r.apply(ctx, snap, act, current, update)
	next := status(snap, act)
	next.CollisionCount = ptr.To(owner.Collisions)
	if err := r.writeStatus(ctx, set, next); err != nil {
		return reconcile.Result{}, errors.Join(failure, err)
	}
	err = r.history.Truncate(ctx, all, func(rev *appsv1.ControllerRevision) bool {
		return rev.Name == update.Name || rev.Name == next.CurrentRevision || used(pods, rev.Name)
	}, ptr.Deref(set.Spec.RevisionHistoryLimit, 10))
	return reconcile.Result{RequeueAfter: act.Wait}, errors.Join(failure, err)
}

// used says whether a pod is of a revision.
func used(pods []*corev1.Pod, revision string) bool {
	for _, pod := range pods {
		if revisionOf(pod) == revision {
			return true
		}
	}
	return false
}

// apply creates and deletes what the plan says. That a pod's name is taken is not a failure if it is by a
// pod that is going: it comes again then.
func (r *Reconciler) apply(ctx context.Context, s snapshot, act actions, current, update *appsv1.ControllerRevision) error {
	createErr := r.createAll(ctx, s.Set, act.Create, current, update)
	deleteErr := r.pods.DeleteAll(ctx, s.Set, act.Delete)
	return errors.Join(createErr, deleteErr)
}

func (r *Reconciler) createAll(ctx context.Context, set *appsv1.StatefulSet, list []newPod, current, update *appsv1.ControllerRevision) error {
	if len(list) == 0 {
		return nil
	}
	var from templates
	var err error
	if from.current, err = revisions.Template(current); err != nil {
		return err
	}
	if from.update, err = revisions.Template(update); err != nil {
		return err
	}
	_, err = podcontrol.SlowStart(ctx, len(list), func(i int) error {
		if err := r.createClaims(ctx, set, list[i].Ordinal); err != nil {
			return err
		}
		template, revision := from.current, current.Name
		if list[i].Updated {
			template, revision = from.update, update.Name
		}
		return r.pods.Create(ctx, set, makePod(set, template, list[i].Ordinal, revision))
	})
	if podcontrol.NamespaceEnds(err) {
		return nil
	}
	return err
}

// createClaims creates those of a pod's claims that are not there yet.
func (r *Reconciler) createClaims(ctx context.Context, set *appsv1.StatefulSet, number int) error {
	for _, claim := range claims(set, number) {
		found := &corev1.PersistentVolumeClaim{}
		err := r.client.Get(ctx, client.ObjectKeyFromObject(claim), found)
		if apierrors.IsNotFound(err) {
			err = r.client.Create(ctx, claim)
		} else if err == nil && goesWithPod(found) {
			err = errors.New("goes with the pod that had it; the next waits until it has gone")
		}
		if err != nil && !apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("claim %s: %w", claim.Name, err)
		}
	}
	return nil
}

func (r *Reconciler) writeStatus(ctx context.Context, set *appsv1.StatefulSet, next appsv1.StatefulSetStatus) error {
	if equality.Semantic.DeepEqual(set.Status, next) {
		return nil
	}
	set.Status = next
	return client.IgnoreNotFound(r.client.Status().Update(ctx, set))
}
