package volumeprotection

import (
	"cmp"
	"context"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/setpoint-dev/setpoint/controller"
)

// Options are the settings of the controllers. The zero value is a good default.
type Options struct {
	// Workers is how many objects each controller works on at once; zero is 5.
	Workers int
}

// The controllers' names in the history of what they write.
const (
	claimOwner  = "persistentvolumeclaim-protection-controller"
	volumeOwner = "persistentvolume-protection-controller"
	classOwner  = "volumeattributesclass-protection-controller"
)

// Setup adds the controllers that protect claims, volumes and classes of their attributes to the manager.
func Setup(mgr *controller.Manager, opts Options) error {
	workers := cmp.Or(opts.Workers, 5)
	err := controller.ManagedBy(mgr).Named("persistentvolumeclaimprotection").
		For(&corev1.PersistentVolumeClaim{}).
		Watches(&corev1.Pod{}, handler.EnqueueRequestsFromMapFunc(claimsOf)).
		WithOptions(controller.Options{FieldOwner: claimOwner, MaxConcurrentReconciles: workers}).
		Complete(newClaims(mgr.GetClient(), mgr.GetAPIReader(), mgr.Clock()))
	if err != nil {
		return err
	}
	err = controller.ManagedBy(mgr).Named("persistentvolumeprotection").
		For(&corev1.PersistentVolume{}).
		WithOptions(controller.Options{FieldOwner: volumeOwner, MaxConcurrentReconciles: workers}).
		Complete(newVolumes(mgr.GetClient()))
	if err != nil {
		return err
	}
	return controller.ManagedBy(mgr).Named("volumeattributesclassprotection").
		For(&storagev1.VolumeAttributesClass{}).
		Watches(&corev1.PersistentVolumeClaim{}, handler.EnqueueRequestsFromMapFunc(requestsOfClasses)).
		Watches(&corev1.PersistentVolume{}, handler.EnqueueRequestsFromMapFunc(requestsOfClasses)).
		WithOptions(controller.Options{FieldOwner: classOwner, MaxConcurrentReconciles: workers}).
		Complete(newClasses(mgr.GetClient(), mgr.GetAPIReader()))
}

// requestsOfClasses wakes the classes that a claim or a volume has.
func requestsOfClasses(_ context.Context, o client.Object) (out []reconcile.Request) {
	for _, name := range classesOf(o) {
		out = append(out, reconcile.Request{NamespacedName: client.ObjectKey{Name: name}})
	}
	return out
}

// claimsOf wakes the claims that a pod has.
func claimsOf(_ context.Context, o client.Object) (out []reconcile.Request) {
	pod := o.(*corev1.Pod)
	for i := range pod.Spec.Volumes {
		if name := claimName(pod, &pod.Spec.Volumes[i]); name != "" {
			out = append(out, reconcile.Request{NamespacedName: client.ObjectKey{Namespace: pod.Namespace, Name: name}})
		}
	}
	return out
}
