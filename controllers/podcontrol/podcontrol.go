// Package podcontrol creates and deletes the pods of the objects that own them, and records events about
// that at the owners. It decides nothing: which pods, and how many, is the controllers' business.
//
// Everything here may be used concurrently.
package podcontrol

import (
	"context"
	"errors"
	"fmt"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// FromTemplate returns a pod as a template has it, controlled by an owner and named after it. It shares
// nothing with the template.
func FromTemplate(owner client.Object, kind schema.GroupVersionKind, template *corev1.PodTemplateSpec) *corev1.Pod {
	pod := &corev1.Pod{
		ObjectMeta: *template.ObjectMeta.DeepCopy(),
		Spec:       *template.Spec.DeepCopy(),
	}
	pod.Name = ""
	pod.GenerateName = owner.GetName() + "-"
	pod.Namespace = owner.GetNamespace()
	pod.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(owner, kind)}
	return pod
}

// Control acts on pods.
type Control struct {
	Client client.Client
	Events events.EventRecorder
}

// Create creates a pod. That the namespace is being deleted is returned but no event: it is nobody's
// mistake.
func (c Control) Create(ctx context.Context, owner client.Object, pod *corev1.Pod) error {
	err := c.Client.Create(ctx, pod)
	switch {
	case err == nil:
		c.Events.Eventf(owner, pod, corev1.EventTypeNormal, "SuccessfulCreate", "Create",
			"Created pod: %s", pod.Name)
	case !NamespaceEnds(err):
		c.Events.Eventf(owner, nil, corev1.EventTypeWarning, "FailedCreate", "Create",
			"Error creating: %v", err)
	}
	return err
}

// Delete deletes a pod, and no namesake that came after it. That it is gone already is no error.
func (c Control) Delete(ctx context.Context, owner client.Object, pod *corev1.Pod) error {
	err := c.Client.Delete(ctx, pod.DeepCopy(), client.Preconditions{UID: &pod.UID})
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil // gone, and perhaps replaced by a namesake: that one was not chosen
	}
	if err != nil {
		c.Events.Eventf(owner, pod, corev1.EventTypeWarning, "FailedDelete", "Delete",
			"Error deleting: %v", err)
		return fmt.Errorf("delete pod %s: %w", pod.Name, err)
	}
	c.Events.Eventf(owner, pod, corev1.EventTypeNormal, "SuccessfulDelete", "Delete",
		"Deleted pod: %s", pod.Name)
	return nil
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

// NamespaceEnds says whether a create failed because the namespace is being deleted: nothing is gained
// by trying again.
func NamespaceEnds(err error) bool {
	return apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause)
}

// AllRefused says whether the server answered each failed request with a refusal, so that nothing was
// created for certain.
func AllRefused(err error) bool {
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		for _, e := range joined.Unwrap() {
			if !AllRefused(e) {
				return false
			}
		}
		return true
	}
	var answer apierrors.APIStatus
	if !errors.As(err, &answer) {
		return false
	}
	code := answer.Status().Code
	return code >= 400 && code < 500 && !apierrors.IsTimeout(err)
}

// Doubts remembers the owners for which a create may have happened though it was reported as failed:
// their pods are to be counted at the server, until a pass succeeds. The zero value is ready.
type Doubts struct {
	mu     sync.Mutex
	owners map[types.NamespacedName]bool
}

// Has says whether there is a doubt about an owner's pods.
func (d *Doubts) Has(owner types.NamespacedName) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.owners[owner]
}

// Note takes down what came of creates: an error that leaves open whether there is a pod is a doubt,
// anything else, nil included, is none.
func (d *Doubts) Note(owner types.NamespacedName, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err == nil || AllRefused(err) {
		delete(d.owners, owner)
		return
	}
	if d.owners == nil {
		d.owners = map[types.NamespacedName]bool{}
	}
	d.owners[owner] = true
}
