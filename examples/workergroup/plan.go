package workergroup

import (
	"cmp"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// groupLabel is on each worker and names its group.
const groupLabel = "example.dev/workergroup"

// Plan is what has to be done so that a group has the workers it should have.
type Plan struct {
	Create []*corev1.Pod
	Delete []*corev1.Pod
}

// MakePlan compares the group with the workers that there are. It looks at nothing else: not at what
// has happened, and not at what was planned before.
//
// The names of workers follow from the group's: web-0, web-1, … To create one twice is therefore
// impossible, whatever a lost answer or a stale read made somebody believe.
func MakePlan(group *WorkerGroup, workers []*corev1.Pod) Plan {
	byName := map[string]*corev1.Pod{}
	for _, w := range workers {
		byName[w.Name] = w
	}
	var plan Plan
	for i := range ptr.Deref(group.Spec.Replicas, 1) {
		name := fmt.Sprintf("%s-%d", group.Name, i)
		worker := byName[name]
		delete(byName, name)
		switch {
		case worker == nil:
			plan.Create = append(plan.Create, newWorker(group, name))
		case worker.DeletionTimestamp != nil:
			// Its name is free when it is gone, and we are woken then.
		case ended(worker):
			plan.Delete = append(plan.Delete, worker)
		}
	}
	for _, surplus := range byName {
		if surplus.DeletionTimestamp == nil {
			plan.Delete = append(plan.Delete, surplus)
		}
	}
	slices.SortFunc(plan.Delete, func(a, b *corev1.Pod) int { return cmp.Compare(a.Name, b.Name) })
	return plan
}

// Observe is what a group's status should say.
func Observe(group *WorkerGroup, workers []*corev1.Pod) Status {
	seen := Status{ObservedGeneration: group.Generation}
	for _, w := range workers {
		if w.DeletionTimestamp != nil || ended(w) {
			continue
		}
		seen.Existing++
		if w.Spec.NodeName != "" {
			seen.Scheduled++
		}
		if w.Status.Phase == corev1.PodRunning {
			seen.Started++
		}
		for _, c := range w.Status.Conditions {
			if c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue {
				seen.Ready++
			}
		}
	}
	return seen
}

func ended(w *corev1.Pod) bool {
	return w.Status.Phase == corev1.PodFailed || w.Status.Phase == corev1.PodSucceeded
}

func newWorker(group *WorkerGroup, name string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: group.Namespace, Name: name,
			Labels: map[string]string{groupLabel: group.Name},
			OwnerReferences: []metav1.OwnerReference{
				*metav1.NewControllerRef(group, GroupVersion.WithKind("WorkerGroup")),
			},
		},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{
			Name: "worker", Image: "busybox", Command: group.Spec.Command,
		}}},
	}
}
