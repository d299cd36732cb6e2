package disruption

import (
	"context"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/setpoint-dev/setpoint/controllers/scales"
)

// scale adds up how many pods the controllers of some pods want, each controller counted once, and names
// the pods that have none.
func (r *Reconciler) scale(ctx context.Context, pods []*corev1.Pod) (total int32, unmanaged []string, err error) {
	known := map[types.UID]bool{}
	counted := map[types.UID]bool{}
	for _, pod := range pods {
		ref := metav1.GetControllerOfNoCopy(pod)
		if ref == nil {
			unmanaged = append(unmanaged, pod.Name)
			continue
		}
		if known[ref.UID] {
			continue
		}
		known[ref.UID] = true
		uid, n, err := r.scaleOf(ctx, pod.Namespace, ref)
		if err != nil {
			return 0, nil, fmt.Errorf("found no controllers for pod %q: %w", pod.Name, err)
		}
		if !counted[uid] {
			counted[uid] = true
			total += n
		}
	}
	return total, unmanaged, nil
}

// scaleOf returns what an owner of pods wants, or, for a ReplicaSet of a Deployment, what that wants.
func (r *Reconciler) scaleOf(ctx context.Context, namespace string, ref *metav1.OwnerReference) (types.UID, int32, error) {
	key := client.ObjectKey{Namespace: namespace, Name: ref.Name}
	var owner client.Object
	var replicas func() *int32
	switch {
	case is(ref, "apps", "ReplicaSet"):
		o := &appsv1.ReplicaSet{}
		owner, replicas = o, func() *int32 { return o.Spec.Replicas }
	case is(ref, "apps", "Deployment"):
		o := &appsv1.Deployment{}
		owner, replicas = o, func() *int32 { return o.Spec.Replicas }
	case is(ref, "apps", "StatefulSet"):
		o := &appsv1.StatefulSet{}
		owner, replicas = o, func() *int32 { return o.Spec.Replicas }
	case is(ref, "", "ReplicationController"):
		o := &corev1.ReplicationController{}
		owner, replicas = o, func() *int32 { return o.Spec.Replicas }
	default:
		return r.askScale(ctx, key, ref)
	}
	if err := r.client.Get(ctx, key, owner); err != nil {
		return "", 0, err
	}
	if owner.GetUID() != ref.UID {
		return "", 0, fmt.Errorf("%s %s has uid %s, not %s", ref.Kind, ref.Name, owner.GetUID(), ref.UID)
	}
	above := metav1.GetControllerOfNoCopy(owner)
	if above != nil && is(ref, "apps", "ReplicaSet") && is(above, "apps", "Deployment") {
		return r.scaleOf(ctx, namespace, above)
	}
	return owner.GetUID(), ptr.Deref(replicas(), 1), nil
}

// askScale asks the server for the scale of an owner of any other kind.
func (r *Reconciler) askScale(ctx context.Context, key client.ObjectKey, ref *metav1.OwnerReference) (types.UID, int32, error) {
	scale, err := scales.Get(ctx, r.client, scales.Target{
		APIVersion: ref.APIVersion, Kind: ref.Kind, Namespace: key.Namespace, Name: key.Name,
	})
	if err != nil {
		return "", 0, err
	}
	if scale.UID != ref.UID {
		return "", 0, fmt.Errorf("%s %s has uid %s, not %s", ref.Kind, ref.Name, scale.UID, ref.UID)
	}
	return ref.UID, scale.Spec.Replicas, nil
}

func is(ref *metav1.OwnerReference, group, kind string) bool {
	gv, err := schema.ParseGroupVersion(ref.APIVersion)
	return err == nil && gv.Group == group && ref.Kind == kind
}
