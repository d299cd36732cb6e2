package podcontrol

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/setpoint-dev/setpoint/cache"
	"github.com/setpoint-dev/setpoint/controllers/ownership"
	"github.com/setpoint-dev/setpoint/controllers/podfacts"
)

// Owner is an object that pods are made for.
type Owner struct {
	Object   client.Object
	Kind     schema.GroupVersionKind
	Selector *metav1.LabelSelector
	// MayAdopt, if not nil, says which pods without a controller the owner may take for its own;
	// without it, all that match.
	MayAdopt func(*corev1.Pod) bool
}

// Claim returns the pods that the owner owns, after adoptions and releases; see package ownership.
// They are the cache's and must not be changed. While there is a doubt about the owner's pods, the
// server is asked instead of the cache.
// Possible errors: a terminal one if the selector is wrong; those of the reads and writes.
func (c *Control) Claim(ctx context.Context, o Owner) ([]*corev1.Pod, error) {
	selector, err := ownership.Selector(o.Selector)
	if err != nil {
		return nil, reconcile.TerminalError(fmt.Errorf("spec.selector: %w", err))
	}
	candidates, err := c.candidates(ctx, o)
	if err != nil {
		return nil, err
	}
	claimer := ownership.Claimer{Client: c.Client, Live: c.Live}
	return ownership.Claim(ctx, claimer, o.Object, o.Kind, selector, candidates)
}

// candidates returns the pods of the namespace that the owner owns or may adopt.
func (c *Control) candidates(ctx context.Context, o Owner) ([]*corev1.Pod, error) {
	namespace := o.Object.GetNamespace()
	if c.doubts.has(client.ObjectKeyFromObject(o.Object)) {
		return List(ctx, c.Live, client.InNamespace(namespace))
	}
	candidates, err := c.Owned(ctx, namespace, o.Object.GetUID())
	if err != nil {
		return nil, err
	}
	orphans, err := c.Owned(ctx, namespace, "")
	for _, pod := range orphans {
		if podfacts.Active(pod) && (o.MayAdopt == nil || o.MayAdopt(pod)) {
			candidates = append(candidates, pod)
		}
	}
	return candidates, err
}

// Owned returns the pods whose controller has the uid, or that have none if it is empty, as the
// cache has them.
func (c *Control) Owned(ctx context.Context, namespace string, uid types.UID) ([]*corev1.Pod, error) {
	return List(ctx, c.Client, client.InNamespace(namespace),
		client.MatchingFields{cache.ControllerField: string(uid)}, client.UnsafeDisableDeepCopy)
}

// List lists pods from either reader. What a cache returns is shared and must not be changed.
func List(ctx context.Context, from client.Reader, opts ...client.ListOption) ([]*corev1.Pod, error) {
	var list corev1.PodList
	if err := from.List(ctx, &list, opts...); err != nil {
		return nil, err
	}
	pods := make([]*corev1.Pod, len(list.Items))
	for i := range list.Items {
		pods[i] = &list.Items[i]
	}
	return pods, nil
}
