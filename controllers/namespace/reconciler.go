package namespace

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/metadata"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// requestsMax is how many kinds of objects are deleted at once in a namespace.
const requestsMax = 8

// pageSize is how many objects are asked for at once where each has to be deleted by itself.
const pageSize = 500

// Discovery says which resources there are. With an error it may still return those it found.
type Discovery interface {
	ServerPreferredNamespacedResources() ([]*metav1.APIResourceList, error)
}

// Reconciler empties one namespace that is being deleted. It may be called concurrently for
// different keys.
type Reconciler struct {
	client    client.Client
	metadata  metadata.Interface
	discovery Discovery
	clock     clock.PassiveClock
}

func newReconciler(c client.Client, m metadata.Interface, d Discovery,
	clk clock.PassiveClock,
) *Reconciler {
	return &Reconciler{client: c, metadata: m, discovery: d, clock: clk}
}

// Reconcile makes one pass over the namespace that the request names.
func (r *Reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	ns := &corev1.Namespace{}
	if err := r.client.Get(ctx, req.NamespacedName, ns); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	if ns.DeletionTimestamp == nil || !slices.Contains(ns.Spec.Finalizers, corev1.FinalizerKubernetes) {
		return reconcile.Result{}, nil
	}
	found := r.empty(ctx, ns.Name)
	if err := ctx.Err(); err != nil {
		return reconcile.Result{}, err
	}
	if err := r.record(ctx, ns, found); err != nil {
		return reconcile.Result{}, err
	}
	if err := errors.Join(append(found.Deletion, found.Discovery, found.Parsing)...); err != nil {
		return reconcile.Result{}, err
	}
	if !found.Empty() {
		return reconcile.Result{RequeueAfter: lookAgain(r.clock.Since(ns.DeletionTimestamp.Time))}, nil
	}
	return reconcile.Result{}, r.release(ctx, ns)
}

// empty deletes what it can, stage by stage, and reports what is left. Kinds that could be
// discovered are deleted even if others could not.
func (r *Reconciler) empty(ctx context.Context, namespace string) report {
	found := newReport()
	var lists []*metav1.APIResourceList
	lists, found.Discovery = r.discovery.ServerPreferredNamespacedResources()
	var resources []resource
	resources, found.Parsing = deletable(lists)
	for _, stage := range stages(resources) {
		left := make([][]metav1.PartialObjectMetadata, len(stage))
		errs := make([]error, len(stage))
		var group errgroup.Group
		group.SetLimit(requestsMax)
		for i, resource := range stage {
			group.Go(func() error {
				left[i], errs[i] = r.deleteAll(ctx, resource, namespace)
				return nil
			})
		}
		_ = group.Wait() // the calls return nil; their errors are in errs
		for i, resource := range stage {
			found.note(resource.GroupVersionResource, left[i])
			if errs[i] != nil {
				found.Deletion = append(found.Deletion,
					fmt.Errorf("%s: %w", resource.GroupResource(), errs[i]))
			}
		}
		if len(found.Remaining) > 0 || len(found.Deletion) > 0 {
			break
		}
	}
	return found
}

// deleteAll deletes all objects of a resource in the namespace and returns those that are left,
// because they end gracefully or have finalizers. A resource that is gone has none.
func (r *Reconciler) deleteAll(ctx context.Context, resource resource,
	namespace string,
) ([]metav1.PartialObjectMetadata, error) {
	api := r.metadata.Resource(resource.GroupVersionResource).Namespace(namespace)
	left, err := list(ctx, api)
	if err != nil || len(left) == 0 {
		return nil, err
	}
	if slices.ContainsFunc(left, func(o metav1.PartialObjectMetadata) bool { return o.DeletionTimestamp == nil }) {
		if err := deleteThem(ctx, api, resource, left); err != nil {
			return left, err
		}
		return list(ctx, api)
	}
	return left, nil
}

func deleteThem(ctx context.Context, api metadata.ResourceInterface, resource resource,
	objects []metav1.PartialObjectMetadata,
) error {
	opts := metav1.DeleteOptions{PropagationPolicy: ptr.To(metav1.DeletePropagationBackground)}
	if resource.Collection {
		return client.IgnoreNotFound(api.DeleteCollection(ctx, opts, metav1.ListOptions{}))
	}
	var errs []error
	for i := range objects {
		if objects[i].DeletionTimestamp != nil {
			continue
		}
		if err := api.Delete(ctx, objects[i].Name, opts); client.IgnoreNotFound(err) != nil {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

func list(ctx context.Context, api metadata.ResourceInterface) ([]metav1.PartialObjectMetadata, error) {
	var all []metav1.PartialObjectMetadata
	for next := ""; ; {
		page, err := api.List(ctx, metav1.ListOptions{Limit: pageSize, Continue: next})
		if apierrors.IsNotFound(err) || apierrors.IsMethodNotSupported(err) {
			return nil, nil
		}
		if err != nil {
			return nil, err
		}
		all = append(all, page.Items...)
		if next = page.Continue; next == "" {
			return all, nil
		}
	}
}

// record writes phase and conditions if they differ.
func (r *Reconciler) record(ctx context.Context, ns *corev1.Namespace, found report) error {
	next, changed := conditions(ns.Status.Conditions, found, r.clock.Now())
	if !changed && ns.Status.Phase == corev1.NamespaceTerminating {
		return nil
	}
	ns.Status.Phase = corev1.NamespaceTerminating
	ns.Status.Conditions = next
	return client.IgnoreNotFound(r.client.Status().Update(ctx, ns))
}

// release takes away the finalizer that keeps the namespace until it is empty.
func (r *Reconciler) release(ctx context.Context, ns *corev1.Namespace) error {
	ns.Spec.Finalizers = slices.DeleteFunc(ns.Spec.Finalizers, func(f corev1.FinalizerName) bool {
		return f == corev1.FinalizerKubernetes
	})
	return client.IgnoreNotFound(r.client.SubResource("finalize").Update(ctx, ns))
}
