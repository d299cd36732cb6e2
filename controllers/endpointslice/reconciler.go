package endpointslice

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// Reconciler publishes the endpoints of one Service. It may be called concurrently for different
// keys.
type Reconciler struct {
	client client.Client
}

func newReconciler(c client.Client) *Reconciler { return &Reconciler{client: c} }

// Reconcile makes one pass over the Service that the request names. Slices of a Service that is
// gone are collected as its dependents.
func (r *Reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	service := &corev1.Service{}
	if err := r.client.Get(ctx, req.NamespacedName, service); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	if len(service.Spec.Selector) == 0 {
		return reconcile.Result{}, nil
	}
	snap, err := r.observe(ctx, service)
	if err != nil {
		return reconcile.Result{}, err
	}
	return reconcile.Result{}, plan(snap).Apply(ctx, r.client)
}

func (r *Reconciler) observe(ctx context.Context, service *corev1.Service) (snapshot, error) {
	snap := snapshot{Service: service, Zones: map[string]string{}}
	var pods corev1.PodList
	err := r.client.List(ctx, &pods, client.InNamespace(service.Namespace),
		client.MatchingLabels(service.Spec.Selector), client.UnsafeDisableDeepCopy)
	if err != nil {
		return snapshot{}, err
	}
	for i := range pods.Items {
		snap.Pods = append(snap.Pods, &pods.Items[i])
	}
	var list discoveryv1.EndpointSliceList
	err = r.client.List(ctx, &list, client.InNamespace(service.Namespace), client.MatchingLabels{
		discoveryv1.LabelServiceName: service.Name, discoveryv1.LabelManagedBy: managedBy,
	}, client.UnsafeDisableDeepCopy)
	if err != nil {
		return snapshot{}, err
	}
	for i := range list.Items {
		snap.Slices = append(snap.Slices, &list.Items[i])
	}
	var nodes corev1.NodeList
	if err := r.client.List(ctx, &nodes, client.UnsafeDisableDeepCopy); err != nil {
		return snapshot{}, err
	}
	for i := range nodes.Items {
		if zone := nodes.Items[i].Labels[corev1.LabelTopologyZone]; zone != "" {
			snap.Zones[nodes.Items[i].Name] = zone
		}
	}
	return snap, nil
}
