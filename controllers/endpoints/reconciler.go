package endpoints

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/setpoint-dev/setpoint/controllers/podcontrol"
)

//lint:file-ignore SA1019 Endpoints are kept for those who still read them.

// Publisher writes the Endpoints of one Service. It may be called concurrently for different keys.
type Publisher struct {
	client client.Client
	live   client.Reader // says what is left of a Service that is gone
	events events.EventRecorder
}

func newPublisher(c client.Client, live client.Reader, rec events.EventRecorder) *Publisher {
	return &Publisher{client: c, live: live, events: rec}
}

// Reconcile makes one pass over the Service that the request names.
func (r *Publisher) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	service := &corev1.Service{}
	if err := r.client.Get(ctx, req.NamespacedName, service); err != nil {
		if apierrors.IsNotFound(err) {
			return reconcile.Result{}, r.remove(ctx, req)
		}
		return reconcile.Result{}, err
	}
	if len(service.Spec.Selector) == 0 || service.Spec.Type == corev1.ServiceTypeExternalName ||
		service.DeletionTimestamp != nil {
		return reconcile.Result{}, nil // what there is was written by somebody else
	}
	pods, err := podcontrol.List(ctx, r.client, client.InNamespace(service.Namespace),
		client.MatchingLabels(service.Spec.Selector), client.UnsafeDisableDeepCopy)
	if err != nil {
		return reconcile.Result{}, err
	}
	current, err := get(ctx, r.client, req.NamespacedName, &corev1.Endpoints{})
	if err != nil {
		return reconcile.Result{}, err
	}
	next := plan(snapshot{Service: service, Pods: pods, Current: current})
	switch {
	case next == nil:
		return reconcile.Result{}, nil
	case current == nil:
		return reconcile.Result{}, r.create(ctx, service, next)
	}
	if err := r.client.Update(ctx, next); err != nil {
		return reconcile.Result{}, fmt.Errorf("update endpoints: %w", err)
	}
	return reconcile.Result{}, nil
}

func (r *Publisher) create(ctx context.Context, service *corev1.Service, next *corev1.Endpoints) error {
	err := r.client.Create(ctx, next)
	if err == nil || podcontrol.NamespaceEnds(err) {
		return nil
	}
	if !apierrors.IsAlreadyExists(err) {
		r.events.Eventf(service, nil, corev1.EventTypeWarning, "FailedToCreateEndpoint", "Create",
			"Failed to create endpoint for service %v/%v: %v", service.Namespace, service.Name, err)
	}
	return fmt.Errorf("create endpoints: %w", err)
}

// remove deletes the Endpoints of a Service that is gone, whoever wrote them, unless they are somebody's
// lock. What is there and what is not the server has to say: a cache may not have heard of either yet.
func (r *Publisher) remove(ctx context.Context, req reconcile.Request) error {
	left, err := get(ctx, r.live, req.NamespacedName, &corev1.Endpoints{})
	if err != nil || left == nil || left.DeletionTimestamp != nil {
		return err
	}
	if _, isLock := left.Annotations[resourcelock.LeaderElectionRecordAnnotationKey]; isLock {
		return nil
	}
	service, err := get(ctx, r.live, req.NamespacedName, &corev1.Service{})
	if err != nil || service != nil {
		return err
	}
	return client.IgnoreNotFound(r.client.Delete(ctx, left, client.Preconditions{UID: &left.UID}))
}

// Mirrorer mirrors the Endpoints of one Service into slices. It may be called concurrently for
// different keys.
type Mirrorer struct {
	client client.Client
}

func newMirrorer(c client.Client) *Mirrorer { return &Mirrorer{client: c} }

// Reconcile makes one pass over the Endpoints that the request names. Slices of Endpoints that are gone
// are collected as their dependents.
func (r *Mirrorer) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	m := mirrored{}
	var err error
	if m.Endpoints, err = get(ctx, r.client, req.NamespacedName, &corev1.Endpoints{}); err != nil || m.Endpoints == nil {
		return reconcile.Result{}, err
	}
	if m.Service, err = get(ctx, r.client, req.NamespacedName, &corev1.Service{}); err != nil {
		return reconcile.Result{}, err
	}
	var list discoveryv1.EndpointSliceList
	err = r.client.List(ctx, &list, client.InNamespace(req.Namespace), client.MatchingLabels{
		discoveryv1.LabelServiceName: req.Name, discoveryv1.LabelManagedBy: mirrorController,
	}, client.UnsafeDisableDeepCopy)
	if err != nil {
		return reconcile.Result{}, err
	}
	for i := range list.Items {
		m.Slices = append(m.Slices, &list.Items[i])
	}
	return reconcile.Result{}, mirror(m).Apply(ctx, r.client)
}

// get reads an object, or returns nil if it is not there.
func get[T client.Object](ctx context.Context, from client.Reader, key client.ObjectKey, into T) (found T, err error) {
	if err := from.Get(ctx, key, into); err != nil {
		return found, client.IgnoreNotFound(err)
	}
	return into, nil
}
