package serviceaccount

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// Reconciler provides one namespace. It may be called concurrently for different keys.
type Reconciler struct {
	client client.Client
	ca     []byte
}

func newReconciler(c client.Client, ca []byte) *Reconciler { return &Reconciler{client: c, ca: ca} }

// Reconcile makes one pass over the namespace that the request names.
func (r *Reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	snap := snapshot{Namespace: &corev1.Namespace{}, CA: r.ca}
	if err := r.client.Get(ctx, req.NamespacedName, snap.Namespace); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	var account corev1.ServiceAccount
	found, err := r.get(ctx, req.Name, accountName, &account)
	if err != nil {
		return reconcile.Result{}, err
	}
	if found {
		snap.Account = &account
	}
	var rootCA corev1.ConfigMap
	if found, err = r.get(ctx, req.Name, RootCAName, &rootCA); err != nil {
		return reconcile.Result{}, err
	}
	if found {
		snap.RootCA = &rootCA
	}
	return reconcile.Result{}, r.apply(ctx, plan(snap))
}

func (r *Reconciler) get(ctx context.Context, namespace, name string,
	into client.Object,
) (bool, error) {
	err := r.client.Get(ctx, types.NamespacedName{Namespace: namespace, Name: name}, into)
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	return err == nil, err
}

func (r *Reconciler) apply(ctx context.Context, act actions) error {
	var errs []error
	if act.CreateAccount != nil {
		errs = append(errs, r.create(ctx, act.CreateAccount))
	}
	if act.CreateRootCA != nil {
		errs = append(errs, r.create(ctx, act.CreateRootCA))
	}
	if act.UpdateRootCA != nil {
		if err := r.client.Update(ctx, act.UpdateRootCA); client.IgnoreNotFound(err) != nil {
			errs = append(errs, fmt.Errorf("update configmap %s: %w", RootCAName, err))
		}
	}
	return errors.Join(errs...)
}

// create makes the object unless it is there, or its namespace is going or gone.
func (r *Reconciler) create(ctx context.Context, object client.Object) error {
	err := r.client.Create(ctx, object)
	if err == nil || apierrors.IsAlreadyExists(err) || apierrors.IsNotFound(err) ||
		apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
		return nil
	}
	return fmt.Errorf("create %s: %w", object.GetName(), err)
}
