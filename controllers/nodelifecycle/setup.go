package nodelifecycle

import (
	"context"
	"fmt"
	"slices"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/setpoint-dev/setpoint/controller"
	"github.com/setpoint-dev/setpoint/controllers/podcontrol"
	"github.com/setpoint-dev/setpoint/controllers/podfacts"
)

// Options are the settings of the node controllers. The zero value is a good default.
type Options struct {
	// GracePeriod is how long an agent may be silent; zero is 40 s, four of its heartbeats.
	GracePeriod time.Duration
	// StartupGracePeriod is the same for a node whose agent never posted a status; zero is 60 s.
	StartupGracePeriod time.Duration
	// Quarantine is how long a node has to be missing before its pods are ended; zero is 40 s.
	Quarantine time.Duration
	// EndedPodsMax is how many ended pods are kept; zero is 12500, Kubernetes' value.
	EndedPodsMax int
	// Workers is how many keys of a controller are worked on at once; zero is 5.
	Workers int
}

func (o Options) withDefaults() Options {
	set := func(d *time.Duration, value time.Duration) {
		if *d == 0 {
			*d = value
		}
	}
	set(&o.GracePeriod, 40*time.Second)
	set(&o.StartupGracePeriod, 60*time.Second)
	set(&o.Quarantine, 40*time.Second)
	if o.EndedPodsMax == 0 {
		o.EndedPodsMax = 12500
	}
	if o.Workers == 0 {
		o.Workers = 5
	}
	return o
}

// name is that of all three controllers in events and in the history of what it writes.
const name = "node-controller"

// Setup adds the node controllers to the manager.
func Setup(mgr *controller.Manager, opts Options) error {
	opts = opts.withDefaults()
	err := mgr.GetFieldIndexer().IndexField(context.Background(), &corev1.Pod{}, podsByNode, nodeName)
	if err != nil {
		return fmt.Errorf("index pods by node: %w", err)
	}
	recorder := mgr.GetEventRecorder(name)
	nodes := newNodeReconciler(mgr.GetClient(), mgr.GetAPIReader(), mgr.Clock(), recorder, opts)
	workers := controller.Options{FieldOwner: name, MaxConcurrentReconciles: opts.Workers}
	err = controller.ManagedBy(mgr).Named("nodelifecycle").
		For(&corev1.Node{}).
		Watches(&coordinationv1.Lease{}, nodes.onLease(), nodeLeases).
		Watches(&corev1.Pod{}, handler.EnqueueRequestsFromMapFunc(nodes.missingNode)).
		WithOptions(workers).
		Complete(nodes)
	if err != nil {
		return err
	}
	pods := newPodReconciler(mgr.GetClient(), mgr.Clock(), recorder)
	err = controller.ManagedBy(mgr).Named("tainteviction").
		For(&corev1.Pod{}, placementChanges).
		Watches(&corev1.Node{}, handler.EnqueueRequestsFromMapFunc(pods.onNode), evictionChanges).
		WithOptions(workers).
		Complete(pods)
	if err != nil {
		return err
	}
	return controller.ManagedBy(mgr).Named("endedpods").
		Watches(&corev1.Pod{}, handler.EnqueueRequestsFromMapFunc(oneKey), ended).
		WithOptions(controller.Options{FieldOwner: name}).
		Complete(&EndedReconciler{client: mgr.GetClient(), keep: opts.EndedPodsMax})
}

func nodeName(pod client.Object) []string {
	return []string{pod.(*corev1.Pod).Spec.NodeName}
}

// onLease has a node looked at whose lease comes or goes, or tells of a node that was silent.
func (r *NodeReconciler) onLease() handler.Funcs {
	type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]
	return handler.Funcs{
		CreateFunc: func(_ context.Context, e event.CreateEvent, q queue) { q.Add(leaseNode(e.Object)) },
		UpdateFunc: func(_ context.Context, e event.UpdateEvent, q queue) {
			if r.renewed(e.ObjectNew.(*coordinationv1.Lease)) {
				q.Add(leaseNode(e.ObjectNew))
			}
		},
		DeleteFunc: func(_ context.Context, e event.DeleteEvent, q queue) { q.Add(leaseNode(e.Object)) },
	}
}

