package statefulset

import (
	"cmp"
	"context"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/setpoint-dev/setpoint/controller"
)

// Options are the settings of the StatefulSet controller. The zero value is a good default.
type Options struct {
	// Workers is how many StatefulSets are worked on at once; zero is 5.
	Workers int
}

// name is the controller's in events and in the history of what it writes.
const name = "statefulset-controller"

// Setup adds the StatefulSet controller to the manager.
func Setup(mgr *controller.Manager, opts Options) error {
	r := newReconciler(mgr.GetClient(), mgr.GetAPIReader(), mgr.Clock(), mgr.GetEventRecorder(name))
	return controller.ManagedBy(mgr).Named("statefulset").
		For(&appsv1.StatefulSet{}).
		Owns(&corev1.Pod{}).
		Watches(&corev1.Pod{}, handler.EnqueueRequestsFromMapFunc(adopters)).
		WithOptions(controller.Options{FieldOwner: name, MaxConcurrentReconciles: cmp.Or(opts.Workers, 5)}).
		Complete(r)
}

// adopters returns the set that may adopt a pod that has no controller: the one it is named after.
func adopters(_ context.Context, pod client.Object) []reconcile.Request {
	if metav1.GetControllerOfNoCopy(pod) != nil || pod.GetDeletionTimestamp() != nil {
		return nil
	}
	name := parentOf(pod)
	if name == "" {
		return nil
	}
	return []reconcile.Request{{NamespacedName: client.ObjectKey{Namespace: pod.GetNamespace(), Name: name}}}
}

// parentOf is the name of the set that a pod is named after, or "".
func parentOf(pod client.Object) string {
	i := strings.LastIndexByte(pod.GetName(), '-')
	return pod.GetName()[:max(i, 0)]
}
