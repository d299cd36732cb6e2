package workergroup

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/setpoint-dev/setpoint/controller"
)

// Finalizer keeps a group until its license has been given back.
const Finalizer = "example.dev/license"

// Licenses is something outside that a group holds on to, and that nobody else will clean up.
type Licenses interface {
	// Return gives back the license of a group, by its uid. To return it twice is no error.
	Return(ctx context.Context, uid string) error
}

// Setup adds the controller to a manager.
func Setup(mgr *controller.Manager, licenses Licenses) error {
	return controller.ManagedBy(mgr).
		For(&WorkerGroup{}).
		Owns(&corev1.Pod{}).
		Complete(&reconciler{client: mgr.GetClient(), licenses: licenses})
}

type reconciler struct {
	client   client.Client
	licenses Licenses
}

// Reconcile makes one group as it should be.
func (r *reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	var group WorkerGroup
	if err := r.client.Get(ctx, req.NamespacedName, &group); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	if group.DeletionTimestamp != nil {
		return reconcile.Result{}, r.finalize(ctx, &group)
	}
	if err := controller.EnsureFinalizer(ctx, r.client, &group, Finalizer); err != nil {
		return reconcile.Result{}, err
	}
	workers, err := r.workers(ctx, &group)
	if err != nil {
		return reconcile.Result{}, err
	}
	if err := r.apply(ctx, MakePlan(&group, workers)); err != nil {
		return reconcile.Result{}, err
	}
	return reconcile.Result{}, r.report(ctx, &group, Observe(&group, workers))
}

// workers are the pods that the group controls.
func (r *reconciler) workers(ctx context.Context, group *WorkerGroup) ([]*corev1.Pod, error) {
	var pods corev1.PodList
	err := r.client.List(ctx, &pods,
		client.InNamespace(group.Namespace), client.MatchingLabels{groupLabel: group.Name})
	if err != nil {
		return nil, err
	}
	var own []*corev1.Pod
	for i := range pods.Items {
		if metav1.IsControlledBy(&pods.Items[i], group) {
			own = append(own, &pods.Items[i])
		}
	}
	return own, nil
}

func (r *reconciler) apply(ctx context.Context, plan Plan) error {
	for _, worker := range plan.Create {
		if err := r.client.Create(ctx, worker); err != nil {
			return fmt.Errorf("create worker %s: %w", worker.Name, err)
		}
	}
	for _, worker := range plan.Delete {
		if err := r.client.Delete(ctx, worker); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("delete worker %s: %w", worker.Name, err)
		}
	}
	return nil
}

// report writes the status, if it says anything new.
func (r *reconciler) report(ctx context.Context, group *WorkerGroup, seen Status) error {
	return controller.PatchStatus(ctx, r.client, group, func() { group.Status = seen })
}

// finalize gives back what the group holds and lets it go. The garbage collector sees to its workers.
func (r *reconciler) finalize(ctx context.Context, group *WorkerGroup) error {
	return controller.Finalize(ctx, r.client, group, Finalizer, func(ctx context.Context) error {
		return r.licenses.Return(ctx, string(group.UID))
	})
}