func leaseNode(lease client.Object) reconcile.Request {
	return reconcile.Request{NamespacedName: types.NamespacedName{Name: lease.GetName()}}
}

// missingNode returns the node that the pod is on if there is none of that name.
func (r *NodeReconciler) missingNode(ctx context.Context, pod client.Object) []reconcile.Request {
	key := types.NamespacedName{Name: pod.(*corev1.Pod).Spec.NodeName}
	if key.Name == "" || !apierrors.IsNotFound(r.client.Get(ctx, key, &corev1.Node{},
		client.UnsafeDisableDeepCopy)) {
		return nil
	}
	return []reconcile.Request{{NamespacedName: key}}
}

// onNode returns the pods of the node.
func (r *PodReconciler) onNode(ctx context.Context, node client.Object) []reconcile.Request {
	pods, err := podcontrol.List(ctx, r.client, client.MatchingFields{podsByNode: node.GetName()},
		client.UnsafeDisableDeepCopy)
	if err != nil {
		return nil
	}
	requests := make([]reconcile.Request, len(pods))
	for i, pod := range pods {
		requests[i].NamespacedName = client.ObjectKeyFromObject(pod)
	}
	return requests
}

func oneKey(context.Context, client.Object) []reconcile.Request {
	return []reconcile.Request{{NamespacedName: types.NamespacedName{Name: "pods"}}}
}

// nodeLeases lets the leases of nodes through.
var nodeLeases = predicate.NewPredicateFuncs(func(lease client.Object) bool {
	return lease.GetNamespace() == corev1.NamespaceNodeLease
})

// placementChanges lets a pod through when it is placed, when what it tolerates changes and when it
// is told to go. Nothing else of a pod decides whether it is evicted.
var placementChanges = predicate.Funcs{
	CreateFunc: func(e event.CreateEvent) bool {
		pod := e.Object.(*corev1.Pod)
		return pod.Spec.NodeName != "" || pod.DeletionTimestamp != nil
	},
	UpdateFunc: func(e event.UpdateEvent) bool {
		before, after := e.ObjectOld.(*corev1.Pod), e.ObjectNew.(*corev1.Pod)
		return before.Spec.NodeName != after.Spec.NodeName || before.DeletionTimestamp == nil &&
			after.DeletionTimestamp != nil ||
			!equality.Semantic.DeepEqual(before.Spec.Tolerations, after.Spec.Tolerations)
	},
	DeleteFunc: func(event.DeleteEvent) bool { return false },
}

// evictionChanges lets a node through when its taints or its readiness change.
var evictionChanges = predicate.Funcs{
	CreateFunc: func(e event.CreateEvent) bool { return len(e.Object.(*corev1.Node).Spec.Taints) > 0 },
	UpdateFunc: func(e event.UpdateEvent) bool {
		before, after := e.ObjectOld.(*corev1.Node), e.ObjectNew.(*corev1.Node)
		return !slices.EqualFunc(before.Spec.Taints, after.Spec.Taints, sameTaint) ||
			nodeReady(before) != nodeReady(after)
	},
	DeleteFunc: func(event.DeleteEvent) bool { return false },
}

// ended lets a pod through that has ended.
var ended = predicate.Funcs{
	CreateFunc: func(e event.CreateEvent) bool { return podfacts.Terminal(e.Object.(*corev1.Pod)) },
	UpdateFunc: func(e event.UpdateEvent) bool {
		return !podfacts.Terminal(e.ObjectOld.(*corev1.Pod)) &&
			podfacts.Terminal(e.ObjectNew.(*corev1.Pod))
	},
	DeleteFunc: func(event.DeleteEvent) bool { return false },
}
