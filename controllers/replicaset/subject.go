package replicaset

import (
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// subject is an object that keeps pods: of a kind of its own, and planned as a ReplicaSet.
type subject interface {
	object() client.Object // as it is stored
	kind() schema.GroupVersionKind
	asSet() *appsv1.ReplicaSet // shares with the object what can be shared
	setStatus(status appsv1.ReplicaSetStatus)
}

// replicaSet is a ReplicaSet, which is planned as what it is.
type replicaSet struct{ *appsv1.ReplicaSet }

func emptySet() subject { return replicaSet{&appsv1.ReplicaSet{}} }

func (s replicaSet) object() client.Object { return s.ReplicaSet }

func (s replicaSet) kind() schema.GroupVersionKind {
	return appsv1.SchemeGroupVersion.WithKind("ReplicaSet")
}

func (s replicaSet) asSet() *appsv1.ReplicaSet { return s.ReplicaSet }

func (s replicaSet) setStatus(status appsv1.ReplicaSetStatus) { s.Status = status }

// replicationController is what there was before there were ReplicaSets: the same with a simpler
// selector.
type replicationController struct{ *corev1.ReplicationController }

func emptyController() subject { return replicationController{&corev1.ReplicationController{}} }

func (c replicationController) object() client.Object { return c.ReplicationController }

func (c replicationController) kind() schema.GroupVersionKind {
	return corev1.SchemeGroupVersion.WithKind("ReplicationController")
}

func (c replicationController) asSet() *appsv1.ReplicaSet {
	set := &appsv1.ReplicaSet{
		ObjectMeta: c.ObjectMeta,
		Spec: appsv1.ReplicaSetSpec{
			Replicas: c.Spec.Replicas, MinReadySeconds: c.Spec.MinReadySeconds, Selector: controllerSelector(c.ReplicationController),
		},
		Status: appsv1.ReplicaSetStatus{
			Replicas: c.Status.Replicas, FullyLabeledReplicas: c.Status.FullyLabeledReplicas,
			ReadyReplicas: c.Status.ReadyReplicas, AvailableReplicas: c.Status.AvailableReplicas,
			ObservedGeneration: c.Status.ObservedGeneration,
		},
	}
	if c.Spec.Template != nil {
		set.Spec.Template = *c.Spec.Template
	}
	for _, condition := range c.Status.Conditions {
		set.Status.Conditions = append(set.Status.Conditions, appsv1.ReplicaSetCondition{
			Type: appsv1.ReplicaSetConditionType(condition.Type), Status: condition.Status,
			LastTransitionTime: condition.LastTransitionTime, Reason: condition.Reason, Message: condition.Message,
		})
	}
	return set
}

func (c replicationController) setStatus(status appsv1.ReplicaSetStatus) {
	c.Status = corev1.ReplicationControllerStatus{
		Replicas: status.Replicas, FullyLabeledReplicas: status.FullyLabeledReplicas,
		ReadyReplicas: status.ReadyReplicas, AvailableReplicas: status.AvailableReplicas,
		ObservedGeneration: status.ObservedGeneration,
	}
	for _, condition := range status.Conditions {
		c.Status.Conditions = append(c.Status.Conditions, corev1.ReplicationControllerCondition{
			Type: corev1.ReplicationControllerConditionType(condition.Type), Status: condition.Status,
			LastTransitionTime: condition.LastTransitionTime, Reason: condition.Reason, Message: condition.Message,
		})
	}
}

// controllerSelector is the selector of a ReplicationController as that of a ReplicaSet.
func controllerSelector(c *corev1.ReplicationController) *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchLabels: c.Spec.Selector}
}
